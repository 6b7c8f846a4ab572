"""``kbindex check``: is the index of a tree exactly that of its bundle? Never writes or embeds."""

from __future__ import annotations

from pathlib import Path

from kbindex.console import put
from kbindex.errors import ExitCode
from kbindex.formats import Format
from kbindex.render import render_check
from kbindex.repository import open_tree, require_index
from kbindex.verify import verify, worktree_damage


def check(directory: Path | None, rev: str | None, form: Format, *, strict: bool) -> ExitCode:
    """Print the verdict on a revision, or on what is staged; the exit code says it too."""
    repository, snapshot = open_tree(directory, rev)
    require_index(repository, snapshot)
    verdict = verify(repository.git, repository.config, snapshot, strict=strict)
    if rev is None:
        verdict.problems += worktree_damage(repository.git, repository.config)
    put(
        render_check(
            rev or snapshot.tree,
            verdict.n_documents,
            verdict.n_chunks,
            verdict.problems,
            verdict.notices,
            form,
        )
    )
    if verdict.is_damaged:
        return ExitCode.UNREADABLE_INDEX
    return ExitCode.NEGATIVE if verdict.problems else ExitCode.OK
