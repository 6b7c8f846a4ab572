"""Resolves conflicts below the index folder: one table whole, the other side's rows added.

Nothing is embedded, and the Markdown is left to the user. What the outlines say in the end follows
from the Markdown, by an update or the hook of the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Row, Snapshot
from kbindex.core.paths import LINEAGE, RECIPE, TABLE, WAL
from kbindex.git.client import Git
from kbindex.git.staging import stage_blobs, stage_changes
from kbindex.local.cache import Cache
from kbindex.repo.repository import Repository
from kbindex.repo.snapshot import commit_trees
from kbindex.storage.lineage import render_lineage
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree, index_at, staged_index
from kbindex.storage.writer import stack_vectors


@dataclass
class Resolution:
    """The resolution of conflicts: blobs to stage by path, and facts to report."""

    blobs: dict[str, str | None] = field(default_factory=dict)
    outlines: list[str] = field(default_factory=list)
    has_recipe_conflict: bool = False
    takes_table: bool = False
    """Whether the table is HEAD's; else it merged by itself."""
    n_rows: int = 0
    """Rows of the other side that were added."""


def resolve_index(repository: Repository, head: str) -> Resolution:
    """Resolve every conflict below the index folder; ``head`` is HEAD's tree. The lock is held."""
    git = repository.git
    with repository.cache() as cache:
        ours = index_at(repository, head)
        resolution = _resolve(git, repository.config.index_dir, ours.snapshot)
        stage_blobs(git, resolution.blobs)
        trees = commit_trees(git, git.state.operation_commits())
        resolution.n_rows = _add_rows(ours, [index_at(repository, tree) for tree in trees], cache)
    return resolution


def _resolve(git: Git, index_dir: str, ours: Snapshot) -> Resolution:
    """Decide each index file: HEAD's table and recipe, our side of outlines, all WAL files."""
    resolution = Resolution()
    folders = (f"{index_dir}/{TABLE}/", f"{index_dir}/{LINEAGE}")
    for path, sides in git.index.unmerged(index_dir).items():
        if path.startswith(folders):
            resolution.takes_table = True
        elif path.startswith(f"{index_dir}/{WAL}/"):
            resolution.blobs[path] = sides.get(2) or sides.get(3)
        elif path == f"{index_dir}/{RECIPE}":
            resolution.blobs[path] = ours.recipe
            resolution.has_recipe_conflict = True
        else:
            resolution.blobs[path] = sides.get(2) or sides.get(3)
            resolution.outlines.append(path)
    if resolution.takes_table or not _is_whole(git, index_dir):
        resolution.takes_table = True
        resolution.blobs |= _table_of(git, index_dir, ours)
    return resolution


def _is_whole(git: Git, index_dir: str) -> bool:
    """Whether the staged table is that of its mark: it merged by itself, or nobody touched it."""
    folder = f"{index_dir}/{TABLE}/"
    staged = {path: oid for _, oid, path in git.index.files(folder[:-1], f"{index_dir}/{LINEAGE}")}
    mark = staged.pop(f"{index_dir}/{LINEAGE}", None)
    names = (path.removeprefix(folder) for path in staged)
    return mark is not None and git.objects.read_blob(mark) == render_lineage(names)


def _table_of(git: Git, index_dir: str, ours: Snapshot) -> dict[str, str | None]:
    """Return what makes the staged table, whatever lies there, that of ``ours``."""
    folder, lineage = f"{index_dir}/{TABLE}", f"{index_dir}/{LINEAGE}"
    staged = {path for _, _, path in git.index.files(folder, lineage)}
    unmerged = [*git.index.unmerged(folder), *git.index.unmerged(lineage)]
    blobs: dict[str, str | None] = dict.fromkeys([*staged, *unmerged])
    blobs |= {f"{folder}/{name}": oid for name, oid in ours.table.items()}
    return blobs | ({lineage: ours.lineage} if ours.lineage else {})


def _add_rows(ours: IndexTree, theirs: list[IndexTree], cache: Cache) -> int:
    """Stage a WAL file with the rows that either side's outlines need and the index lacks."""
    recipe = ours.find_recipe()
    if recipe is None:
        return 0  # an update says why, and mends it
    merged = staged_index(ours.repository)
    held = CommittedRows(merged, recipe.embedder, cache).keys
    sides = [CommittedRows(tree, recipe.embedder, cache) for tree in (ours, *theirs)]
    needed = merged.outline_keys().union(*(side.tree.outline_keys() for side in sides))
    rows: dict[str, Row] = {}
    vectors: dict[str, NDArray[np.float16]] = {}
    for side in sides:
        found = {row.key: row for row in side.rows(needed - held - rows.keys())}
        rows |= found
        vectors |= side.vectors(set(found))
    if not rows:
        return 0
    from kbindex.storage.wal import encode_wal

    name, content = encode_wal(list(rows.values()), stack_vectors(rows.values(), vectors))
    path, folder = ours.path(f"{WAL}/{name}"), ours.config.index_dir
    stage_changes(ours.git, {path: content}, folder)
    return len(rows)
