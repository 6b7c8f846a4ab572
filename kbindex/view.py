"""The view: the staged index as SQLite and a matrix; a query pays for neither Lance nor git.

Local, derived, and safe to delete at any time. It holds the live chunks with their lines, anchors
and words, and their vectors in a memory-mapped file. A document whose outline is stale is
chunked here as it is staged: its words can be found, its known passages keep their vectors, and
the coverage says what is missing. Nothing is ever embedded here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.model import ViewDocument

_SCHEMA_VERSION = 2
"""Raise it, too, when languages or terms come out differently: views are not made anew for that."""
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value);
CREATE TABLE document (
    id INTEGER PRIMARY KEY, path BLOB UNIQUE, blob TEXT, outline TEXT, recipe TEXT, stale TEXT,
    title TEXT, type TEXT, status TEXT, tags TEXT, language TEXT, headings TEXT, problems TEXT
);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, document INTEGER, ordinal INTEGER, char_start INTEGER, char_end INTEGER,
    first_line INTEGER, last_line INTEGER, tokens INTEGER, heading TEXT, anchor TEXT,
    key BLOB, slot INTEGER, text TEXT
);
CREATE INDEX chunk_document ON chunk (document);
CREATE TABLE slot (key BLOB PRIMARY KEY, slot INTEGER) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (
    title, heading, text, beside, accented, tokenize = "ascii tokenchars '+#'"
)
"""
"""``words`` holds terms (``terms.py``), a space between them: all that its tokenizer must see."""
_NO_SLOT = -1
_SPARE_SLOTS = 2048
"""Dead vectors that may lie in the matrix beyond as many as there are live ones."""


class DamagedView(Exception):
    """The local view can't be what kbindex wrote: make another."""


