"""``kbindex resolve``: mends the index during a conflicted merge, rebase, pick or revert.

A table in conflict is kept whole as HEAD has it, and the rows that it lacks are added from the
other side. Nothing is embedded. The Markdown is the user's to resolve; the hook of the commit
that follows does the rest.
"""

from __future__ import annotations

from pathlib import Path

from kbindex.core.errors import ExitCode
from kbindex.core.paths import OUTLINES
from kbindex.core.text import as_text
from kbindex.git.client import Git
from kbindex.index.resolve import Resolution, resolve_index
from kbindex.output.console import put
from kbindex.repo.repository import repository_at, write_lock


def resolve(directory: Path | None) -> ExitCode:
    """Resolve every conflict below the index folder and print what was done."""
    git = Git(directory)
    git.require_worktree()
    with write_lock(git):  # what another run committed while we waited is seen
        head = git.trees.head()
        repository = repository_at(git, head)
        config = repository.config
        if head is None or not (
            git.state.operation_commits() or git.index.unmerged(config.index_dir)
        ):
            put("nothing to resolve: no merge, rebase, cherry-pick or revert is under way")
            return ExitCode.OK
        resolution = resolve_index(repository, head)
    put(_account(resolution))
    left = sorted(git.index.unmerged("."))
    if left:
        put(as_text(["still to resolve by hand: " + ", ".join(left)]))
    if git.state.is_rebasing:  # whose --continue runs no pre-commit hook
        put("next: 'git add' what you resolved, 'kbindex update', then 'git rebase --continue'")
    else:
        put("next: 'git add' what you resolved, then commit; the hook mends the rest")
    return ExitCode.NEGATIVE if git.index.unmerged(config.index_dir) else ExitCode.OK


def _account(resolution: Resolution) -> str:
    table = "is that of HEAD" if resolution.takes_table else "merged by itself"
    lines = [f"the table {table}; {resolution.n_rows} rows of the other side were added to the WAL"]
    if resolution.outlines:
        n_outlines = len(resolution.outlines)
        lines.append(
            f"{n_outlines} outlines are ours for now: {OUTLINES}/ follows the Markdown when it is "
            "committed"
        )
    if resolution.has_recipe_conflict:
        lines.append("the recipe is that of HEAD; rows of another embedder were left out")
    return "\n".join(lines)
