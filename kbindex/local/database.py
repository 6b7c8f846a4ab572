"""A SQLite file that may be lost at any time: no error of SQLite stops the work.

A damaged file is replaced by an empty one. One that can't be written any more is replaced by a copy
in memory for the rest of the run. The meaning and the proof of rows are the caller's.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kbindex.local.files import remove
from kbindex.local.sqlite_errors import (
    SQLITE_ERRORS,
    SqliteError,
    describe,
    is_busy,
    is_damage,
    lacks_room,
)

_BUSY_SECONDS = 30

T = TypeVar("T")
Row = tuple[object, ...]
Prepare = Callable[[sqlite3.Connection], None]
Say = Callable[[str], None]


class LocalDatabase:
    """An open database. ``name`` names it in the sentences that ``say`` gets."""

    def __init__(self, file: Path, name: str, prepare: Prepare, say: Say) -> None:
        """Open or make ``file``; silently in memory where it may not be written.

        ``prepare`` makes the tables where there are none.
        """
        self._file, self._name, self._prepare, self._say = file, name, prepare, say
        self._was_replaced = self._is_in_memory = False
        self._db = _connected(":memory:")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # SQLite would open a file that can't be written and fail at the first write.
            is_writable = all(os.access(p, os.W_OK) for p in (file.parent, file) if p.exists())
            self._connect()
        except (OSError, *SQLITE_ERRORS) as error:
            self._go_to_memory(error)
            return
        if is_writable:
            self._do(prepare)
        else:
            self._go_to_memory(None)

    def close(self) -> None:
        self._db.close()

    def read(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Return all rows of a query."""
        return self._do(lambda db: db.execute(statement, values).fetchall())

    def write(self, *statements: tuple[str, Sequence[Row]]) -> None:
        """Execute statements, each for all of its rows, and commit.

        At once: an open transaction would keep other processes waiting.
        """

        def write(db: sqlite3.Connection) -> None:
            with transaction(db):
                for statement, rows in statements:
                    db.executemany(statement, rows)

        self._do(write)

    def say_damaged(self) -> None:
        """Report that the content of the database is damaged."""
        self._say(f"{self._name} was damaged; what is lost is read or computed again")

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            try:
                return action(self._db)
            except SQLITE_ERRORS as error:
                if self._is_in_memory:
                    raise
                self._recover(error)

    def _recover(self, error: SqliteError) -> None:
        """Go on with an empty file in place of a damaged one, once, and otherwise in memory."""
        if not is_damage(error) or self._was_replaced:
            self._go_to_memory(error)
            return
        self._was_replaced = True
        self.say_damaged()
        self._db.close()
        self._db = _connected(":memory:")
        try:
            remove(self._file)  # SQLite itself removes a journal beside an empty file
            self._connect()
        except (OSError, *SQLITE_ERRORS) as failure:
            self._go_to_memory(failure)
            return
        self._do(self._prepare)

    def _connect(self) -> None:
        if self._file.is_dir():
            remove(self._file)
        self._db = _connected(str(self._file))

    def _go_to_memory(self, error: SqliteError | OSError | None) -> None:
        """Go on with a copy in memory, of whatever can still be read."""
        if error is not None and lacks_room(error):
            self._say(
                f"{self._name} can't be written ({describe(error)}); this run goes on in memory"
            )
        before, self._db = self._db, _connected(":memory:")
        self._is_in_memory = True
        if error is None or not is_busy(error):  # the copy would wait for ever
            with suppress(*SQLITE_ERRORS):
                before.backup(self._db)
        before.close()
        try:
            self._prepare(self._db)
        except SQLITE_ERRORS:  # of what was taken along
            self._db = _connected(":memory:")
            self._prepare(self._db)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back itself when the disk is full
            db.execute("ROLLBACK")
        raise


def _connected(file: str) -> sqlite3.Connection:
    db = sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)
    db.text_factory = lambda content: content.decode("utf-8", "replace")
    return db
