"""The view: the staged index as SQLite and a matrix; a query pays for neither Lance nor git.

Local, derived, and safe to delete at any time. It holds the live chunks with their lines, anchors
and words, and their vectors in a memory-mapped file. A document whose outline is stale is
chunked here as it is staged: its words can be found, its known passages keep their vectors, and
the coverage says what is missing. Nothing is ever embedded here.

This module reads, and ``words`` reads the text index; ``update`` writes, ``files`` opens and
discards. Each row has a checksum: ``proof`` proves all of them, a reader those that it shows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Coverage
from kbindex.git.paths import decode_path, encode_path
from kbindex.local.row_sums import row_sum
from kbindex.view.records import (
    DocumentRecord,
    Facets,
    Held,
    LocatedChunk,
    read_chunk,
    read_document,
)
from kbindex.view.words import WordIndex

T = TypeVar("T")

SCHEMA_VERSION = 4
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
"""``words`` holds terms (``analyzer``), a space between them: all that its tokenizer must see.

A checksum is that of its row's other values in order; of a chunk without the slot, which changes,
and of a slot with the vector in the matrix.
"""
DOCUMENT_VALUES = (
    "id, path, blob, outline, recipe, stale, title, type, status, tags, language, headings,"
    " problems"
)
"""The columns of a document that its checksum covers, in the order of ``DocumentRecord``."""
CHUNK_VALUES = (
    "id, document, ordinal, char_start, char_end, first_line, last_line, tokens, heading, anchor,"
    " key, text"
)
"""The columns of a chunk that its checksum covers, in the order of ``ChunkRecord``."""
ARRAYS = ("chunk_ids", "chunk_documents", "chunk_slots")
NO_SLOT = -1


class DamagedView(Exception):
    """The local view can't be what kbindex wrote: make another."""


class View:
    """An open view. Writers hold the repository's lock; readers need none."""

    def __init__(self, db: sqlite3.Connection, folder: Path | None) -> None:
        """``folder`` holds the matrix; without one everything is in memory."""
        self.db, self.folder = db, folder
        self.words = WordIndex(db)
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

    # Documents

    def held(self) -> dict[str, Held]:
        """Return what is held of every document, by its path."""
        found = self.db.execute("SELECT path, id, blob, outline, recipe FROM document")
        return {decode_path(path): Held(*values) for path, *values in found}

    def paths(self) -> list[str]:
        """Return the paths of all documents in order."""
        found = self.db.execute("SELECT path FROM document ORDER BY path")
        return [decode_path(path) for (path,) in found]

    def stale_paths(self) -> list[str]:
        """Return the paths of documents whose outline is not valid."""
        found = self.db.execute("SELECT path FROM document WHERE stale IS NOT NULL")
        return [decode_path(path) for (path,) in found]

    def facets(self) -> list[Facets]:
        """Return what filters see of every document."""
        found = self.db.execute("SELECT id, path, type, tags FROM document")
        return [
            Facets(number, decode_path(path), kind, tuple(json.loads(tags)))
            for number, path, kind, tags in found
        ]

    def document(self, path: str) -> DocumentRecord | None:
        """Return a document, ``None`` if there is none. Raises DamagedView."""
        found = self._row("document", DOCUMENT_VALUES, "path", encode_path(path))
        return None if found is None else _decoded(read_document, found[1:])

    def document_at(self, number: int) -> DocumentRecord:
        """Return the document with an id. Raises DamagedView, also if there is none."""
        found = self._row("document", DOCUMENT_VALUES, "id", number)
        if found is None:
            raise DamagedView("a document that is found is not there")
        return _decoded(read_document, found[1:])

    def document_id(self, path: str) -> int | None:
        """Return the id of a document, ``None`` if there is none."""
        found = self.db.execute("SELECT id FROM document WHERE path = ?", (encode_path(path),))
        row = found.fetchone()
        return None if row is None else int(row[0])

    def problems(self) -> list[tuple[str, str]]:
        """Return the problems of frontmatters, each behind the document's path."""
        found = self.db.execute("SELECT path, problems FROM document WHERE problems != ''")
        return [(decode_path(path), problems) for path, problems in found]

    def n_by_language(self) -> dict[str | None, int]:
        """Return the number of documents in each language, most first; ``None`` is unknown."""
        found = self.db.execute(
            "SELECT language, count(*) FROM document GROUP BY 1"
            " ORDER BY 2 DESC, coalesce(language, 'unknown')"
        )
        return dict(found.fetchall())

    def unreadable(self) -> list[str]:
        """Return the paths of documents that are not text, and so not in the view."""
        found: list[str] = json.loads(self.meta("unreadable") or "[]")
        return found

    # Chunks

    def chunk(self, chunk: int) -> LocatedChunk:
        """Return the chunk with an id. Raises DamagedView, also if there is none."""
        found = self._row("chunk", CHUNK_VALUES, "id", chunk)
        if found is None:
            raise DamagedView("a passage that is found is not there")
        _, document, *columns = found
        record = _decoded(read_chunk, columns)
        text = record.text
        if text is None:
            first = self.db.execute(
                "SELECT id FROM chunk WHERE document = ? AND ordinal = 0", (document,)
            ).fetchone()
            if first is None or first[0] == chunk:
                raise DamagedView("the text of a passage is not there")
            text = self.chunk(first[0]).text
        return LocatedChunk(record, self.document_at(document), text)

    def spans(self, path: str, *, with_vector: bool = False) -> list[tuple[int, int]]:
        """Return the (char_start, char_end) of a document's chunks in order, each once."""
        found = self.db.execute(
            "SELECT DISTINCT char_start, char_end FROM chunk"
            " WHERE document = (SELECT id FROM document WHERE path = ?) AND slot >= ?"
            " ORDER BY ordinal",
            (encode_path(path), 0 if with_vector else NO_SLOT),
        )
        return [(start, end) for start, end in found]

    def live_keys(self) -> set[str]:
        """Return the keys of all chunks."""
        found = self.db.execute("SELECT DISTINCT key FROM chunk")
        return {bytes(key).hex() for (key,) in found}

    def keys_without_vector(self) -> set[str]:
        """Return the keys of the chunks that only their words can find."""
        found = self.db.execute("SELECT DISTINCT key FROM chunk WHERE slot = ?", (NO_SLOT,))
        return {bytes(key).hex() for (key,) in found}

    def coverage(self) -> Coverage:
        """Return how many documents and chunks each half of the search can see."""
        chunks, _, slots = self.chunk_arrays()
        (n_documents,) = self.db.execute("SELECT count(*) FROM document").fetchone()
        n_with_words = int(self.meta("with_words") or 0)
        return Coverage(n_documents, len(chunks), n_with_words, int((slots >= 0).sum()))

    def _row(self, table: str, columns: str, name: str, value: object) -> tuple[Any, ...] | None:
        """Return the values of a row, proven. Raises DamagedView."""
        found = self.db.execute(f"SELECT {columns}, sum FROM {table} WHERE {name} = ?", (value,))
        row = found.fetchone()
        if row is None:
            return None
        *values, stored = row
        return tuple(proven(f"a {table}", values, stored))

    # Vectors

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

    def languages(self) -> frozenset[str]:
        """Return the languages that documents are known to be in."""
        return frozenset(json.loads(self.meta("languages") or "[]"))

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


def _decoded(read: Callable[[Sequence[Any]], T], columns: Sequence[Any]) -> T:
    try:
        return read(columns)
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedView(str(error)) from None
