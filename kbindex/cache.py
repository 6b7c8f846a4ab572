"""The local embedding cache: what this clone has computed or seen. Never committed.

One SQLite file under git's common folder, shared by all work trees; safe to delete at any time.
Everything in it is named by content, so that nothing can go stale: vectors by key, the keys of
each committed source, the keys of each proven pair of document and outline, and the states
found fresh.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE vector (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE source (name TEXT PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE pair (
    document TEXT, outline TEXT, recipe TEXT, keys BLOB NOT NULL,
    PRIMARY KEY (document, outline, recipe)
);
CREATE TABLE fresh (state TEXT PRIMARY KEY);
"""
_KEY_BYTES = 16
_VARIABLES = 500
_KEPT = {"fresh": 256, "source": 256, "pair": 200_000}


class Cache:
    """An open cache. Raises nothing of its own: a damaged file is replaced by an empty one."""

    def __init__(self, folder: Path) -> None:
        """Open the cache in ``folder``, making it; in memory where the folder can't be written."""
        self._db = _open(folder / f"cache-{_SCHEMA_VERSION}.sqlite")

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.commit()
        self._db.close()

    def is_fresh(self, state: str) -> bool:
        return (
            self._db.execute("SELECT 1 FROM fresh WHERE state = ?", (state,)).fetchone() is not None
        )

    def add_fresh(self, state: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO fresh VALUES (?)", (state,))
        self._prune("fresh")

    def pairs(self, recipe: str) -> dict[tuple[str, str], bytes]:
        """Return the packed keys of every pair of document and outline proven under ``recipe``."""
        found = self._db.execute(
            "SELECT document, outline, keys FROM pair WHERE recipe = ?", (recipe,)
        )
        return {(document, outline): keys for document, outline, keys in found}

    def add_pairs(self, recipe: str, pairs: Mapping[tuple[str, str], Iterable[str]]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO pair VALUES (?, ?, ?, ?)",
            ((doc, outline, recipe, pack_keys(keys)) for (doc, outline), keys in pairs.items()),
        )
        self._prune("pair")

    def source_keys(self, name: str) -> bytes | None:
        """Return the packed keys of a committed source, ``None`` if it was never read here."""
        found = self._db.execute("SELECT keys FROM source WHERE name = ?", (name,)).fetchone()
        return found[0] if found else None

    def add_source(self, name: str, keys: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO source VALUES (?, ?)", (name, keys))
        self._prune("source")

    def vectors(self, keys: Iterable[str]) -> dict[str, NDArray[np.float16]]:
        """Return the float16 vector of every key that is known."""
        import numpy as np

        found = {}
        for batch in _batches([bytes.fromhex(key) for key in keys]):
            marks = ",".join("?" * len(batch))
            for key, vector in self._db.execute(
                f"SELECT key, vector FROM vector WHERE key IN ({marks})",
                batch,
            ):
                found[key.hex()] = np.frombuffer(vector, dtype="<f2")
        return found

    def add_vectors(self, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        """Keep vectors that were read, unless one of their key is known."""
        self._add_vectors("IGNORE", vectors)

    def replace_vectors(self, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        """Keep vectors that were computed just now, at once: interrupted work is not done again."""
        self._add_vectors("REPLACE", vectors)

    def _add_vectors(self, conflict: str, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        self._db.executemany(
            f"INSERT OR {conflict} INTO vector VALUES (?, ?)",
            ((bytes.fromhex(k), v.astype("<f2").tobytes()) for k, v in vectors.items()),
        )
        self._db.commit()

    def _prune(self, table: str) -> None:
        oldest = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT -1 OFFSET {_KEPT[table]}"
        self._db.execute(f"DELETE FROM {table} WHERE rowid IN ({oldest})")


def pack_keys(keys: Iterable[str]) -> bytes:
    """Return hex keys as 16 bytes each, side by side."""
    return bytes.fromhex("".join(keys))


def unpack_keys(packed: bytes) -> Iterator[str]:
    digits = packed.hex()
    width = 2 * _KEY_BYTES
    return (digits[at : at + width] for at in range(0, len(digits), width))


def _batches(items: list[bytes]) -> Iterator[list[bytes]]:
    for first in range(0, len(items), _VARIABLES):
        yield items[first : first + _VARIABLES]


def _open(file: Path) -> sqlite3.Connection:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # SQLite would open a file that can't be written and fail at the first write.
        if not all(os.access(p, os.W_OK) for p in (file.parent, file) if p.exists()):
            return _prepared(Path(":memory:"))
        return _prepared(file)
    except (OSError, sqlite3.OperationalError):
        return _prepared(Path(":memory:"))  # read-only: work without a memory
    except sqlite3.DatabaseError:
        file.unlink(missing_ok=True)
        return _prepared(file)


def _prepared(file: Path) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=30)
    db.execute("PRAGMA synchronous = OFF")  # a cache: losing it costs time, never truth
    if _version(db) != _SCHEMA_VERSION:
        db.execute("BEGIN IMMEDIATE")
        if _version(db) != _SCHEMA_VERSION:  # another process may have been faster
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        db.commit()
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
