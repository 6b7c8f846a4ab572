"""``kbindex resolve``: mends the index during a conflicted merge, rebase, pick or revert.

HEAD's table is kept whole, and the rows that it lacks are added from the other side. Nothing is
embedded. The Markdown is the user's to resolve; the hook of the commit that follows does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kbindex.cache import Cache
from kbindex.committed import load_committed, outline_keys
from kbindex.console import put
from kbindex.errors import ExitCode
from kbindex.git import Git
from kbindex.layout import OUTLINES, RECIPE, TABLE, WAL
from kbindex.model import Row, Snapshot
from kbindex.publish import stage_blobs, stage_changes
from kbindex.recipe import identity_id
from kbindex.repository import Repository, repository_at, write_lock
from kbindex.snapshot import (
    commit_trees,
    read_recipe,
    read_snapshot,
    read_staged_snapshot,
)
from kbindex.store import RowStore, stack_vectors


@dataclass
class _Settled:
    """What was decided for the index files: blobs to stage, and what to tell."""

    blobs: dict[str, str | None] = field(default_factory=dict)
    outlines: list[str] = field(default_factory=list)
    has_recipe_conflict: bool = False


def resolve(directory: Path | None) -> ExitCode:
    """Settle every conflict below the index folder and print what was done."""
    git = Git(directory)
    head = git.head_tree()
    commits = git.operation_commits()
    repository = repository_at(git, head)
    config = repository.config
    if head is None or not (commits or git.unmerged(config.index_dir)):
        put("nothing to resolve: no merge, rebase, cherry-pick or revert is under way")
        return ExitCode.OK
    with write_lock(git), repository.cache() as cache:
        ours = read_snapshot(git, head, config)
        settled = _settle(git, config.index_dir, ours)
        stage_blobs(git, settled.blobs)
        n_rows = _add_rows(repository, cache, ours, commit_trees(git, commits))
    put(_account(settled, n_rows))
    left = sorted(git.unmerged("."))
    if left:
        put("still to resolve by hand: " + ", ".join(left))
    if git.is_rebasing:  # whose --continue runs no pre-commit hook
        put("next: 'git add' what you resolved, 'kbindex update', then 'git rebase --continue'")
    else:
        put("next: 'git add' what you resolved, then commit; the hook mends the rest")
    return ExitCode.NEGATIVE if git.unmerged(config.index_dir) else ExitCode.OK


def _settle(git: Git, index_dir: str, ours: Snapshot) -> _Settled:
    """Decide each index file: HEAD's table and recipe, our side of outlines, all WAL files."""
    settled = _Settled()
    table = {f"{index_dir}/{TABLE}/{name}": oid for name, oid in ours.table.items()}
    staged = {path for _, _, path in git.index_files(f"{index_dir}/{TABLE}")}
    unmerged = git.unmerged(index_dir)
    settled.blobs |= dict.fromkeys(staged - table.keys())
    for path, sides in unmerged.items():
        if path.startswith(f"{index_dir}/{TABLE}/"):
            settled.blobs[path] = None
        elif path.startswith(f"{index_dir}/{WAL}/"):
            settled.blobs[path] = sides.get(2) or sides.get(3)
        elif path == f"{index_dir}/{RECIPE}":
            settled.blobs[path] = ours.recipe
            settled.has_recipe_conflict = True
        else:
            settled.blobs[path] = sides.get(2) or sides.get(3)
            settled.outlines.append(path)
    settled.blobs |= table
    return settled


def _add_rows(repository: Repository, cache: Cache, ours: Snapshot, trees: list[str]) -> int:
    """Stage a WAL file with the rows that either side's outlines need and the index lacks."""
    git, config = repository.git, repository.config
    recipe = read_recipe(git, ours, config)
    if recipe is None:
        return 0
    identity = identity_id(recipe.embedder)
    merged = read_staged_snapshot(git, config)
    held, _ = load_committed(git, merged, cache, identity, config.index_dir)
    others = [ours, *(read_snapshot(git, tree, config) for tree in trees)]
    needed = outline_keys(git, [merged, *others])
    for other in others:
        load_committed(git, other, cache, identity, config.index_dir)
    rows: dict[str, Row] = {}
    for other in others:
        store = RowStore(git, config, other, cache, identity)
        rows |= {row.key: row for row in store.committed_rows(needed - held - rows.keys())}
    if not rows:
        return 0
    from kbindex.wal import encode_wal

    vectors = cache.vectors(rows)
    name, content = encode_wal(list(rows.values()), stack_vectors(rows.values(), vectors))
    stage_changes(git, {f"{config.index_dir}/{WAL}/{name}": content}, config.index_dir)
    return len(rows)


def _account(settled: _Settled, n_rows: int) -> str:
    lines = [f"the table is that of HEAD; {n_rows} rows of the other side were added to the WAL"]
    if settled.outlines:
        lines.append(
            f"{len(settled.outlines)} outlines are ours for now: {OUTLINES}/ follows the Markdown "
            "when it is committed"
        )
    if settled.has_recipe_conflict:
        lines.append("the recipe is that of HEAD; rows of another embedder were left out")
    return "\n".join(lines)
