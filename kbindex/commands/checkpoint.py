"""``kbindex checkpoint``: folds the WAL into the table as one new version."""

from __future__ import annotations

from pathlib import Path

from kbindex.commands.update import mention_problems, run_update
from kbindex.core.errors import ExitCode, RefusedError
from kbindex.git.client import Git
from kbindex.index.options import Options
from kbindex.output.console import put
from kbindex.repo.repository import worktree_repository
from kbindex.repo.snapshot import read_staged_snapshot
from kbindex.storage.writer import Checkpoint


def checkpoint(directory: Path | None) -> ExitCode:
    """Append the WAL's rows to the table, empty the WAL, and stage both."""
    git = Git(directory)
    if git.state.is_mid_operation:
        raise RefusedError("a merge, rebase, cherry-pick or revert is under way", "finish it first")
    options = Options(may_change_recipe=False, checkpoint=Checkpoint.NOW)
    report = run_update(git, lambda _: options).report
    if report.checkpointed:
        put("the WAL was folded into the table")
    else:
        wal = read_staged_snapshot(git, worktree_repository(git).config).wal
        put("the rows stay in the WAL" if wal else "the WAL is empty")
    mention_problems(report.problems)
    return ExitCode.NEGATIVE if report.problems else ExitCode.OK
