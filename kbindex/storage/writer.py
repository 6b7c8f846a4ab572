"""Writes new rows: into one WAL file for a hook run, or into the table at a checkpoint.

Rows are only ever added. A checkpoint appends what the table lacks as one version and empties the
WAL; the WAL files of a commit that failed or is repeated are folded into the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum, auto
from pathlib import PurePosixPath as Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import DamagedIndexError
from kbindex.core.model import Entry, Row
from kbindex.core.paths import LINEAGE, TABLE, WAL
from kbindex.output.console import note
from kbindex.storage.columns import checksum
from kbindex.storage.lineage import render_lineage
from kbindex.storage.reader import CommittedRows
from kbindex.storage.table_files import latest_manifest
from kbindex.storage.tree import Source

Changes = dict[str, bytes | None]
"""Index files by their path from the repository's root; ``None`` removes one."""

Vectors = Mapping[str, NDArray[np.float16]]
Anchor = Callable[[set[str]], Iterable[Row]]
"""Returns rows for keys, anchored in the documents as they are now; unknown keys are left out."""


class Checkpoint(Enum):
    """Whether this run may fold the WAL into the table."""

    NEVER = auto()
    WHEN_DUE = auto()
    NOW = auto()


class Outlined(Protocol):
    """A document with the entries of its outline."""

    @property
    def path(self) -> str:
        """The path from the repository's root."""

    @property
    def blob(self) -> str:
        """The blob id of the document."""

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries in document order."""


def anchor_rows(
    documents: Iterable[Outlined], keys: set[str], embedder: str, vectors: Vectors
) -> list[Row]:
    """Return a row for each of ``keys``, anchored where the key first occurs in ``documents``.

    ``vectors`` holds those of all keys.
    """
    rows: dict[str, Row] = {}
    for document in documents:
        for ordinal, entry in enumerate(document.entries):
            if entry.key in keys and entry.key not in rows:
                rows[entry.key] = Row(
                    key=entry.key,
                    embedder=embedder,
                    path=document.path,
                    ordinal=ordinal,
                    blob=document.blob,
                    char_start=entry.region.char_start,
                    char_end=entry.region.char_end,
                    heading=entry.heading_path,
                    n_tokens=entry.region.n_tokens,
                    sum=checksum(entry.key, vectors[entry.key]),
                )
    return list(rows.values())


class RowStore:
    """Adds rows to those that are committed; returns what changes and writes nothing."""

    def __init__(self, committed: CommittedRows) -> None:
        self._committed, self._tree = committed, committed.tree
        self._snapshot, self._folder = committed.tree.snapshot, committed.tree.config.index_dir

    def start_table(self, rows: Sequence[Row], vectors: Vectors) -> Changes:
        """Return the changes that replace table and WAL by a new table of ``rows``."""
        changes: Changes = dict.fromkeys(f"{self._folder}/{WAL}/{n}" for n in self._snapshot.wal)
        changes |= dict.fromkeys(f"{self._folder}/{TABLE}/{n}" for n in self._snapshot.table)
        changes |= self._append(rows, vectors, begins=True) if rows else {}
        return self._marked(changes)

    def add(
        self,
        rows: Sequence[Row],
        vectors: Vectors,
        checkpoint: Checkpoint,
        anchor: Anchor,
        *,
        fold_repeated: bool,
    ) -> tuple[Changes, bool]:
        """Return the changes that add ``rows`` and whether they are a checkpoint."""
        changes, is_checkpoint = self._added(rows, vectors, checkpoint, anchor, fold_repeated)
        return self._marked(changes), is_checkpoint

    def _added(
        self,
        rows: Sequence[Row],
        vectors: Vectors,
        checkpoint: Checkpoint,
        anchor: Anchor,
        fold_repeated: bool,
    ) -> tuple[Changes, bool]:
        repeated = self._repeated_files() if rows and fold_repeated else []
        if self._is_due(checkpoint, len(repeated), bool(rows)):
            return self._checkpoint(rows, vectors, anchor)
        if not rows:
            return {}, False
        all_rows, all_vectors, changes = self._folded(rows, vectors, repeated)
        # Rows that were taken up again may be all that an older file holds: it may go elsewhere.
        kept = self._snapshot.wal.keys() - {Path(source.path).name for source in repeated}
        return changes | self._wal_file(all_rows, all_vectors, kept), False

    def _marked(self, changes: Changes) -> Changes:
        """Add the mark of the table as it will be, where the table changes or has another's."""
        folder = f"{self._folder}/{TABLE}/"
        changed = {p.removeprefix(folder): c for p, c in changes.items() if p.startswith(folder)}
        before = self._snapshot.table.keys()
        after = (before | changed.keys()) - {name for name, c in changed.items() if c is None}
        if not changed and self._snapshot.lineage is None:
            return changes
        return changes | {f"{self._folder}/{LINEAGE}": render_lineage(after)}

    def foreign_files(self) -> Changes:
        """Return the removal of the WAL files that hold no row of this identity."""
        return {
            f"{self._folder}/{source.path}": None
            for source in self._tree.sources
            if source.wal_blob and not list(self._committed.keys_of(source))
        }

    def _is_due(self, checkpoint: Checkpoint, n_folded: int, adds_file: bool) -> bool:
        every = self._tree.config.checkpoint_every
        n_files = len(self._snapshot.wal) - n_folded + adds_file
        due = adds_file and 0 < every <= n_files
        return checkpoint == Checkpoint.NOW or (checkpoint == Checkpoint.WHEN_DUE and due)

    def _repeated_files(self) -> list[Source]:
        """Return the WAL files that are staged but not in HEAD."""
        trees = self._tree.git.trees
        head = trees.head()
        listed = trees.files(head, f"{self._folder}/{WAL}") if head else ()
        in_head = {oid for _, oid, _ in listed}
        return [s for s in self._tree.sources if s.wal_blob and s.wal_blob not in in_head]

    def _checkpoint(
        self, rows: Sequence[Row], vectors: Vectors, anchor: Anchor
    ) -> tuple[Changes, bool]:
        wal = [source for source in self._tree.sources if source.wal_blob]
        gathered, all_vectors, changes = self._folded(rows, vectors, wal)
        in_table = {
            key
            for source in self._tree.sources
            if source.wal_blob is None
            for key in self._committed.keys_of(source)
        }
        moved = [row for row in gathered if row.key not in in_table]
        anchored = {row.key: row for row in anchor({row.key for row in moved})}
        moved = [anchored.get(row.key, row) for row in moved]
        if moved:
            begins = not self._snapshot.table
            added = self._append(moved, all_vectors, begins=begins)
            if any(path.startswith(f"{self._folder}/{WAL}/") for path in added):
                return changes | added, False
            changes |= added
        return changes, bool(changes)

    def _folded(
        self, rows: Sequence[Row], vectors: Vectors, files: Sequence[Source]
    ) -> tuple[list[Row], Vectors, Changes]:
        """Return the rows with those of WAL ``files`` added, and the removal of the files."""
        gathered = {row.key: row for row in rows}
        all_vectors = dict(vectors)
        changes: Changes = {}
        for file in files:
            changes[f"{self._folder}/{file.path}"] = None
            for row, vector in self._tree.read(file).sound(self._committed.embedder):
                if gathered.setdefault(row.key, row) is row:
                    all_vectors[row.key] = vector
        return list(gathered.values()), all_vectors, changes

    def _append(self, rows: Sequence[Row], vectors: Vectors, *, begins: bool) -> Changes:
        """Return the files that add ``rows`` to the table as one version, or begin a table.

        Where LanceDB writes them in a way that isn't read here, they go into one WAL file instead.
        """
        from kbindex.storage.table import UnreadTableError, append_rows

        folder = f"{self._folder}/{TABLE}"
        rows = in_document_order(rows)
        before = None
        if not begins:
            try:
                _, before = latest_manifest(self._snapshot.table, self._tree.read_table_file)
            except ValueError as error:
                raise DamagedIndexError(folder, str(error)) from None
        try:
            files = append_rows(
                rows, stack_vectors(rows, vectors), before, self._tree.git.local_dir
            )
        except UnreadTableError as error:
            note(
                f"LanceDB wrote {len(rows)} rows in a way that can't be read back here ({error}): "
                f"they stand in {self._folder}/{WAL}/ instead; please report this"
            )
            return self._wal_file(rows, vectors)
        return {f"{folder}/{name}": content for name, content in files.items()}

    def _wal_file(
        self, rows: Sequence[Row], vectors: Vectors, other_than: Container[str] = ()
    ) -> Changes:
        from kbindex.storage.wal import encode_wal

        name, content = encode_wal(rows, stack_vectors(rows, vectors), other_than)
        return {f"{self._folder}/{WAL}/{name}": content}


def in_document_order(rows: Iterable[Row]) -> list[Row]:
    """Return the rows as they go into the table.

    In the order of a WAL file git would take the table's new file for that one, renamed.
    """
    return sorted(rows, key=lambda row: (row.path, row.ordinal, row.key))


def stack_vectors(rows: Iterable[Row], vectors: Vectors) -> NDArray[np.float16]:
    """Return the vectors of rows in their order: ``(n_rows, dim)``."""
    return np.stack([vectors[row.key] for row in rows])
