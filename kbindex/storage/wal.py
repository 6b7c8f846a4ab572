"""WAL files: rows as bytes of one Arrow IPC stream, named by their content.

git takes a file that goes and one that comes for a rename if half of the bytes are alike, and a
renamed file that the other side of a merge has dropped for a conflict. Small files are mostly
schema. So they are padded until they are themselves for the greater part; the padding is one
hash repeated, of which nothing is left when git packs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.storage.arrow_stream import read_stream
from kbindex.storage.columns import read_rows

if TYPE_CHECKING:
    import pyarrow as pa

_PADDING = "padding"
_SHARE = 2.3
"""Least ratio of a file's bytes to those that another may share: git's 2, and a margin."""
_OWN_OF_A_ROW = 48
"""Bytes of a row that no other row has: key and checksum."""
_LOST_OF_A_VECTOR = 200
"""Bytes of a vector that git does not find again beside other vectors; 300 on average.

It compares pieces of up to 64 bytes that begin behind a line feed (2.39, diffcore-delta.c).
"""


def encode_wal(
    rows: Sequence[Row], vectors: NDArray[np.float16], other_than: Container[str] = ()
) -> tuple[str, bytes]:
    """Return (file name, content) of rows, whose order is made canonical.

    Equal rows give equal bytes, but for the names of files to be ``other_than``.
    """
    from kbindex.storage.rows import to_arrow  # brings pyarrow, which writers alone need

    order = sorted(range(len(rows)), key=lambda i: rows[i].key)
    table = to_arrow([rows[i] for i in order], vectors[order])
    content = plain = _stream(table)
    n_missing = _n_own_bytes_missing(len(plain), vectors)
    if n_missing > 0:
        content = _padded(table, plain, n_missing)
    while (name := _name(content)) in other_than:
        content = _padded(table, content, max(n_missing, 1))
    return name, content


def _padded(table: pa.Table, before: bytes, n_bytes: int) -> bytes:
    # 65 characters: each piece of 64 that git hashes is another.
    digest = f"{hashlib.sha256(before).hexdigest()}."
    padding = digest * (n_bytes // len(digest) + 1)
    return _stream(table.replace_schema_metadata({_PADDING: padding}))


def _stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _n_own_bytes_missing(size: int, vectors: NDArray[np.float16]) -> int:
    """Return how many bytes of its own a file of ``size`` lacks to be taken for no other's rename.

    All but keys, checksums and what is not zero of the vectors may stand in another WAL file,
    and most of the vectors stands in the table's file once a checkpoint has moved them.
    """
    n_rows, dimension = vectors.shape
    alike = size - n_rows * _OWN_OF_A_ROW - np.count_nonzero(vectors.view(np.uint8))
    moved = n_rows * (2 * dimension - _LOST_OF_A_VECTOR)
    return int(_SHARE * max(alike, moved)) - size


def decode_wal(content: bytes) -> tuple[list[Row], NDArray[np.float16]]:
    """Return rows and vectors ``(n_rows, dim)``. Raises ValueError if it isn't a WAL file."""
    return read_rows(read_stream(content))


def is_wal_name(name: str, content: bytes) -> bool:
    """Whether a file's name is the hash of its content."""
    return name == _name(content)


def _name(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:32]}.arrow"
