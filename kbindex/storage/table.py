"""The LanceDB table: create and append. The only module that imports lancedb (1–2 s).

A checkpoint only ever appends; nothing here compacts or deletes. LanceDB opens no file that comes
from a repository: it appends to a manifest that was read here and written anew, and what it wrote
is read back before it is committed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import KbindexError
from kbindex.core.model import Row
from kbindex.core.paths import TABLE
from kbindex.local.scratch import scratch_folder
from kbindex.storage.columns import read_rows
from kbindex.storage.datafile import read_data_file
from kbindex.storage.manifest import Manifest, write_manifest
from kbindex.storage.rows import as_utf8, to_arrow
from kbindex.storage.table_files import latest_manifest, manifest_name

_NAME = TABLE.removesuffix(".lance")

T = TypeVar("T")


class UnreadTableError(Exception):
    """LanceDB wrote an encoding that our reader doesn't know, or other rows than it was given."""


def append_rows(
    rows: Sequence[Row],
    vectors: NDArray[np.float16],
    before: Manifest | None,
    local: Path | None = None,
) -> dict[str, bytes]:
    """Add rows as one new version behind ``before``, or begin a table.

    Returns the files that are new, by their name below the table's folder; they are written in
    ``local`` first. Raises KbindexError if LanceDB can't write, UnreadTableError if what it wrote
    can't be read back.
    """
    with scratch_folder(local) as folder:
        table = folder / TABLE
        if before is not None:
            manifest = table / manifest_name(before.version)
            manifest.parent.mkdir(parents=True)
            (table / "data").mkdir()
            manifest.write_bytes(write_manifest(before))
        _add(folder, to_arrow(rows, vectors), begins=before is None)
        files = {
            file.relative_to(table).as_posix(): file.read_bytes()
            for file in table.rglob("*")
            if file.is_file()
        }
    if before is not None:
        del files[manifest_name(before.version)]
    _prove(files, rows, vectors, before)
    return dict(sorted(files.items()))


def _add(folder: Path, arrow: Any, *, begins: bool) -> None:
    database = _connect(folder)
    if begins:
        _guard(lambda: database.create_table(_NAME, arrow))
    else:
        _guard(lambda: database.open_table(_NAME).add(arrow))


def _prove(
    files: Mapping[str, bytes],
    rows: Sequence[Row],
    vectors: NDArray[np.float16],
    before: Manifest | None,
) -> None:
    """Read the written files back. Raises UnreadTableError if our reader doesn't get the rows."""
    old = () if before is None else before.fragments
    try:
        _, after = latest_manifest(files, files.__getitem__)
        parts = [
            read_data_file(files[f"data/{fragment.file}"], fragment.n_rows, after.dimension)
            for fragment in after.fragments[len(old) :]
        ]
        found, written = read_rows(parts)
    except (ValueError, KeyError) as error:
        raise UnreadTableError(str(error)) from None
    expected = [replace(row, path=as_utf8(row.path)) for row in rows]
    if (after.fragments[: len(old)], found) != (old, expected):
        raise UnreadTableError("other rows came back")
    if written.tobytes() != vectors.tobytes():
        raise UnreadTableError("other vectors came back")


def _connect(folder: Path) -> Any:
    os.environ.setdefault("LANCE_LOG", "error")
    import lancedb

    return lancedb.connect(folder)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence native code on stderr; the exception repeats what it says of a panic."""
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
    """Run ``action``. Raises KbindexError with one message for any failure, panics included."""
    try:
        with _silent_stderr():
            return action()
    except BaseException as error:
        # pyo3's PanicException derives from BaseException and can't be imported to be named.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise KbindexError(
                f"LanceDB can't write the table ({reason[0][:200]})",
                "see that there is room on the disk, then run this again",
            ) from None
        raise
