"""The manifest of a table version: which data files hold its rows. Pure.

A manifest may name other folders and URLs (``base_paths``), deletions, indices and more; ours
names data files beside it and nothing else. What our own writer does not write is refused, and
LanceDB is given a manifest that is written anew from what was read (lance's protos/table.proto).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kbindex.core.model import MOST_DIMENSIONS
from kbindex.storage.protobuf import (
    Fields,
    Value,
    bytes_of,
    messages_of,
    number_of,
    read_fields,
    read_varints,
    require_known,
    write_fields,
    write_varints,
)

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
_MINUS_ONE = (1 << 64) - 1
_FILE_VERSION = (2, 2)
_DATA_FORMAT = (b"lance", b"2.2")
_DATA_FILE = re.compile(rb"[0-9a-f-]{16,80}\.lance")
_WRITER_VERSION = re.compile(rb"[0-9]{1,4}(\.[0-9]{1,4}){2}")
_VECTOR_TYPE = re.compile(rb"fixed_size_list:halffloat:([1-9][0-9]{0,4})")
_MOST_FRAGMENTS = 1 << 20
_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_APPEND, _BEGIN = 100, 102
"""Field numbers of a transaction's operations."""

# name, logical type, kind of encoding in version 1 (which is written still)
_PLAIN_COLUMNS = (
    (b"key", b"string", 2),
    (b"embedder", b"string", 2),
    (b"path", b"string", 2),
    (b"ordinal", b"int32", 1),
    (b"blob", b"string", 2),
    (b"char_start", b"int64", 1),
    (b"char_end", b"int64", 1),
    (b"heading", b"list", 1),
)
_FIELD_IDS = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
"""Ids of the fields with a column of their own; 7 is the list around a heading's texts."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A data file and its size in rows and bytes."""

    id: int
    file: str
    """Its name below ``data/``."""
    n_rows: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of one version of the table."""

    version: int
    dimension: int
    """Of the vectors."""
    fragments: tuple[Fragment, ...]
    timestamp: bytes
    writer: bytes
    """The version of lance that wrote it, as bytes of the file."""


def read_manifest(content: bytes) -> Manifest:
    """Parse a manifest file. Raises ValueError for anything that our writer never writes."""
    fields = read_fields(_message(content))
    require_known(fields, (1, 2, 3, 7, 11, 12, 13, 15, 21), "the manifest")
    dimension = read_schema(messages_of(fields, 1))
    data_format = read_fields(bytes_of(fields, 15))
    require_known(data_format, (1, 2), "the data format")
    if (bytes_of(data_format, 1), bytes_of(data_format, 2)) != _DATA_FORMAT:
        raise ValueError("its data files are of another format")
    fragments = tuple(map(_read_fragment, messages_of(fields, 2)))
    ids = {fragment.id for fragment in fragments}
    files = {fragment.file for fragment in fragments}
    if not len(ids) == len(files) == len(fragments) <= _MOST_FRAGMENTS:
        raise ValueError("two of its fragments are the same")
    return Manifest(
        version=number_of(fields, 3),
        dimension=dimension,
        fragments=fragments,
        timestamp=_timestamp(bytes_of(fields, 7)),
        writer=_writer(bytes_of(fields, 13)),
    )


def prove_transaction(message: bytes) -> None:
    """Raise ValueError unless a transaction is one that appends rows or begins a table of ours.

    Nothing here follows a transaction; other readers of the table do.
    """
    fields = read_fields(message)
    require_known(fields, (1, 2, _APPEND, _BEGIN), "the transaction")
    if not _UUID.fullmatch(bytes_of(fields, 2)):
        raise ValueError("the transaction has no name")
    operation = _APPEND if _APPEND in fields else _BEGIN
    about = read_fields(bytes_of(fields, operation))
    require_known(about, (1, 2), "the transaction's operation")
    if operation == _BEGIN:
        read_schema(messages_of(about, 2))
    for fragment in messages_of(about, 1):
        _read_fragment(fragment)


def inline_transaction(content: bytes) -> bytes | None:
    """Return the transaction that a manifest file begins with, ``None`` if there is none."""
    at, *_ = _FOOTER.unpack(content[-_FOOTER.size :])
    return content[_LENGTH.size : at] if at else None


def write_manifest(manifest: Manifest) -> bytes:
    """Return a manifest file with exactly these contents."""
    fields: list[tuple[int, Value]] = [(1, field) for field in _schema(manifest.dimension)]
    fields += [(2, _fragment(fragment)) for fragment in manifest.fragments]
    fields.append((3, manifest.version))
    fields.append((7, manifest.timestamp))
    fields.append((11, max((fragment.id for fragment in manifest.fragments), default=0)))
    fields.append((13, write_fields([(1, b"lance"), (2, manifest.writer)])))
    fields.append((15, write_fields(zip((1, 2), _DATA_FORMAT, strict=True))))
    message = write_fields(fields)
    return _LENGTH.pack(len(message)) + message + _FOOTER.pack(0, 0, 2, _MAGIC)


def read_schema(fields: Sequence[bytes]) -> int:
    """Return the dimension of a schema. Raises ValueError unless it is that of our rows."""
    vectors = [_VECTOR_TYPE.fullmatch(bytes_of(read_fields(field), 5)) for field in fields]
    found = [match for match in vectors if match]
    dimension = int(found[0][1]) if len(found) == 1 else 0
    if not 0 < dimension <= MOST_DIMENSIONS or list(fields) != _schema(dimension):
        raise ValueError("its columns are not those of a kbindex table")
    return dimension


def _schema(dimension: int) -> list[bytes]:
    vector = b"fixed_size_list:halffloat:%d" % dimension
    columns = [
        *((name, kind, encoding, _MINUS_ONE) for name, kind, encoding in _PLAIN_COLUMNS),
        (b"item", b"string", 2, len(_PLAIN_COLUMNS) - 1),
        (b"tokens", b"int32", 1, _MINUS_ONE),
        (b"vector", vector, 1, _MINUS_ONE),
        (b"sum", b"string", 2, _MINUS_ONE),
    ]
    fields = []
    for number, (name, kind, encoding, parent) in enumerate(columns):
        values: list[tuple[int, Value]] = [(2, name), (3, number), (4, parent), (5, kind)]
        values += [(6, 1 if name == b"item" else 0), (7, encoding)]
        fields.append(write_fields(pair for pair in values if pair[1] != 0))
    return fields


def _message(content: bytes) -> bytes:
    if len(content) < _FOOTER.size + _LENGTH.size:
        raise ValueError("the manifest is cut off")
    at, _, minor, magic = _FOOTER.unpack(content[-_FOOTER.size :])
    end = len(content) - _FOOTER.size
    if magic != _MAGIC or minor != 2 or at + _LENGTH.size > end:
        raise ValueError("the manifest is not one of Lance")
    (length,) = _LENGTH.unpack(content[at : at + _LENGTH.size])
    if at + _LENGTH.size + length != end:
        raise ValueError("the manifest is cut off")
    return content[at + _LENGTH.size : end]


def _read_fragment(message: bytes) -> Fragment:
    fields = read_fields(message)
    require_known(fields, (1, 2, 4), "a fragment")
    file = read_fields(bytes_of(fields, 2))
    require_known(file, (1, 2, 3, 4, 5, 6), "a data file's entry")
    name = bytes_of(file, 1)
    if not _DATA_FILE.fullmatch(name):
        raise ValueError("a data file's name is none that Lance gives")
    if read_varints(bytes_of(file, 2)) != _FIELD_IDS:
        raise ValueError("a data file has other columns")
    if read_varints(bytes_of(file, 3)) != list(range(len(_FIELD_IDS))):
        raise ValueError("a data file has its columns in another order")
    if (number_of(file, 4), number_of(file, 5)) != _FILE_VERSION:
        raise ValueError("a data file is of another format")
    return Fragment(
        id=number_of(fields, 1, 0),
        file=name.decode("ascii"),
        n_rows=number_of(fields, 4),
        n_bytes=number_of(file, 6),
    )


def _fragment(fragment: Fragment) -> bytes:
    file: list[tuple[int, Value]] = [
        (1, fragment.file.encode("ascii")),
        (2, write_varints(_FIELD_IDS)),
        (3, write_varints(range(len(_FIELD_IDS)))),
        (4, _FILE_VERSION[0]),
        (5, _FILE_VERSION[1]),
        (6, fragment.n_bytes),
    ]
    number: list[tuple[int, Value]] = [(1, fragment.id)] if fragment.id else []
    return write_fields([*number, (2, write_fields(file)), (4, fragment.n_rows)])


def _timestamp(message: bytes) -> bytes:
    fields: Fields = read_fields(message)
    require_known(fields, (1, 2), "the timestamp")
    return write_fields((n, number_of(fields, n)) for n in (1, 2) if n in fields)


def _writer(message: bytes) -> bytes:
    fields = read_fields(message)
    require_known(fields, (1, 2), "the writer's version")
    version = bytes_of(fields, 2)
    if bytes_of(fields, 1) != b"lance" or not _WRITER_VERSION.fullmatch(version):
        raise ValueError("the manifest was written by something else than Lance")
    return version