class View:
    """An open view. Writers hold the repository's lock; readers need none."""

    def __init__(self, folder: Path, *, in_memory: bool = False) -> None:
        """Open the view in ``folder``, making it if it can be made there.

        Where it can't be written it ``is_fixed``: read as it is, or made anew ``in_memory``.
        """
        self._folder, self._in_memory = folder, in_memory
        file = folder / f"view-{_SCHEMA_VERSION}.sqlite"
        self.db, self.is_fixed = (_prepared(":memory:"), False) if in_memory else _open(file)
        self._matrix: NDArray[np.float32] | None = None

    def close(self) -> None:
        self.db.close()

    def hold(self) -> None:
        """Let everything that is read from now on be of one state, whatever a writer does."""
        self.db.execute("BEGIN")

    # Reading

    def meta(self, name: str) -> str | None:
        found = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return found[0] if found else None

    def documents(self) -> dict[bytes, tuple[int, str, str | None, str]]:
        """Return (id, blob, outline, recipe) of every document by its path."""
        found = self.db.execute("SELECT path, id, blob, outline, recipe FROM document")
        return {
            path: (number, blob, outline, recipe) for path, number, blob, outline, recipe in found
        }

    def chunk_arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return chunk ids, their documents' ids and their matrix rows (-1: no vector)."""
        names = ("chunk_ids", "chunk_documents", "chunk_slots")
        found = [
            self.db.execute("SELECT value FROM meta WHERE name = ?", (n,)).fetchone() for n in names
        ]
        ids, documents, slots = (np.frombuffer(f[0] if f else b"", np.int32) for f in found)
        return ids, documents, slots

    def matrix(self, dimension: int) -> NDArray[np.float32]:
        """Return the vectors ``(n_slots, dimension)``, memory-mapped. Raises DamagedView."""
        if self._matrix is not None:
            return self._matrix
        n_slots = int(self.meta("slots") or 0)
        if n_slots == 0:
            return np.zeros((0, dimension), np.float32)
        file = self._folder / str(self.meta("matrix"))
        try:
            return np.memmap(file, np.float32, "r", shape=(n_slots, dimension))
        except (OSError, ValueError) as error:
            raise DamagedView(str(error)) from None

    def passages(self, path: bytes, *, with_vector: bool = False) -> list[tuple[int, int]]:
        """Return the spans of a document's chunks in order, each once."""
        found = self.db.execute(
            "SELECT DISTINCT char_start, char_end FROM chunk"
            " WHERE document = (SELECT id FROM document WHERE path = ?) AND slot >= ?"
            " ORDER BY ordinal",
            (path, 0 if with_vector else _NO_SLOT),
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
        found = self.db.execute("SELECT DISTINCT key FROM chunk WHERE slot = ?", (_NO_SLOT,))
        return {bytes(key).hex() for (key,) in found}

    # Writing

    def replace(
        self,
        embedder: str,
        about: Mapping[str, str],
        gone: Iterable[int],
        documents: Iterable[ViewDocument],
        vectors: Mapping[str, NDArray[np.float16]],
        dimension: int,
    ) -> None:
        """Remove and add documents, and note what is ``about`` them, in one transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if self.meta("embedder") != embedder:
                self.db.execute("DELETE FROM slot")  # another's vectors, perhaps of another length
                self._set_meta("slots", "0")
            for number in gone:
                self._remove(number)
            for document in documents:
                self._add(document)
            self._assign_slots(vectors, dimension)
            self._pack_arrays()
            self._count()
            for name, value in {**about, "embedder": embedder}.items():
                self._set_meta(name, value)
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self._remove_old_matrices()

    def set_checksum(self, checksum: str) -> None:
        """Remember that git's index file with this checksum holds the view's state."""
        self._set_meta("checksum", checksum)
        self.db.commit()

    def _remove(self, number: int) -> None:
        self.db.execute(
            "DELETE FROM words WHERE rowid IN (SELECT id FROM chunk WHERE document = ?)", (number,)
        )
        self.db.execute("DELETE FROM chunk WHERE document = ?", (number,))
        self.db.execute("DELETE FROM document WHERE id = ?", (number,))

    def _add(self, document: ViewDocument) -> None:
        number = self.db.execute(
            f"INSERT INTO document VALUES (NULL, {_marks(document.columns)})", document.columns
        ).lastrowid
        for chunk in document.chunks:
            row = (number, *chunk.columns[:-1], _NO_SLOT, chunk.columns[-1])
            added = self.db.execute(f"INSERT INTO chunk VALUES (NULL, {_marks(row)})", row)
            self.db.execute(
                "INSERT INTO words (rowid, title, heading, text, beside, accented)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (added.lastrowid, *chunk.terms),
            )

    def _assign_slots(self, vectors: Mapping[str, NDArray[np.float16]], dimension: int) -> None:
        """Give new keys a row at the end of the matrix; begin a new file when much is dead."""
        known = {bytes(k) for (k,) in self.db.execute("SELECT key FROM slot")}
        live = {bytes(k) for (k,) in self.db.execute("SELECT DISTINCT key FROM chunk")}
        name = self.meta("matrix")
        wanted = live - known
        new: dict[bytes, NDArray[Any]] = {
            key: vector for k, vector in vectors.items() if (key := bytes.fromhex(k)) in wanted
        }
        if name is None or not known or len(known) > 2 * len(live) + _SPARE_SLOTS:
            kept = self._kept_vectors(live & known, dimension) if known else {}
            self.db.execute("DELETE FROM slot")
            new = kept | new
            generation = int(name.split(".")[1]) + 1 if name else 1
            name = f"matrix-{_SCHEMA_VERSION}.{generation}.f32"
            first = 0
        else:
            first = int(self.meta("slots") or 0)
        if new:
            self._append(name, first, np.stack(list(new.values())).astype(np.float32))
        self.db.executemany(
            "INSERT INTO slot VALUES (?, ?)", zip(new, range(first, first + len(new)), strict=True)
        )
        self._set_meta("matrix", name)
        self._set_meta("slots", str(first + len(new)))
        moved = "1" if first == 0 else f"slot = {_NO_SLOT}"
        self.db.execute(
            "UPDATE chunk SET slot = coalesce("
            f"(SELECT s.slot FROM slot s WHERE s.key = chunk.key), {_NO_SLOT}) WHERE {moved}"
        )

    def _kept_vectors(self, keys: set[bytes], dimension: int) -> dict[bytes, NDArray[Any]]:
        matrix = self.matrix(dimension)
        found = self.db.execute("SELECT key, slot FROM slot")
        return {bytes(key): matrix[slot] for key, slot in found if bytes(key) in keys}

    def _append(self, name: str, first: int, vectors: NDArray[np.float32]) -> None:
        if self._in_memory:
            old = self._matrix if self._matrix is not None and first else vectors[:0]
            self._matrix = np.concatenate([old, vectors])
            return
        file = self._folder / name
        with file.open("r+b" if file.exists() else "wb") as stream:
            # What an interrupted writer left beyond the recorded rows is overwritten.
            stream.seek(first * vectors.shape[1] * 4)
            stream.write(np.ascontiguousarray(vectors).tobytes())

    def _pack_arrays(self) -> None:
        # By path, so that ties between chunks don't depend on the view's history.
        found = self.db.execute(
            "SELECT c.id, c.document, c.slot FROM chunk c JOIN document d ON d.id = c.document"
            " ORDER BY d.path, c.ordinal"
        ).fetchall()
        columns = np.array(found, dtype=np.int32).reshape(len(found), 3).T
        for name, column in zip(
            ("chunk_ids", "chunk_documents", "chunk_slots"), columns, strict=True
        ):
            self._set_meta(name, column.tobytes())

    def _count(self) -> None:
        found = self.db.execute(
            "SELECT DISTINCT language FROM document WHERE language IS NOT NULL ORDER BY language"
        )
        self._set_meta("languages", json.dumps([language for (language,) in found]))
        n_with_words = self.db.execute("SELECT count(*) FROM words").fetchone()[0]
        self._set_meta("with_words", str(n_with_words))

    def _set_meta(self, name: str, value: str | bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _remove_old_matrices(self) -> None:
        if self._in_memory:
            return
        current = self.meta("matrix")
        for file in self._folder.glob("matrix-*.f32"):
            if file.name != current:
                file.unlink(missing_ok=True)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def discard_view(folder: Path) -> None:
    """Delete the files of the view in ``folder``."""
    for file in [*folder.glob("view-*.sqlite*"), *folder.glob("matrix-*.f32")]:
        file.unlink(missing_ok=True)


def _remove_other_versions(file: Path) -> None:
    """Delete the views that other versions of kbindex left beside ``file``."""
    if not file.exists():
        return  # in memory
    for other in [*file.parent.glob("view-*.sqlite*"), *file.parent.glob("matrix-*.f32")]:
        if f"-{_SCHEMA_VERSION}." not in other.name:
            other.unlink(missing_ok=True)


def _open(file: Path) -> tuple[sqlite3.Connection, bool]:
    """Return the database and whether it can only be read."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return _prepared(str(file)), False
    except (OSError, sqlite3.OperationalError):
        pass
    except sqlite3.DatabaseError as error:
        raise DamagedView(str(error)) from None
    try:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)
        if db.execute("PRAGMA user_version").fetchone()[0] == _SCHEMA_VERSION:
            return db, True
    except sqlite3.Error:
        pass
    return _prepared(":memory:"), True


def _prepared(file: str) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=30, isolation_level=None)
    if db.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:
        db.execute("PRAGMA journal_mode = WAL")  # readers go on while a writer works
        db.execute("BEGIN IMMEDIATE")
        if db.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            _remove_other_versions(Path(file))
            db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        db.execute("COMMIT")
    db.execute("PRAGMA synchronous = OFF")
    return db
