"""The wire format of protocol buffers ↔ fields by number, as far as Lance uses it. Pure.

https://protobuf.dev/programming-guides/encoding: only varints and length-delimited fields are
accepted, each number in its shortest form, so that what was read can be written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = int | bytes
Fields = dict[int, list[Value]]

T = TypeVar("T", int, bytes)

_VARINT, _BYTES = 0, 2
_LONGEST_VARINT = 10


def read_fields(message: bytes) -> Fields:
    """Return the values of each field in their order. Raises ValueError for anything malformed."""
    fields: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in (_VARINT, _BYTES):
            raise ValueError("a message holds a field of an unknown kind")
        value: Value
        value, at = _read_varint(message, at)
        if kind == _BYTES:
            end = at + value
            if end > len(message):
                raise ValueError("a message ends in the middle of a field")
            value, at = message[at:end], end
        fields.setdefault(number, []).append(value)
    return fields


def write_fields(fields: Iterable[tuple[int, Value]]) -> bytes:
    """Return a message with these fields in this order."""
    message = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            message += _varint(number << 3 | _VARINT) + _varint(value)
        else:
            message += _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    return bytes(message)


def read_varints(packed: bytes) -> list[int]:
    """Return the numbers of a packed repeated field. Raises ValueError."""
    found = []
    at = 0
    while at < len(packed):
        number, at = _read_varint(packed, at)
        found.append(number)
    return found


def write_varints(numbers: Iterable[int]) -> bytes:
    """Return numbers as a packed repeated field."""
    return b"".join(map(_varint, numbers))


def number_of(fields: Mapping[int, list[Value]], field: int, default: int | None = None) -> int:
    """Return a field that is one number. Raises ValueError if it is missing, twice or bytes."""
    return _one(fields, field, int, default)


def bytes_of(fields: Mapping[int, list[Value]], field: int, default: bytes | None = None) -> bytes:
    """Return a field that is one run of bytes. Raises ValueError otherwise."""
    return _one(fields, field, bytes, default)


def messages_of(fields: Mapping[int, list[Value]], field: int) -> list[bytes]:
    """Return a repeated field of messages. Raises ValueError if one of them is a number."""
    found = [value for value in fields.get(field, ()) if isinstance(value, bytes)]
    if len(found) != len(fields.get(field, ())):
        raise ValueError(f"field {field} is no message")
    return found


def require_known(fields: Mapping[int, object], known: Iterable[int], what: str) -> None:
    """Raise ValueError if there is a field that our own writer never writes."""
    unknown = fields.keys() - set(known)
    if unknown:
        raise ValueError(f"{what} has a field that kbindex does not write ({min(unknown)})")


def _one(fields: Mapping[int, list[Value]], field: int, kind: type[T], default: T | None) -> T:
    found = fields.get(field, ())
    if not found and default is not None:
        return default
    if len(found) != 1 or not isinstance(found[0], kind):
        raise ValueError(f"field {field} is missing or of another type")
    return found[0]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for count in range(_LONGEST_VARINT):
        if at >= len(data):
            raise ValueError("a message ends in the middle of a number")
        byte = data[at]
        at += 1
        number |= (byte & 127) << (7 * count)
        if byte < 128:
            if byte == 0 and count:
                raise ValueError("a number is not in its shortest form")
            return number, at
    raise ValueError("a number is longer than 64 bits")


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
