"""WAL files: rows as bytes of one Arrow IPC stream, named by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kbindex.model import Row
from kbindex.rows import from_arrow, to_arrow

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def encode_wal(rows: Sequence[Row], vectors: NDArray[np.float16]) -> tuple[str, bytes]:
    """Return (file name, content). Equal rows give equal bytes; their order is made canonical."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].key)
    table = to_arrow([rows[i] for i in order], vectors[order])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    return f"{hashlib.sha256(content).hexdigest()[:32]}.arrow", content


def decode_wal(content: bytes) -> tuple[list[Row], NDArray[np.float16]]:
    """Return rows and vectors ``(n_rows, dim)``. Raises ValueError if it isn't a WAL file."""
    if not content.endswith(_END_OF_STREAM):
        raise ValueError("is not a whole Arrow stream")
    try:
        with pa.ipc.open_stream(content) as reader:
            table = reader.read_all()
            table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"is not an Arrow stream ({str(error).splitlines()[0]})") from None
    return from_arrow(table)


def is_wal_name(name: str, content: bytes) -> bool:
    """Whether a file's name is that of its content."""
    return name == f"{hashlib.sha256(content).hexdigest()[:32]}.arrow"
