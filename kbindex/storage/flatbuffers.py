"""A reader of FlatBuffers for Arrow's messages: tables, fields, vectors, strings. Pure.

An offset that points out of the buffer is a ValueError
(https://flatbuffers.dev/internals).
"""

from __future__ import annotations

import struct

_DEPTH = 8


class Table:
    """A table in a buffer. Fields are numbered in the schema's order."""

    def __init__(self, buffer: bytes, at: int, depth: int = 0) -> None:
        if depth > _DEPTH:
            raise ValueError("a message is nested too deeply")
        self._buffer, self._at, self._depth = buffer, at, depth
        self._vtable = at - self._read("<i", at)
        self._size = self._read("<H", self._vtable)

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        """Return the root table of a buffer."""
        (at,) = struct.unpack_from("<I", buffer) if len(buffer) >= 4 else (len(buffer),)
        return cls(buffer, at)

    def has(self, field: int) -> bool:
        return self._place(field) is not None

    @property
    def fields(self) -> set[int]:
        """The numbers of the present fields."""
        return {field for field in range((self._size - 4) // 2) if self.has(field)}

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number of the struct format ``form``."""
        at = self._place(field)
        return default if at is None else self._read(form, at)

    def table(self, field: int) -> Table:
        return Table(self._buffer, self._target(field), self._depth + 1)

    def text(self, field: int) -> bytes:
        at = self._target(field)
        size = self._read("<I", at)
        return self._slice(at + 4, size)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables, empty where it is absent."""
        if not self.has(field):
            return []
        at = self._target(field)
        count = self._read("<I", at)
        self._slice(at + 4, 4 * count)
        places = (at + 4 + 4 * index for index in range(count))
        return [Table(self._buffer, p + self._read("<I", p), self._depth + 1) for p in places]

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit numbers."""
        at = self._target(field)
        count = self._read("<I", at)
        return list(struct.iter_unpack("<qq", self._slice(at + 4, 16 * count)))

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return None
        offset = self._read("<H", self._vtable + slot)
        return self._at + offset if offset else None

    def _target(self, field: int) -> int:
        at = self._place(field)
        if at is None:
            raise ValueError("a message lacks a field")
        return at + self._read("<I", at)

    def _read(self, form: str, at: int) -> int:
        (number,) = struct.unpack(form, self._slice(at, struct.calcsize(form)))
        return int(number)

    def _slice(self, at: int, size: int) -> bytes:
        if at < 0 or at + size > len(self._buffer):
            raise ValueError("a message points out of itself")
        return self._buffer[at : at + size]
