"""The reader of WAL files: Arrow IPC stream → columns. Pure.

Only what our own writer makes is read: its schema to the letter, record batches without
dictionaries and compression, and no more rows than there are bytes for (Arrow's Schema.fbs and
Message.fbs, format version 5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import MOST_DIMENSIONS
from kbindex.storage.columns import Columns
from kbindex.storage.flatbuffers import Table

_CONTINUES = 0xFFFFFFFF
_VERSION = 4
"""The metadata version of messages: V5, as the format counts from 0."""
_SCHEMA, _RECORD_BATCH = 1, 3
_INT, _FLOAT, _UTF8, _LIST, _FIXED_LIST = 2, 3, 5, 12, 16

_COLUMNS = (
    ("key", "text"),
    ("embedder", "text"),
    ("path", "text"),
    ("ordinal", "int32"),
    ("blob", "text"),
    ("char_start", "int64"),
    ("char_end", "int64"),
    ("heading", "texts"),
    ("tokens", "int32"),
    ("vector", "vector"),
    ("sum", "text"),
)


def read_stream(content: bytes) -> list[Columns]:
    """Return the columns of each record batch. Raises ValueError for what kbindex never writes."""
    messages = _messages(content)
    kind, schema, _ = next(messages, (0, None, b""))
    if kind != _SCHEMA or schema is None:
        raise ValueError("is not an Arrow stream")
    dimension = _read_schema(schema)
    batches = []
    for kind, header, body in messages:
        if kind != _RECORD_BATCH:
            raise ValueError("holds a message that is no record batch")
        batches.append(_Batch(header, body, dimension).columns())
    return batches


def _messages(content: bytes) -> Iterator[tuple[int, Table, bytes]]:
    """Yield kind, header and body of each message up to the mark of the end."""
    at = 0
    while True:
        mark, size = struct.unpack("<II", _part(content, at, 8))
        at += 8
        if mark != _CONTINUES:
            raise ValueError("is not an Arrow stream")
        if size == 0:
            break
        message = Table.root(_part(content, at, size))
        if message.number(0, "<h") != _VERSION or message.has(4):
            raise ValueError("holds a message of another version")
        n_bytes = message.number(3, "<q")
        yield message.number(1, "<B"), message.table(2), _part(content, at + size, n_bytes)
        at += size + n_bytes
    if at != len(content):
        raise ValueError("goes on behind its end")


def _part(content: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(content):
        raise ValueError("is not a whole Arrow stream")
    return content[at : at + size]


# Schema


def _read_schema(schema: Table) -> int:
    """Return the dimension of the vectors. Raises ValueError unless the schema is ours."""
    fields = schema.tables(1)
    names = [field.text(0).decode("utf-8", "replace") for field in fields]
    if names != [name for name, _ in _COLUMNS]:
        raise ValueError(f"has the columns {', '.join(names)[:200]}")
    # What stands beside the schema says nothing: wal.py pads small files there.
    if schema.number(0, "<h") != 0 or schema.has(3):
        raise ValueError("has a schema that kbindex does not write")
    dimension = 0
    for (name, kind), field in zip(_COLUMNS, fields, strict=True):
        if kind == "vector":
            dimension = field.table(3).number(0, "<i") if field.has(3) else 0
        if field.fields & {4, 6} or field.number(1, "<B") or not _is_of_kind(field, kind):
            raise ValueError(f"has a column '{name}' of another type")
    if not 0 < dimension <= MOST_DIMENSIONS:
        raise ValueError(f"has vectors of {dimension} components")
    return dimension


def _is_of_kind(field: Table, kind: str) -> bool:
    type_id, children = field.number(2, "<B"), field.tables(5)
    if kind == "text":
        return type_id == _UTF8 and not children
    if kind in ("int32", "int64"):
        about = field.table(3)
        is_signed = about.number(0, "<i") == int(kind[3:]) and about.number(1, "<B") == 1
        return type_id == _INT and is_signed and not children
    if len(children) != 1 or children[0].fields & {4, 6} or children[0].tables(5):
        return False
    child = children[0].number(2, "<B")
    if kind == "texts":
        return type_id == _LIST and child == _UTF8
    is_half = child == _FLOAT and children[0].table(3).number(0, "<h") == 0
    return type_id == _FIXED_LIST and is_half


# Batches


class _Batch:
    """One record batch; its buffers are taken in the order of the columns."""

    def __init__(self, header: Table, body: bytes, dimension: int) -> None:
        if header.fields - {0, 1, 2}:
            raise ValueError("is compressed, which kbindex never does")
        self._n_rows = header.number(0, "<q")
        self._body, self._dimension = body, dimension
        self._nodes = iter(header.pairs(1))
        self._buffers = iter(header.pairs(2))
        if not 0 <= self._n_rows * dimension * 2 <= len(body):
            raise ValueError("claims more rows than it has room for")

    def columns(self) -> Columns:
        read = {
            "text": lambda: self._texts(self._n_rows),
            "int32": lambda: self._numbers("<i4"),
            "int64": lambda: self._numbers("<i8"),
            "texts": self._lists,
            "vector": self._vectors,
        }
        columns = {name: read[kind]() for name, kind in _COLUMNS}
        if next(self._nodes, None) is not None or next(self._buffers, None) is not None:
            raise ValueError("has more buffers than columns")
        return Columns(**columns)  # type: ignore[arg-type]

    def _texts(self, n_values: int) -> list[str]:
        self._node(n_values)
        places = self._offsets(n_values)
        data = self._buffer()
        if places[-1] > len(data):
            raise ValueError("has texts that end behind their data")
        return [data[start:end].decode("utf-8") for start, end in pairwise(places)]

    def _lists(self) -> list[tuple[str, ...]]:
        self._node(self._n_rows)
        places = self._offsets(self._n_rows)
        texts = self._texts(places[-1])
        return [tuple(texts[start:end]) for start, end in pairwise(places)]

    def _numbers(self, form: str) -> list[int]:
        self._node(self._n_rows)
        found: list[int] = self._array(form, self._n_rows).tolist()
        return found

    def _vectors(self) -> NDArray[np.float16]:
        self._node(self._n_rows)
        self._node(self._n_rows * self._dimension)
        flat = self._array("<f2", self._n_rows * self._dimension)
        return flat.reshape(self._n_rows, self._dimension)

    def _offsets(self, n_values: int) -> Sequence[int]:
        """Return where each value begins, and where the last ends."""
        if n_values == 0:  # Arrow may leave the one offset out
            self._buffer()
            return [0]
        places = self._array("<i4", n_values + 1)
        if places[0] < 0 or bool((places[1:] < places[:-1]).any()):
            raise ValueError("has values that end before they begin")
        found: list[int] = places.tolist()
        return found

    def _node(self, n_values: int) -> None:
        """Take a column's node and its validity, which must say that nothing is null."""
        if next(self._nodes, None) != (n_values, 0):
            raise ValueError("has a column with nulls, or of another length")
        self._buffer()

    def _array(self, form: str, n_values: int) -> NDArray[Any]:
        content = self._buffer()
        if len(content) < n_values * np.dtype(form).itemsize:
            raise ValueError("has a column that is cut off")
        return np.frombuffer(content, form, n_values)

    def _buffer(self) -> bytes:
        at, size = next(self._buffers, (0, -1))
        if at < 0:
            raise ValueError("has a column before its beginning")
        return _part(self._body, at, size)
