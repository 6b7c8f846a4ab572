"""``kbindex update``: brings the index up to the bundle."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kbindex.build import Build, Options, Report
from kbindex.config import FILE_NAME, PYPROJECT
from kbindex.console import note, put
from kbindex.embed import load_embedder
from kbindex.errors import ExitCode, NoBundleError
from kbindex.git import Git
from kbindex.progress import progress_on
from kbindex.publish import stage_changes, write_changes
from kbindex.repository import Repository, open_repository
from kbindex.snapshot import read_config, read_snapshot


@dataclass(frozen=True)
class UpdateOptions:
    worktree: bool = False
    stage: bool = True
    dry_run: bool = False


def update(directory: Path | None, options: UpdateOptions) -> ExitCode:
    """Update the index, print what was done, and return the exit code."""
    git = Git(directory)
    if git.is_bare:
        git.run("rev-parse", "--show-toplevel")  # git's own words for "needs a work tree"
    repository = open_repository(directory)
    tree = (
        git.write_worktree_tree(repository.config.bundle) if options.worktree else git.write_tree()
    )
    if not options.worktree:
        repository = Repository(git, read_config(git, tree, dict(os.environ)))
        _mention_unstaged_configuration(git)
    with repository.lock():
        changed, report = run_update(
            repository, tree, Options(dry_run=options.dry_run), stage=options.stage
        )
    put(render_report(report, options.dry_run))
    for problem in report.problems:
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        note(f"{place}: {problem.message}")
    if not options.stage and changed:
        note(f"written; stage it with: git add -A -- {repository.config.index_dir}")
    return ExitCode.NEGATIVE if report.problems else ExitCode.OK


def run_update(
    repository: Repository, tree: str, options: Options, *, stage: bool
) -> tuple[list[str], Report]:
    """Bring the index of ``tree`` up to its bundle and put it in place. The lock is held.

    Returns the paths of the index files that changed.
    """
    git, config = repository.git, repository.config
    snapshot = read_snapshot(git, tree, config)
    if not snapshot.documents and not snapshot.has_index:
        raise NoBundleError(config.bundle)
    embedder = load_embedder(config.embedder)
    with repository.cache() as cache, progress_on(sys.stderr) as progress:
        changes, report = Build(git, config, snapshot, embedder, cache, options, progress).run()
        if options.dry_run or not changes:
            return [], report
        if not stage:
            return write_changes(git, changes), report
        changed = stage_changes(git, changes, config.index_dir)
        if not report.problems:
            cache.add_fresh(repository.state_id(git.write_tree()))
    return changed, report


def render_report(report: Report, dry_run: bool = False) -> str:
    """Say what an update did, or would do."""
    lines = [f"recipe: {change}" for change in report.recipe_changes]
    lines.append(
        f"documents: {len(report.added)} added, {len(report.changed)} changed, "
        f"{len(report.renamed)} renamed, {len(report.deleted)} deleted"
    )
    verb = "to embed" if dry_run else "embedded"
    lines.append(
        f"chunks: {report.n_chunks} in all, {report.n_kept} kept, {report.n_reused} reused, "
        f"{report.n_embedded} {verb} in {report.n_calls} calls"
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
