"""Rows → Arrow, for the libraries that write table and WAL: one schema for both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kbindex.core.model import Row


def row_schema(dimension: int) -> pa.Schema:
    """Return the schema of table and WAL (bundle/reference/row-schema.md)."""
    return pa.schema(
        [
            pa.field("key", pa.string(), nullable=False),
            pa.field("embedder", pa.string(), nullable=False),
            pa.field("path", pa.string(), nullable=False),
            pa.field("ordinal", pa.int32(), nullable=False),
            pa.field("blob", pa.string(), nullable=False),
            pa.field("char_start", pa.int64(), nullable=False),
            pa.field("char_end", pa.int64(), nullable=False),
            pa.field("heading", pa.list_(pa.string()), nullable=False),
            pa.field("tokens", pa.int32(), nullable=False),
            pa.field("vector", pa.list_(pa.float16(), dimension), nullable=False),
            pa.field("sum", pa.string(), nullable=False),
        ]
    )


def to_arrow(rows: Sequence[Row], vectors: NDArray[np.float16]) -> pa.Table:
    """Return rows and their vectors ``(n_rows, dim)`` as an Arrow table."""
    schema = row_schema(vectors.shape[1])
    columns = {
        "key": [row.key for row in rows],
        "embedder": [row.embedder for row in rows],
        "path": [as_utf8(row.path) for row in rows],
        "ordinal": [row.ordinal for row in rows],
        "blob": [row.blob for row in rows],
        "char_start": [row.char_start for row in rows],
        "char_end": [row.char_end for row in rows],
        "heading": [list(row.heading) for row in rows],
        "tokens": [row.n_tokens for row in rows],
        "sum": [row.sum for row in rows],
    }
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), type=pa.float16())
    arrays = [
        pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        if field.name == "vector"
        else pa.array(columns[field.name], type=field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def as_utf8(path: str) -> str:
    """Return a path as a row holds it: bytes that are not UTF-8 as escapes."""
    # Arrow strings are UTF-8; a row's path is a note to readers, the outline is the address.
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
