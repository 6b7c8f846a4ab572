"""The files of a table → the rows of its latest version. Pure: contents come from ``read``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.storage.columns import Columns, read_rows
from kbindex.storage.datafile import read_data_file
from kbindex.storage.manifest import (
    Manifest,
    inline_transaction,
    prove_transaction,
    read_manifest,
)

ReadFile = Callable[[str], bytes]
"""Returns the content of a file, by its name below the table's folder."""

_MANIFEST = re.compile(r"_versions/([0-9]{20})\.manifest")
_HINT = re.compile(rb'\{"version":[0-9]{1,20}\}')
_LAST_VERSION = (1 << 64) - 1


def latest_manifest(names: Collection[str], read: ReadFile) -> tuple[str, Manifest]:
    """Return name and content of the manifest of the latest version. Raises ValueError."""
    # Lance counts downwards in the names, so that the latest comes first.
    name = min(filter(_MANIFEST.fullmatch, names), default=None)
    if name is None:
        raise ValueError("no version of the table is there")
    manifest = read_manifest(read(name))
    if name != manifest_name(manifest.version):
        raise ValueError(f"{name} is that of another version")
    return name, manifest


def manifest_name(version: int) -> str:
    """Return the name of a version's manifest below the table's folder."""
    return f"_versions/{_LAST_VERSION - version:020d}.manifest"


def prove_versions(names: Collection[str], read: ReadFile) -> None:
    """Validate what other readers of the table follow and ours doesn't: old versions, transactions.

    Raises ValueError naming the file that our own writer does not write.
    """
    for name in sorted(names):
        try:
            if _MANIFEST.fullmatch(name):
                content = read(name)
                if manifest_name(read_manifest(content).version) != name:
                    raise ValueError("is that of another version")
                inline = inline_transaction(content)
                if inline is not None:
                    prove_transaction(inline)
            elif name.startswith("_transactions/"):
                prove_transaction(read(name))
            elif name.endswith(".json") and not _HINT.fullmatch(read(name)):
                raise ValueError("is no hint at a version")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def read_table(names: Collection[str], read: ReadFile) -> tuple[list[Row], NDArray[np.float16]]:
    """Return the rows of the latest version and their vectors ``(n_rows, dimension)``.

    Raises ValueError for anything that our own writer does not write.
    """
    _, manifest = latest_manifest(names, read)
    parts = []
    for fragment in manifest.fragments:
        name = f"data/{fragment.file}"
        if name not in names:
            raise ValueError(f"{name} is missing")
        content = read(name)
        if len(content) != fragment.n_bytes:
            raise ValueError(f"{name} has {len(content)} bytes, not {fragment.n_bytes}")
        parts.append(_read(name, content, fragment.n_rows, manifest.dimension))
    return read_rows(parts)


def _read(name: str, content: bytes, n_rows: int, dimension: int) -> Columns:
    try:
        return read_data_file(content, n_rows, dimension)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
