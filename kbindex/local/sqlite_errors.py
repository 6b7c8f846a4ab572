"""Sorts SQLite's errors: damage of the file, a full disk, a missing permission, another process.

By SQLite's primary result codes, https://sqlite.org/rescode.html.
"""

from __future__ import annotations

import errno
import sqlite3

SqliteError = sqlite3.Error | UnicodeDecodeError
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of a statement; Python raises the second for a message that quotes damaged text."""

_PRIMARY = 0xFF
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_NO_LEAVE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_NO_ROOM_SAYS_THE_SYSTEM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def is_damage(error: Exception) -> bool:
    """Whether the file's content is damaged, as opposed to out of reach."""
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return False  # a bug of ours
    is_ours = isinstance(error, SQLITE_ERRORS)
    return is_ours and _code(error) not in _NO_ROOM | _NO_LEAVE | _HELD


def is_busy(error: Exception) -> bool:
    """Whether another process has kept the file locked for too long."""
    return isinstance(error, sqlite3.Error) and _code(error) in _HELD


def lacks_room(error: Exception) -> bool:
    """Whether the disk is full or fails; a missing permission doesn't count, it is intended."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM_SAYS_THE_SYSTEM
    return isinstance(error, sqlite3.Error) and _code(error) in _NO_ROOM


def describe(error: Exception) -> str:
    """Return the message of an error as one line, without content that Python quotes."""
    if isinstance(error, SQLITE_ERRORS) and not hasattr(error, "sqlite_errorcode"):
        return "a text is not UTF-8"
    return " ".join(str(error).split())[:100]


def _code(error: Exception) -> int:
    # An error without a code is Python's own, for text that is not UTF-8.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & _PRIMARY
