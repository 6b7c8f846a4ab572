"""The checksum of a row in cache or view. Pure.

Committed rows, those of table and WAL, have another checksum (``storage/columns``).
"""

from __future__ import annotations

import hashlib

ROW_SUM_BYTES = 8


def row_sum(*values: object) -> bytes:
    """Return the checksum of a row's values, texts, bytes, numbers and ``None``: 8 bytes."""
    parts = []
    for value in values:
        kind, part = _encoded(value)
        parts.append(b"%s%d:%s" % (kind, len(part), part))
    return hashlib.blake2b(b"".join(parts), digest_size=ROW_SUM_BYTES).digest()


def _encoded(value: object) -> tuple[bytes, bytes]:
    if isinstance(value, bytes):
        return b"b", value
    if isinstance(value, str):
        return b"s", value.encode("utf-8", "surrogatepass")
    return b"n", repr(value).encode()  # a number or None
