"""The view: the staged index as SQLite and a matrix; a query pays for neither Lance nor git.

Local, derived, and safe to delete at any time. It holds the live chunks with their lines, anchors
and words, and their vectors in a memory-mapped file. A document whose outline is stale is
chunked here as it is staged: its words can be found, its known passages keep their vectors, and
the coverage says what is missing. Nothing is ever embedded here.

Here is what can be read. Each row has a checksum, which ``proof`` proves of all of them and a
reader of those that are shown; ``view_update`` writes, ``view_files`` opens and discards.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.local.row_sums import row_sum

SCHEMA_VERSION = 3
"""Raise it, too, when languages or terms come out differently: views are not made anew for that."""
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value, sum BLOB);
CREATE TABLE document (
    id INTEGER PRIMARY KEY, path BLOB UNIQUE, blob TEXT, outline TEXT, recipe TEXT, stale TEXT,
    title TEXT, type TEXT, status TEXT, tags TEXT, language TEXT, headings TEXT, problems TEXT,
    sum BLOB
);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, document INTEGER, ordinal INTEGER, char_start INTEGER, char_end INTEGER,
    first_line INTEGER, last_line INTEGER, tokens INTEGER, heading TEXT, anchor TEXT,
    key BLOB, slot INTEGER, sum BLOB, text TEXT
);
CREATE INDEX chunk_document ON chunk (document);
CREATE TABLE slot (key BLOB PRIMARY KEY, slot INTEGER, sum BLOB) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
    title, heading, text, beside, accented, tokenize = "ascii tokenchars '+#'"
)
"""
"""``words`` holds terms (``terms.py``), a space between them: all that its tokenizer must see.

A checksum is that of its row's other values in order; of a chunk without the slot, which changes,
and of a slot with the vector in the matrix.
"""
CHUNK_VALUES = (
    "id, document, ordinal, char_start, char_end, first_line, last_line, tokens, heading, anchor,"
    " key, text"
)
"""What a chunk's checksum is of."""
CHUNK_TEXT = (
    "coalesce(c.text, (SELECT f.text FROM chunk f WHERE f.document = c.document AND f.ordinal = 0))"
)
"""The text of the chunk ``c``: that of metadata in several pieces stands with the first alone."""
ARRAYS = ("chunk_ids", "chunk_documents", "chunk_slots")
NO_SLOT = -1


class DamagedView(Exception):
    """The local view can't be what kbindex wrote: make another."""


