"""``kbindex update``: brings the index up to the bundle."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbindex.build import Build, Options, Report
from kbindex.choose import open_embedder
from kbindex.config import Config
from kbindex.configfile import FILE_NAME, PYPROJECT
from kbindex.console import note, put
from kbindex.errors import ExitCode, NoBundleError
from kbindex.formats import shell_word
from kbindex.git import Git
from kbindex.model import Problem
from kbindex.progress import progress_on
from kbindex.publish import stage_changes, write_changes
from kbindex.repository import (
    Repository,
    open_repository,
    repository_at,
    worktree_repository,
    write_lock,
)
from kbindex.settle import settle_index
from kbindex.snapshot import find_recipe, read_snapshot
from kbindex.view import discard_view


@dataclass(frozen=True)
class UpdateOptions:
    worktree: bool = False
    stage: bool = True
    dry_run: bool = False
    re_embed: str = ""


@dataclass(frozen=True)
class Outcome:
    """What an update did; ``changed`` are the index files that are other than before."""

    changed: list[str]
    report: Report


def update(directory: Path | None, options: UpdateOptions) -> ExitCode:
    """Update the index, print what was done, and return the exit code."""
    git = Git(directory)
    if git.is_bare:
        git.run("rev-parse", "--show-toplevel")  # git's own words for "needs a work tree"
    if not options.worktree:
        _mention_unstaged_configuration(git)
    outcome = run_update(
        git,
        lambda _: Options(dry_run=options.dry_run, re_embed=options.re_embed),
        worktree=options.worktree,
        stage=options.stage,
    )
    put(render_report(outcome.report, options.dry_run))
    mention_problems(outcome.report.problems)
    if not options.stage and outcome.changed:
        folder = shell_word(open_repository(directory).config.index_dir, bare=True)
        note(f"written; stage it with: git add -A -- {folder}")
    return ExitCode.NEGATIVE if outcome.report.problems else ExitCode.OK


def run_update(
    git: Git,
    make_options: Callable[[Config], Options],
    *,
    worktree: bool = False,
    stage: bool = True,
) -> Outcome:
    """Bring the index up to the bundle as it is staged or on disk, and put it in place.

    Raises NoBundleError where there is neither a document nor an index.
    """
    with write_lock(git):
        # The tree is taken under the lock: what another run staged is seen.
        if worktree:
            repository = worktree_repository(git)
            tree = git.write_worktree_tree(repository.config.bundle)
        else:
            _settle_conflicts(git)
            tree = git.write_tree()
            repository = repository_at(git, tree)
        return _run(repository, tree, make_options(repository.config), stage)


def _settle_conflicts(git: Git) -> None:
    """Settle conflicts where only the index has any: the documents are resolved already."""
    unmerged = git.unmerged(".")
    head = git.head_tree()
    if not unmerged or head is None:
        return
    repository = repository_at(git, head)
    folder = f"{repository.config.index_dir}/"
    if all(path.startswith(folder) for path in unmerged):
        settle_index(repository, head)


def _run(repository: Repository, tree: str, options: Options, stage: bool) -> Outcome:
    git, config = repository.git, repository.config
    snapshot = read_snapshot(git, tree, config)
    if not snapshot.documents and not snapshot.has_index:
        raise NoBundleError(config.bundle)
    stored = find_recipe(git, snapshot, config)
    embedder = open_embedder(config, stored, repository.cache_dir, os.environ)
    with repository.cache() as cache, progress_on(sys.stderr) as progress:
        changes, report = Build(git, config, snapshot, embedder, cache, options, progress).run()
        if options.re_embed and not options.dry_run:
            discard_view(repository.view_dir)  # which knows vectors by their keys
        if options.dry_run or not changes:
            return Outcome([], report)
        if not stage:
            return Outcome(
                write_changes(git, changes, config.index_dir, repository.view_dir), report
            )
        changed = stage_changes(git, changes, config.index_dir)
        if not report.problems:
            cache.add_fresh(repository.state_id(git.write_tree()))
    return Outcome(changed, report)


def mention_problems(problems: list[Problem]) -> None:
    """Name each document that could not be indexed."""
    for problem in problems:
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        note(f"{place}: {problem.message}")


def render_report(report: Report, dry_run: bool = False) -> str:
    """Say what an update did, or would do."""
    lines = [f"recipe: {change}" for change in report.recipe_changes]
    lines += [f"damaged, and made anew: {damage}" for damage in report.repaired]
    lines.append(
        f"documents: {len(report.added)} added, {len(report.changed)} changed, "
        f"{len(report.renamed)} renamed, {len(report.deleted)} deleted"
        + (f"; {len(report.rebuilt)} unchanged ones indexed anew" if report.rebuilt else "")
    )
    verb = "to embed" if dry_run else "embedded"
    lines.append(
        f"chunks: {report.n_chunks} in all, {report.n_kept} kept, {report.n_reused} reused, "
        f"{report.n_embedded} {verb} in {report.n_calls} calls"
    )
    if report.recipe_changes and report.n_embedded:
        lines.append(
            f"of these, {report.n_embedded - report.n_edited} because of the recipe, "
            f"{report.n_edited} because their documents changed"
        )
    if report.n_recontexted:
        lines.append(
            f"of these, {report.n_recontexted} because a title, a heading or a table header above "
            "them changed"
        )
    if report.checkpointed:
        lines.append("checkpoint: the WAL was folded into the table")
    return "\n".join(lines)


def _mention_unstaged_configuration(git: Git) -> None:
    for name in (FILE_NAME, PYPROJECT):
        if name in git.changed_in_worktree(name) + git.untracked(name):
            note(f"{name} differs from what is staged; the staged one counts")
