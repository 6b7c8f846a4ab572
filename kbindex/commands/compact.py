"""``kbindex compact``: rewrites the table with the rows that a branch still needs.

The one act that drops rows and LanceDB's old versions; a maintainer's, never a hook's. It makes
every clone fetch the whole table once more.
"""

from __future__ import annotations

from pathlib import Path

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import ExitCode, RefusedError
from kbindex.core.model import Snapshot
from kbindex.git.client import Git
from kbindex.git.staging import stage_changes
from kbindex.outline.freshness import compare
from kbindex.output.console import put
from kbindex.repo.repository import Repository, open_tree, require_index, write_lock
from kbindex.repo.snapshot import read_recipe, read_snapshot
from kbindex.storage.reader import committed_vectors, load_committed, outline_keys
from kbindex.storage.writer import RowStore, anchor_rows


def compact(directory: Path | None) -> ExitCode:
    """Replace table and WAL by one version of the needed rows, and stage it."""
    git = Git(directory)
    git.require_worktree()
    with write_lock(git):  # what another run staged while we waited is seen
        repository, snapshot = open_tree(directory, None)
        require_index(repository, snapshot)
        put(_compact(repository, snapshot))
    return ExitCode.OK


def _compact(repository: Repository, snapshot: Snapshot) -> str:
    git, config = repository.git, repository.config
    if git.state.is_mid_operation:
        raise RefusedError("a merge, rebase, cherry-pick or revert is under way", "finish it first")
    recipe = read_recipe(git, snapshot, config)
    assert recipe is not None
    identity = identity_id(recipe.embedder)
    with repository.cache() as cache:
        held, damage = load_committed(git, snapshot, cache, recipe.embedder, config.index_dir)
        if damage:
            raise damage[0]
        states = [s for s in compare(snapshot, recipe.embedder, git.objects) if s.is_fresh]
        live = {key for state in states for key in state.keys}
        # An update takes up again most of what a stale document's outline names.
        needed = (live | outline_keys(git, [snapshot]) | _branch_keys(repository)) & held
        vectors = committed_vectors(git, snapshot, cache, recipe.embedder, config.index_dir, needed)
        places = [(state.path, state.entries, state.chunks) for state in states]
        rows = anchor_rows(places, snapshot.documents, needed & live, identity, vectors)
        store = RowStore(git, config, snapshot, cache, identity)
        rows += store.committed_rows(needed - live)
        changes = store.start_table(rows, vectors)
        before = git.objects.total_size([*snapshot.table.values(), *snapshot.wal.values()])
        stage_changes(git, changes, config.index_dir)
    after = sum(len(content) for content in changes.values() if content)
    return (
        f"rows: {len(held)} before, {len(rows)} kept ({len(rows) - len(needed & live)} for other "
        f"branches only); bytes: {before} before, {after} after"
    )


def _branch_keys(repository: Repository) -> set[str]:
    """Return the keys that the outlines at the tip of any branch name."""
    git, config = repository.git, repository.config
    trees = filter(None, map(git.trees.find, git.state.branch_tips()))
    return outline_keys(git, (read_snapshot(git, tree, config) for tree in trees))
