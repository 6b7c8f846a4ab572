"""The files of a view: their names, and how they are opened, copied and discarded.

SQLite in WAL mode: readers go on while a writer works. Readers open the file read-only, for which
SQLite (3.40) neither folds the log into the file nor removes it when the last one closes: so that
the files change only under a writer's lock, and ``seal`` can tell by their times.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np

from kbindex.local.database import transaction
from kbindex.local.files import remove
from kbindex.view.database import SCHEMA, SCHEMA_VERSION, View

DATABASE = f"view-{SCHEMA_VERSION}.sqlite"
LOG = f"{DATABASE}-wal"
SEAL = f"seal-{SCHEMA_VERSION}.json"
_BUSY_SECONDS = 30
_PATTERNS = ("view-*.sqlite*", "matrix-*.f32", "seal-*.json")


def open_to_read(folder: Path) -> View:
    """Open the view in ``folder`` and hold its present state.

    Where no log can be made beside it, for want of room or leave, it is read without one. Raises
    sqlite3.Error.
    """
    try:
        return _held(folder, "mode=ro")
    except sqlite3.OperationalError:
        log = folder / LOG
        if log.exists() and log.stat().st_size:
            raise
        return _held(folder, "immutable=1")


def _held(folder: Path, how: str) -> View:
    uri = f"{(folder / DATABASE).absolute().as_uri()}?{how}"
    view = View(sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True), folder)
    try:
        view.db.execute("PRAGMA temp_store = MEMORY")
        view.hold()
        view.db.execute("SELECT 1 FROM meta").fetchone()
    except BaseException:
        view.close()
        raise
    return view


def open_to_write(folder: Path) -> View:
    """Open the view in ``folder``, making it; the lock is held. Raises sqlite3.Error, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (folder / f"{DATABASE}{ending}" for ending in ("-wal", "-shm", "-journal")):
        if file.is_dir():
            remove(file)  # SQLite could never open the view again
    db = sqlite3.connect(folder / DATABASE, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        if _version(db) != SCHEMA_VERSION:
            db.execute("PRAGMA journal_mode = WAL")
            _make_tables(db)
            _remove_other_versions(folder)
        _set_up(db)
    except BaseException:
        db.close()
        raise
    return View(db, folder)


def view_in_memory() -> View:
    """Return an empty view that leaves no file."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    _make_tables(db)
    _set_up(db)
    return View(db, None)


def copy_to_memory(view: View) -> View:
    """Return a view's copy that leaves no file. Raises what reading a damaged one raises."""
    copy = View(sqlite3.connect(":memory:", isolation_level=None), None)
    view.db.backup(copy.db)
    _set_up(copy.db)
    copy.matrix_in_memory = np.array(view.matrix(int(view.meta("dimension") or 0)))
    return copy


def fold_log(view: View) -> None:
    """Bring what is committed into the file, unless readers still need it as it was."""
    view.db.execute("PRAGMA busy_timeout = 0")
    view.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def discard_view(folder: Path) -> None:
    """Delete the files of the view in ``folder``; the lock is held. Raises OSError."""
    for pattern in _PATTERNS:
        for file in folder.glob(pattern):
            remove(file)


def _make_tables(db: sqlite3.Connection) -> None:
    with transaction(db):
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _set_up(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA synchronous = OFF")  # what a power cut loses is found out and made again
    db.execute("PRAGMA temp_store = MEMORY")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _remove_other_versions(folder: Path) -> None:
    for pattern in _PATTERNS:
        for file in folder.glob(pattern):
            if f"-{SCHEMA_VERSION}." not in file.name:
                with suppress(OSError):
                    remove(file)