class View:
    """An open view. Writers hold the repository's lock; readers need none."""

    def __init__(self, db: sqlite3.Connection, folder: Path | None) -> None:
        """``folder`` holds the matrix; without one everything is in memory."""
        self.db, self.folder = db, folder
        self.matrix_in_memory: NDArray[np.float32] | None = None

    def close(self) -> None:
        self.db.close()

    def hold(self) -> None:
        """Let everything that is read from now on be of one state, whatever a writer does."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN")

    def meta(self, name: str) -> Any:
        """Return what is noted under a name, text or bytes. Raises DamagedView."""
        found = self.db.execute("SELECT value, sum FROM meta WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None
        return proven(f"'{name}'", (name, found[0]), found[1])[1]

    def documents(self) -> dict[bytes, tuple[int, str, str | None, str]]:
        """Return (id, blob, outline, recipe) of every document by its path."""
        found = self.db.execute("SELECT path, id, blob, outline, recipe FROM document")
        return {
            path: (number, blob, outline, recipe) for path, number, blob, outline, recipe in found
        }

    def document(self, path: bytes) -> sqlite3.Row | None:
        """Return a document's row, ``None`` if there is none. Raises DamagedView."""
        return self._row("document", "*", "path", path)

    def passage(self, chunk: int) -> tuple[sqlite3.Row, sqlite3.Row, str]:
        """Return the rows of a chunk and its document, and the chunk's text. Raises DamagedView."""
        found = self._row("chunk", f"{CHUNK_VALUES}, sum", "id", chunk)
        document = found and self._row("document", "*", "id", found["document"])
        if found is None or document is None:
            raise DamagedView("a passage that is found is not there")
        text = found["text"]
        if text is None:
            first = self.db.execute(
                "SELECT id FROM chunk WHERE document = ? AND ordinal = 0", (document["id"],)
            ).fetchone()
            text = self.passage(first[0])[2]
        return found, document, text

    def _row(self, table: str, columns: str, name: str, value: object) -> sqlite3.Row | None:
        cursor = self.db.execute(f"SELECT {columns} FROM {table} WHERE {name} = ?", (value,))
        cursor.row_factory = sqlite3.Row
        row: sqlite3.Row | None = cursor.fetchone()
        if row is not None:
            values = [row[key] for key in row.keys() if key != "sum"]  # noqa: SIM118 - no mapping
            proven(f"a {table}", values, row["sum"])
        return row

    def chunk_arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return chunk ids, their documents' ids and their matrix rows (-1: no vector)."""
        ids, documents, slots = (np.frombuffer(self.meta(n) or b"", np.int32) for n in ARRAYS)
        return ids, documents, slots

    def matrix(self, dimension: int) -> NDArray[np.float32]:
        """Return the vectors ``(n_slots, dimension)``, memory-mapped. Raises DamagedView."""
        n_slots = int(self.meta("slots") or 0)
        if n_slots == 0:
            return np.zeros((0, dimension), np.float32)
        if self.matrix_in_memory is not None:
            return self.matrix_in_memory
        assert self.folder is not None
        try:
            file = self.folder / self.meta("matrix")
            return np.memmap(file, np.float32, "r", shape=(n_slots, dimension))
        except (OSError, ValueError) as error:
            raise DamagedView(str(error)) from None

    def passages(self, path: bytes, *, with_vector: bool = False) -> list[tuple[int, int]]:
        """Return the spans of a document's chunks in order, each once."""
        found = self.db.execute(
            "SELECT DISTINCT char_start, char_end FROM chunk"
            " WHERE document = (SELECT id FROM document WHERE path = ?) AND slot >= ?"
            " ORDER BY ordinal",
            (path, 0 if with_vector else NO_SLOT),
        )
        return [(start, end) for start, end in found]

    def languages(self) -> frozenset[str]:
        """Return the languages that documents are known to be in."""
        return frozenset(json.loads(self.meta("languages") or "[]"))

    def n_with_words(self) -> int:
        """Return how many chunks the lexical half can find."""
        return int(self.meta("with_words") or 0)

    def keys_without_vector(self) -> set[str]:
        """Return the keys of the chunks that only their words can find."""
        found = self.db.execute("SELECT DISTINCT key FROM chunk WHERE slot = ?", (NO_SLOT,))
        return {bytes(key).hex() for (key,) in found}

    def arrays_and_sum(self) -> dict[str, bytes]:
        """Return ``chunk_arrays`` as they follow from the rows, and the checksum of all rows.

        By path, so that ties between chunks don't depend on the view's history.
        """
        found = self.db.execute(
            "SELECT c.id, c.document, c.slot, c.sum FROM chunk c"
            " JOIN document d ON d.id = c.document ORDER BY d.path, c.ordinal"
        ).fetchall()
        numbers = np.array([row[:3] for row in found], dtype=np.int32).reshape(len(found), 3)
        packed = {n: column.tobytes() for n, column in zip(ARRAYS, numbers.T, strict=True)}
        sums = [row[3] for row in found]
        sums += [s for (s,) in self.db.execute("SELECT sum FROM document ORDER BY path")]
        return packed | {"rows": row_sum(b"".join(sums))}


def proven(name: str, values: Any, stored: object) -> Any:
    """Return the values of a row whose checksum holds. Raises DamagedView."""
    if row_sum(*values) != stored:
        raise DamagedView(f"the checksum of {name} does not hold")
    return values


def slot_sum(key: bytes, slot: int, vector: NDArray[np.float32]) -> bytes:
    """Return the checksum of a key's row in the matrix."""
    return row_sum(key, slot, vector.astype("<f4").tobytes())
