"""The embedding cache: vectors and proofs that this clone has computed or read. Never committed.

One SQLite file under git's common folder, shared by all work trees; safe to delete at any time.
Everything in it is named by content, so that nothing can go stale: vectors by key, the keys of
each committed source, the keys of each proven pair of document and outline, and the states
found fresh. Each row has a checksum of its name and content, which is proven whenever it is read;
a state is nothing but a name, and damaged it names nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kbindex.local.database import LocalDatabase, Say, transaction
from kbindex.local.files import remove
from kbindex.local.row_sums import row_sum
from kbindex.local.sqlite_errors import SQLITE_ERRORS, is_damage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vector (
    key BLOB PRIMARY KEY, vector BLOB NOT NULL, sum BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS source (name TEXT PRIMARY KEY, keys BLOB NOT NULL, sum BLOB);
CREATE TABLE IF NOT EXISTS pair (
    document TEXT, outline TEXT, recipe TEXT, keys BLOB NOT NULL, sum BLOB,
    PRIMARY KEY (document, outline, recipe)
);
CREATE TABLE IF NOT EXISTS fresh (state TEXT PRIMARY KEY);
"""
_FILE, _FILE_WITHOUT_SUMS = f"cache-{_SCHEMA_VERSION}.sqlite", "cache-1.sqlite"
_KEY_BYTES = 16
_VARIABLES = 500
_KEPT = {"fresh": 256, "source": 256, "pair": 200_000}


