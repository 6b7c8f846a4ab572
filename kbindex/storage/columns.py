"""The columns of table and WAL files, and the validated rows in them. Pure.

A value that is not of the form that our own writer gives it is a ValueError: keys, checksums and
blob ids are hexadecimal, numbers are not negative, paths and headings are of bounded length.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Row

_KEY = re.compile(r"[0-9a-f]{32}")
_EMBEDDER = re.compile(r"[0-9a-f]{12}")
_SUM = re.compile(r"[0-9a-f]{16}")
_BLOB = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_LONGEST_PATH = 1 << 15
_MOST_LEVELS = 6
_LONGEST_HEADING = 1 << 15


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one file, each with as many values as there are rows."""

    key: list[str]
    embedder: list[str]
    path: list[str]
    ordinal: list[int]
    blob: list[str]
    char_start: list[int]
    char_end: list[int]
    heading: list[tuple[str, ...]]
    tokens: list[int]
    vector: NDArray[np.float16]
    """``(n_rows, dimension)``"""
    sum: list[str]


def read_rows(parts: Iterable[Columns]) -> tuple[list[Row], NDArray[np.float16]]:
    """Return the rows of files of one dimension, and vectors ``(n_rows, dimension)``.

    Raises ValueError for a row that kbindex would not write.
    """
    rows: list[Row] = []
    vectors = []
    for part in parts:
        vectors.append(part.vector)
        rows += map(
            _row,
            part.key,
            part.embedder,
            part.path,
            part.ordinal,
            part.blob,
            part.char_start,
            part.char_end,
            part.heading,
            part.tokens,
            part.sum,
        )
    return rows, np.concatenate(vectors) if vectors else np.zeros((0, 1), np.float16)


def checksum(key: str, vector: NDArray[np.float16]) -> str:
    """Return the hash of a key and its vector's little-endian bytes: 16 hex digits."""
    content = key.encode() + vector.astype("<f2").tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _row(
    key: str,
    embedder: str,
    path: str,
    ordinal: int,
    blob: str,
    char_start: int,
    char_end: int,
    heading: tuple[str, ...],
    tokens: int,
    checksum: str,
) -> Row:
    if not (_KEY.fullmatch(key) and _EMBEDDER.fullmatch(embedder) and _SUM.fullmatch(checksum)):
        raise ValueError("a row's key, embedder or checksum is none that kbindex gives")
    if min(ordinal, tokens) < 0 or not 0 <= char_start <= char_end or not _BLOB.fullmatch(blob):
        raise ValueError(f"the row {key} does not say where its chunk stands")
    if len(path) > _LONGEST_PATH or len(heading) > _MOST_LEVELS:
        raise ValueError(f"the row {key} has a path or headings that no document has")
    if any(len(text) > _LONGEST_HEADING for text in heading):
        raise ValueError(f"the row {key} has a longer heading than any document")
    return Row(key, embedder, path, ordinal, blob, char_start, char_end, heading, tokens, checksum)
