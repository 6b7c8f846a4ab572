"""``kbindex compact``: rewrites the table with the rows that a branch still needs.

The one act that drops rows and LanceDB's old versions; a maintainer's, never a hook's. It makes
every clone fetch the whole table once more.
"""

from __future__ import annotations

from pathlib import Path

from kbindex.core.errors import ExitCode, RefusedError
from kbindex.git.client import Git
from kbindex.git.staging import stage_changes
from kbindex.outline.states import Proven
from kbindex.output.console import put
from kbindex.repo.repository import write_lock
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree, index_at, open_index
from kbindex.storage.writer import RowStore, anchor_rows


def compact(directory: Path | None) -> ExitCode:
    """Replace table and WAL by one version of the needed rows, and stage it."""
    git = Git(directory)
    git.require_worktree()
    with write_lock(git):  # what another run staged while we waited is seen
        tree = open_index(directory, None)
        tree.require_index()
        put(_compact(tree))
    return ExitCode.OK


def _compact(tree: IndexTree) -> str:
    git = tree.git
    if git.state.is_mid_operation:
        raise RefusedError("a merge, rebase, cherry-pick or revert is under way", "finish it first")
    recipe = tree.recipe
    assert recipe is not None
    with tree.repository.cache() as cache:
        committed = CommittedRows(tree, recipe.embedder, cache)
        if committed.damage:
            raise committed.damage[0]
        proven = [s for s in tree.compare(recipe.embedder) if isinstance(s, Proven)]
        live = {key for state in proven for key in state.keys}
        # An update takes up again most of what a stale document's outline names.
        needed = (live | tree.outline_keys() | _branch_keys(tree)) & committed.keys
        vectors = committed.vectors(needed)
        rows = anchor_rows(proven, needed & live, committed.embedder, vectors)
        rows += committed.rows(needed - live)
        changes = RowStore(committed).start_table(rows, vectors)
        before = tree.n_row_bytes
        stage_changes(git, changes, tree.config.index_dir)
    after = sum(len(content) for content in changes.values() if content)
    return (
        f"rows: {len(committed.keys)} before, {len(rows)} kept ({len(rows) - len(needed & live)} "
        f"for other branches only); bytes: {before} before, {after} after"
    )


def _branch_keys(tree: IndexTree) -> set[str]:
    """Return the keys that the outlines at the tip of any branch name."""
    git = tree.git
    trees = filter(None, map(git.trees.find, git.state.branch_tips()))
    return set().union(*(index_at(tree.repository, tip).outline_keys() for tip in trees))