class Cache:
    """An open cache. It raises nothing of its own: a damaged or unwritable entry is a miss."""

    def __init__(self, folder: Path, say: Say = lambda _message: None) -> None:
        """Open the cache in ``folder``, making it; in memory where the folder can't be written.

        ``say`` gets a sentence for whatever was damaged or can't be stored.
        """
        prepare = partial(_prepare, folder=folder)
        self._sources: dict[str, bytes] = {}
        """Sources read or added by this run, which must not see fewer of them later."""
        self._db = LocalDatabase(folder / _FILE, "the local cache", prepare, say)

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def is_fresh(self, state: str) -> bool:
        return bool(self._db.read("SELECT 1 FROM fresh WHERE state = ?", (state,)))

    def add_fresh(self, state: str) -> None:
        self._db.write(("INSERT OR IGNORE INTO fresh VALUES (?)", [(state,)]), _pruning("fresh"))

    def pairs(self, recipe: str) -> dict[tuple[str, str], bytes]:
        """Return the packed keys of every pair of document and outline proven under ``recipe``."""
        found = self._db.read(
            "SELECT rowid, document, outline, recipe, keys, sum FROM pair WHERE recipe = ?",
            (recipe,),
        )
        sound = self._proven(found, "DELETE FROM pair WHERE rowid = ?")
        return {(document, outline): keys for document, outline, _, keys in sound}

    def add_pairs(self, recipe: str, pairs: Mapping[tuple[str, str], Iterable[str]]) -> None:
        rows = [
            _with_sum(document, outline, recipe, pack_keys(keys))
            for (document, outline), keys in pairs.items()
        ]
        insertion = "INSERT OR REPLACE INTO pair VALUES (?, ?, ?, ?, ?)"
        if rows:
            self._db.write((insertion, rows), _pruning("pair"))

    def source_keys(self, name: str) -> bytes | None:
        """Return the packed keys of a committed source, ``None`` if it was never read here."""
        if name not in self._sources:
            select = "SELECT rowid, name, keys, sum FROM source WHERE name = ?"
            found = self._db.read(select, (name,))
            sound = self._proven(found, "DELETE FROM source WHERE rowid = ?")
            self._sources |= dict(sound)
        return self._sources.get(name)

    def forget_sources(self) -> None:
        """Forget all committed sources, so that they are read again: some vectors were lost."""
        self._sources.clear()
        self._db.write(("DELETE FROM source", [()]))

    def add_source(self, name: str, keys: bytes) -> None:
        self._sources[name] = keys
        insertion = "INSERT OR REPLACE INTO source VALUES (?, ?, ?)"
        self._db.write((insertion, [_with_sum(name, keys)]), _pruning("source"))

    def vectors(self, keys: Iterable[str]) -> dict[str, NDArray[np.float16]]:
        """Return the float16 vector of every key that is known."""
        import numpy as np

        found: list[tuple[Any, ...]] = []
        for batch in _batches([bytes.fromhex(key) for key in keys]):
            marks = ",".join("?" * len(batch))
            found += self._db.read(
                f"SELECT key, key, vector, sum FROM vector WHERE key IN ({marks})", batch
            )
        sound = self._proven(found, "DELETE FROM vector WHERE key = ?")
        return {key.hex(): np.frombuffer(vector, dtype="<f2") for key, vector in sound}

    def add_vectors(self, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        """Store vectors that were read from a commit, except for keys with a sound vector."""
        known = self.vectors(vectors)
        self.replace_vectors({k: vector for k, vector in vectors.items() if k not in known})

    def replace_vectors(self, vectors: Mapping[str, NDArray[np.float16]]) -> None:
        """Store vectors that were just computed, at once, replacing those of equal keys."""
        rows = [_with_sum(bytes.fromhex(k), v.astype("<f2").tobytes()) for k, v in vectors.items()]
        if rows:
            self._db.write(("INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", rows))

    def _proven(self, found: Iterable[tuple[Any, ...]], drop: str) -> list[tuple[Any, ...]]:
        """Return the values of the rows (id, values, checksum) that are sound; drop the others."""
        sound, damaged = [], []
        for number, *values, stored in found:
            if row_sum(*values) == stored:
                sound.append(tuple(values))
            else:
                damaged.append((number,))
        if damaged:
            self._db.say_damaged()
            self._db.write((drop, damaged))
        return sound


def pack_keys(keys: Iterable[str]) -> bytes:
    """Return hex keys as 16 bytes each, side by side."""
    return bytes.fromhex("".join(keys))


def unpack_keys(packed: bytes) -> Iterator[str]:
    digits = packed.hex()
    width = 2 * _KEY_BYTES
    return (digits[at : at + width] for at in range(0, len(digits), width))


def _with_sum(*values: object) -> tuple[object, ...]:
    return (*values, row_sum(*values))


def _pruning(table: str) -> tuple[str, list[tuple[object, ...]]]:
    oldest = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT -1 OFFSET ?"
    return f"DELETE FROM {table} WHERE rowid IN ({oldest})", [(_KEPT[table],)]


def _batches(items: list[bytes]) -> Iterator[list[bytes]]:
    for first in range(0, len(items), _VARIABLES):
        yield items[first : first + _VARIABLES]


def _prepare(db: sqlite3.Connection, folder: Path) -> None:
    """Make the tables where there are none, with what the version before has in its own."""
    db.execute("PRAGMA synchronous = OFF")  # a cache: losing it costs time, never truth
    db.execute("PRAGMA temp_store = MEMORY")
    if _version(db) == _SCHEMA_VERSION:
        return
    with transaction(db):
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        try:
            rows = _without_sums(folder)
        except SQLITE_ERRORS:
            return  # in use: another run will take it over
        db.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", rows)
        db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    for file in folder.glob("cache-*.sqlite*"):
        if not file.name.startswith(_FILE):
            with suppress(OSError):
                remove(file)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _without_sums(folder: Path) -> list[tuple[object, ...]]:
    """Return the vectors that only the cache of the version before holds, with their checksums.

    It had none, so that damage in it can't be seen. What it had read from a commit is left there,
    where it can be proven; what it alone has would have to be computed again. Raises sqlite3.Error
    where it is out of reach; of a damaged one comes what can be read.
    """
    rows: list[tuple[object, ...]] = []
    if (folder / _FILE_WITHOUT_SUMS).is_file():
        old = sqlite3.connect(folder / _FILE_WITHOUT_SUMS)
        try:
            listed = old.execute("SELECT keys FROM source")
            committed = {key for (keys,) in listed for key in _cut(keys)}
            for key, vector in old.execute("SELECT key, vector FROM vector"):
                if key not in committed and _is_unit(vector):
                    rows.append(_with_sum(key, vector))
        except SQLITE_ERRORS as error:
            if not is_damage(error):
                raise
        finally:
            old.close()
    return rows


def _cut(keys: bytes) -> Iterator[bytes]:
    return (keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES))


def _is_unit(vector: object) -> bool:
    import numpy as np

    if not isinstance(vector, bytes) or len(vector) % 2:
        return False
    length = float(np.linalg.norm(np.frombuffer(vector, "<f2").astype(np.float32)))
    return abs(length - 1.0) < 0.01
