"""The LanceDB table: create, append, read. The only module that imports lancedb (1–2 s).

A checkpoint only ever appends; nothing here compacts or deletes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbindex.layout import TABLE
from kbindex.model import Row
from kbindex.rows import from_arrow, to_arrow

_NAME = TABLE.removesuffix(".lance")

T = TypeVar("T")


def append_rows(folder: Path, rows: Sequence[Row], vectors: NDArray[np.float16]) -> None:
    """Add rows as one new version to the table in ``folder``, creating it if it isn't there.

    Raises ValueError if the table that is there can't be read.
    """
    database = _connect(folder)
    arrow = to_arrow(rows, vectors)
    if (folder / TABLE).exists():
        _guard(lambda: database.open_table(_NAME).add(arrow))
    else:
        database.create_table(_NAME, arrow)


def read_rows(folder: Path) -> tuple[list[Row], NDArray[np.float16]]:
    """Return every row and the vectors ``(n_rows, dim)``. Raises ValueError if it can't be read."""
    arrow = _guard(lambda: _connect(folder).open_table(_NAME).to_arrow())
    return from_arrow(arrow)


def _connect(folder: Path) -> Any:
    os.environ.setdefault("LANCE_LOG", "error")
    import lancedb

    return lancedb.connect(folder)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep the native code's own words about a panic from the user; the exception has them."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _guard(action: Callable[[], T]) -> T:
    """Turn whatever a damaged table does to the native code, panics included, into ValueError."""
    try:
        with _silent_stderr():
            return action()
    except BaseException as error:
        # pyo3's PanicException derives from BaseException and can't be imported to be named.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ValueError(f"LanceDB can't read it ({reason[0][:200]})") from None
        raise
