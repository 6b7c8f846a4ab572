"""WAL files: rows as bytes of one Arrow IPC stream, named by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbindex.model import Row
from kbindex.storage.arrow_stream import read_stream
from kbindex.storage.columns import read_rows


def encode_wal(rows: Sequence[Row], vectors: NDArray[np.float16]) -> tuple[str, bytes]:
    """Return (file name, content). Equal rows give equal bytes; their order is made canonical."""
    import pyarrow as pa  # writers alone need it

    from kbindex.rows import to_arrow

    order = sorted(range(len(rows)), key=lambda i: rows[i].key)
    table = to_arrow([rows[i] for i in order], vectors[order])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    return f"{hashlib.sha256(content).hexdigest()[:32]}.arrow", content


def decode_wal(content: bytes) -> tuple[list[Row], NDArray[np.float16]]:
    """Return rows and vectors ``(n_rows, dim)``. Raises ValueError if it isn't a WAL file."""
    return read_rows(read_stream(content))


def is_wal_name(name: str, content: bytes) -> bool:
    """Whether a file's name is that of its content."""
    return name == f"{hashlib.sha256(content).hexdigest()[:32]}.arrow"
