"""``kbindex update``: brings the index up to the bundle."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbindex.configuration.config import Config
from kbindex.configuration.file import FILE_NAME, PYPROJECT
from kbindex.core.errors import (
    ExitCode,
    KbindexError,
    NoEmbedderError,
    RefusedError,
    TooMuchToEmbedError,
)
from kbindex.core.model import Problem
from kbindex.core.text import as_text, shell_word
from kbindex.embed.select import open_embedder
from kbindex.git.client import Git
from kbindex.git.staging import stage_stored, store_changes, write_changes
from kbindex.index.build import build
from kbindex.index.options import Options
from kbindex.index.report import Report
from kbindex.index.resolve import resolve_index
from kbindex.local.refused import forget_refused, note_refused, refused_tree
from kbindex.output.console import note, put
from kbindex.output.progress import progress_on
from kbindex.repo.repository import (
    Repository,
    open_repository,
    repository_at,
    worktree_repository,
    write_lock,
)
from kbindex.storage.tree import index_at
from kbindex.view.files import discard_view

_ROUNDS = 3
"""How often an update begins again because something was staged while it worked."""


@dataclass(frozen=True)
class UpdateOptions:
    worktree: bool = False
    stage: bool = True
    dry_run: bool = False
    re_embed: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of an update; ``changed`` are the paths of index files that it changed."""

    changed: list[str]
    report: Report
    proven: str | None = None
    """The tree that was compared, with what was staged for it; ``None`` where nothing was."""

    def after(self, earlier: Outcome) -> Outcome:
        """Return what both did, one after the other."""
        changed = sorted({*earlier.changed, *self.changed})
        return Outcome(changed, self.report.after(earlier.report), self.proven)


def update(directory: Path | None, options: UpdateOptions) -> ExitCode:
    """Update the index, print what was done, and return the exit code."""
    git = Git(directory)
    git.require_worktree()
    if not options.worktree:
        _mention_unstaged_configuration(git)
    outcome = run_update(
        git,
        lambda _: Options(dry_run=options.dry_run, re_embed=options.re_embed),
        worktree=options.worktree,
        stage=options.stage,
    )
    put(render_report(outcome.report, options.dry_run))
    _embed_refused(git, options.dry_run)
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
    git.require_worktree()
    with write_lock(git):
        # The tree is taken under the lock: what another run staged is seen.
        if not worktree:
            _resolve_conflicts(git)
            return _follow(git, make_options, stage)
        repository = worktree_repository(git)
        tree = git.index.write_worktree_tree(repository.config.bundle)
        return _run(repository, tree, make_options(repository.config), stage)


def _follow(git: Git, make_options: Callable[[Config], Options], stage: bool) -> Outcome:
    """Update what is staged, and once more where something was staged meanwhile."""
    earlier: Outcome | None = None
    for _ in range(_ROUNDS):
        tree = git.index.write_tree()
        repository = repository_at(git, tree)
        outcome = _run(repository, tree, make_options(repository.config), stage)
        outcome = outcome.after(earlier) if earlier else outcome
        if outcome.proven is None or _is_state(git, repository, outcome.proven):
            return outcome
        earlier = outcome
    raise RefusedError(
        "documents were staged all the while: the index is behind them",
        "run this again when nothing else stages",
    )


def _is_state(git: Git, repository: Repository, tree: str) -> bool:
    """Whether bundle, index and configuration are staged as they are in ``tree``."""
    staged = git.index.write_tree()
    return tree == staged or (
        repository.state_id(tree) == repository_at(git, staged).state_id(staged)
    )


def _resolve_conflicts(git: Git) -> None:
    """Resolve conflicts where only the index has any: the documents are resolved already."""
    unmerged = git.index.unmerged(".")
    head = git.trees.head()
    if not unmerged or head is None:
        return
    repository = repository_at(git, head)
    folder = f"{repository.config.index_dir}/"
    if all(path.startswith(folder) for path in unmerged):
        resolve_index(repository, head)


def _run(repository: Repository, tree: str, options: Options, stage: bool) -> Outcome:
    git, config = repository.git, repository.config
    index = index_at(repository, tree)
    index.require_bundle()
    embedder = open_embedder(config, index.find_recipe(), repository.cache_dir, os.environ)
    with repository.cache() as cache, progress_on(sys.stderr) as progress:
        try:
            built = build(index, embedder, cache, options, progress)
        except TooMuchToEmbedError:
            note_refused(repository.view_dir, tree)
            raise
        changes, report = built.changes, built.report
        if options.re_embed and not options.dry_run:
            discard_view(repository.view_dir)  # which knows vectors by their keys
        if options.dry_run or not changes:
            return Outcome([], report)
        if not stage:
            written = write_changes(git, changes, config.index_dir, repository.view_dir)
            return Outcome(written, report, tree)
        blobs = store_changes(git, changes)
        changed = stage_stored(git, blobs, config.index_dir)
        # Not what is staged by now: somebody may have staged a document while we worked.
        proven = git.index.tree_with(tree, blobs)
        if not report.problems:
            cache.add_fresh(repository.state_id(proven))
    return Outcome(changed, report, proven)


def _embed_refused(git: Git, dry_run: bool) -> None:
    """Embed what a commit that was refused for it needs; it can be made again then."""
    folder = repository_at(git, None).view_dir
    tree = refused_tree(folder)
    if tree is None:
        return
    options = Options(may_change_recipe=False, dry_run=dry_run, embeds_only=True)
    try:
        with write_lock(git):
            report = _run(repository_at(git, tree), tree, options, stage=False).report
    except NoEmbedderError:
        raise
    except KbindexError:
        report = Report()  # the tree is gone, or what it holds has been overtaken
    if report.n_embedded:
        verb = "to embed" if dry_run else "embedded; commit again"
        put(f"for the commit that was refused: {report.n_embedded} chunks {verb}")
    if not dry_run:
        forget_refused(folder)


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
    return as_text(lines)


def _mention_unstaged_configuration(git: Git) -> None:
    for name in (FILE_NAME, PYPROJECT):
        if name in git.index.changed_in_worktree(name) + git.index.untracked(name):
            note(f"{name} differs from what is staged; the staged one counts")
