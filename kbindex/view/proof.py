"""Proves that a view is what was written: its structure, words, checksums of rows and vectors.

Done when its files aren't those that were sealed: after a kill, a power cut, a restored backup,
or when something else has written to them. What it costs is paid once, not by every query.
"""

from __future__ import annotations

from kbindex.local.sqlite_errors import SQLITE_ERRORS, describe, is_damage
from kbindex.view.database import (
    CHUNK_VALUES,
    DOCUMENT_VALUES,
    NO_SLOT,
    DamagedView,
    View,
    proven,
    slot_sum,
)

_TABLES = ("meta", "document", "chunk", "slot", "words")
_COUNT = f"SELECT {' + '.join(f'(SELECT count(*) FROM {table})' for table in _TABLES)}"


def prove(view: View) -> None:
    """Raise DamagedView unless the view is what was written, or an empty one.

    Raises sqlite3.Error where that can't be found out: FTS5 checks itself only where it may write.
    """
    try:
        _prove_structure(view)
        if view.meta("revision") is None:
            return
        _prove_rows(view)
        _prove_words(view)
        _prove_slots(view)
    except SQLITE_ERRORS as error:
        if is_damage(error):
            raise DamagedView(describe(error)) from None
        raise
    except (TypeError, ValueError, OverflowError) as error:  # of values of another kind
        raise DamagedView(str(error)) from None


def _prove_structure(view: View) -> None:
    (found,) = view.db.execute("PRAGMA integrity_check(1)").fetchone()
    _require(found == "ok", found.removeprefix("*** in database main ***\n"))
    if view.meta("revision") is None:  # all that a view holds is written at once
        (n_rows,) = view.db.execute(_COUNT).fetchone()
        _require(n_rows == 0, "what it is of is missing")


def _prove_rows(view: View) -> None:
    for name, value, stored in view.db.execute("SELECT name, value, sum FROM meta"):
        proven("what is noted", (name, value), stored)
    for *values, stored in view.db.execute(f"SELECT {DOCUMENT_VALUES}, sum FROM document"):
        proven("a document", values, stored)
    for *values, stored in view.db.execute(f"SELECT {CHUNK_VALUES}, sum FROM chunk"):
        proven("a chunk", values, stored)
    for name, value in view.arrays_and_sum().items():
        _require(value == view.meta(name), "rows are missing, or of another time")


def _prove_words(view: View) -> None:
    view.db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    chunks = view.db.execute("SELECT id FROM chunk ORDER BY id").fetchall()
    words = view.db.execute("SELECT rowid FROM words ORDER BY rowid").fetchall()
    _require(chunks == words, "words are missing")


def _prove_slots(view: View) -> None:
    matrix = view.matrix(int(view.meta("dimension")))
    slots = {}
    for key, slot, stored in view.db.execute("SELECT key, slot, sum FROM slot"):
        _require(0 <= slot < len(matrix), "a vector is missing")
        _require(slot_sum(key, slot, matrix[slot]) == stored, "a vector's checksum does not hold")
        slots[key] = slot
    for key, slot in view.db.execute("SELECT key, slot FROM chunk"):
        _require(slots.get(key, NO_SLOT) == slot, "a chunk has another's vector")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DamagedView(otherwise)
