"""Replaces documents in a view, and adds their vectors to its matrix; the lock is held.

What the documents are comes in; whether the view may be believed was proven before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.local.database import transaction
from kbindex.local.row_sums import row_sum
from kbindex.storage.writer import Vectors
from kbindex.view.database import (
    CHUNK_VALUES,
    DOCUMENT_VALUES,
    NO_SLOT,
    SCHEMA_VERSION,
    View,
    proven,
    slot_sum,
)
from kbindex.view.records import IndexedDocument

_SPARE_SLOTS = 2048
"""Dead vectors that may lie in the matrix beyond as many as there are live ones."""


def replace_documents(
    view: View,
    embedder: str,
    about: Mapping[str, str],
    gone: Iterable[int],
    documents: Iterable[IndexedDocument],
    vectors: Vectors,
    dimension: int,
) -> None:
    """Remove and add documents, and note what is ``about`` them, in one transaction.

    Raises sqlite3.Error and OSError where it can't be written; then the view is as it was.
    """
    with transaction(view.db):
        if view.meta("embedder") != embedder:
            view.db.execute("DELETE FROM slot")  # another's vectors, perhaps of another length
            _set_meta(view, "slots", "0")
        for number in gone:
            _remove(view, number)
        for document in documents:
            _add(view, document)
        _assign_slots(view, vectors, dimension)
        _count(view)
        noted: dict[str, str | bytes] = {**about, **view.arrays_and_sum()}
        noted |= {"embedder": embedder, "dimension": str(dimension), "revision": _token()}
        for name, value in noted.items():
            _set_meta(view, name, value)
    _remove_old_matrices(view)


def _remove(view: View, number: int) -> None:
    chunks = "SELECT id FROM chunk WHERE document = ?"
    view.db.execute(f"DELETE FROM words WHERE rowid IN ({chunks})", (number,))
    view.db.execute("DELETE FROM chunk WHERE document = ?", (number,))
    view.db.execute("DELETE FROM document WHERE id = ?", (number,))


def _add(view: View, document: IndexedDocument) -> None:
    number = _next_id(view, "document")
    values = (number, *document.record.columns())
    _insert(view, "document", f"{DOCUMENT_VALUES}, sum", (*values, row_sum(*values)))
    first = _next_id(view, "chunk")
    for chunk, (record, terms) in enumerate(document.chunks, start=first):
        values = (chunk, number, *record.columns())
        _insert(view, "chunk", f"{CHUNK_VALUES}, slot, sum", (*values, NO_SLOT, row_sum(*values)))
        view.db.execute(
            "INSERT INTO words (rowid, title, heading, text, beside, accented)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (chunk, terms.title, terms.heading, terms.text, terms.beside, terms.accented),
        )


def _next_id(view: View, table: str) -> int:
    return int(view.db.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()[0])


def _insert(view: View, table: str, columns: str, values: Sequence[object]) -> None:
    marks = ", ".join("?" * len(values))
    view.db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)


def _assign_slots(view: View, vectors: Vectors, dimension: int) -> None:
    """Give new keys a row at the end of the matrix; begin a new file when much is dead."""
    known = {key for (key,) in view.db.execute("SELECT key FROM slot")}
    live = {key for (key,) in view.db.execute("SELECT key FROM chunk")}  # faster than DISTINCT
    name = view.meta("matrix")
    wanted = live - known
    new: dict[bytes, NDArray[Any]] = {
        key: vector for k, vector in vectors.items() if (key := bytes.fromhex(k)) in wanted
    }
    if name is None or not known or len(known) > 2 * len(live) + _SPARE_SLOTS:
        kept = _kept_vectors(view, live & known, dimension) if known else {}
        view.db.execute("DELETE FROM slot")
        new = kept | new
        # A name of its own: who still reads the view of before must not take this for its matrix.
        name = f"matrix-{SCHEMA_VERSION}.{_token()}.f32"
        first = 0
    else:
        first = int(view.meta("slots") or 0)
    if new:
        matrix = np.stack(list(new.values())).astype(np.float32)
        _append(view, name, first, matrix)
        sums = map(slot_sum, new, range(first, first + len(new)), matrix)
        rows = zip(new, range(first, first + len(new)), sums, strict=True)
        view.db.executemany("INSERT INTO slot VALUES (?, ?, ?)", rows)
    _set_meta(view, "matrix", name)
    _set_meta(view, "slots", str(first + len(new)))
    moved = "1" if first == 0 else f"slot = {NO_SLOT}"
    view.db.execute(
        "UPDATE chunk SET slot = coalesce("
        f"(SELECT s.slot FROM slot s WHERE s.key = chunk.key), {NO_SLOT}) WHERE {moved}"
    )


def _kept_vectors(view: View, keys: set[bytes], dimension: int) -> dict[bytes, NDArray[Any]]:
    matrix = view.matrix(dimension)
    found = view.db.execute("SELECT key, slot, sum FROM slot")
    kept = {}
    for key, slot, stored in found:
        if key in keys:
            vector = matrix[slot].tobytes()
            proven("a vector", (key, slot, vector), stored)
            kept[key] = matrix[slot]
    return kept


def _append(view: View, name: str, first: int, vectors: NDArray[np.float32]) -> None:
    if view.folder is None:
        old = view.matrix_in_memory if first else None
        view.matrix_in_memory = vectors if old is None else np.concatenate([old[:first], vectors])
        return
    file = view.folder / name
    with file.open("r+b" if file.exists() else "wb") as stream:
        # What an interrupted writer left beyond the recorded rows is overwritten.
        stream.seek(first * vectors.shape[1] * 4)
        stream.write(np.ascontiguousarray(vectors).tobytes())


def _count(view: View) -> None:
    found = view.db.execute(
        "SELECT DISTINCT language FROM document WHERE language IS NOT NULL ORDER BY language"
    )
    _set_meta(view, "languages", json.dumps([language for (language,) in found]))
    n_with_words = view.db.execute("SELECT count(*) FROM words").fetchone()[0]
    _set_meta(view, "with_words", str(n_with_words))


def _set_meta(view: View, name: str, value: str | bytes) -> None:
    row = (name, value, row_sum(name, value))
    view.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)


def _remove_old_matrices(view: View) -> None:
    if view.folder is None:
        return
    current = view.meta("matrix")
    for file in view.folder.glob("matrix-*.f32"):
        if file.name != current:
            file.unlink(missing_ok=True)


def _token() -> str:
    return os.urandom(8).hex()
