"""Cut points: the positions where a text can be cut, by kind, and the best of them in a range.

The best cut point has the least hash of the text after it, so that it depends on nothing far away.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# Places where a text can be cut, best first.
BLOCK, ITEM, SENTENCE, LINE, WORD, GRAPHEME, CODE_POINT = range(7)

# Possessive, and never tried again inside a run: linear on any input.
_SENTENCE_END = re.compile(
    r"""(?<![.!?…؟۔।॥])[.!?…؟۔।॥]++["'”’»)\]*_`]*+\s++(?=\S)  # a space between sentences
      | (?<![。！？｡])[。！？｡]++["'”’」』）】]*+\s*+(?=\S)       # none, as in Chinese
      """,
    re.VERBOSE,
)
_LINE_START = re.compile(r"(?:\r\n?|\n)+")
_WORD_START = re.compile(r"(?<=\s)(?=\S)|(?<=[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f])(?=\w)")


class Places:
    """The cut points of each kind inside one span, each with a hash of the text after it."""

    def __init__(
        self,
        text: str,
        code_points: NDArray[np.uint32],
        begin: int,
        end: int,
        verbatim: Sequence[tuple[int, int, bool]],
    ) -> None:
        """``verbatim``: (start, end, kept whole) of the code and tables in the span."""
        self._text, self._code_points = text, code_points
        self._begin, self._end = begin, end
        self._verbatim = verbatim
        self._positions: dict[int, NDArray[np.int64]] = {}
        self._hashes: dict[int, NDArray[np.uint64]] = {}

    def add(self, kind: int, positions: Iterable[int]) -> None:
        self._positions[kind] = np.fromiter(positions, dtype=np.int64)

    def best(self, kind: int, low: int, high: int) -> int | None:
        """Return the cut point of least hash in ``[low, high]``, ``None`` without one.

        Of several with equal hashes it is the most central.
        """
        positions, first, last = self._range(kind, low, high)
        if first >= last:
            return None
        if kind not in self._hashes:
            self._hashes[kind] = hash_places(self._code_points, positions)
        hashes = self._hashes[kind][first:last]
        equal = first + np.flatnonzero(hashes == hashes.min())
        return _most_central(positions[equal], low, high)

    def middle(self, kind: int, low: int, high: int) -> int | None:
        """Return the most central cut point in ``[low, high]``, ``None`` without one."""
        positions, first, last = self._range(kind, low, high)
        return _most_central(positions[first:last], low, high) if first < last else None

    def _range(self, kind: int, low: int, high: int) -> tuple[NDArray[np.int64], int, int]:
        if kind not in self._positions:
            self.add(kind, self._find(kind))
        positions = self._positions[kind]
        first, last = np.searchsorted(positions, (low, high + 1))
        return positions, int(first), int(last)

    def _find(self, kind: int) -> Iterable[int]:
        if kind == CODE_POINT:
            return range(self._begin + 1, self._end)
        if kind == GRAPHEME:
            import regex  # slow to import and hardly ever needed

            clusters = regex.compile(r"\X").finditer(self._text, self._begin, self._end)
            return [match.start() for match in clusters][1:]
        pattern = {SENTENCE: _SENTENCE_END, LINE: _LINE_START, WORD: _WORD_START}[kind]
        found = pattern.finditer(self._text, self._begin, self._end)
        ends = np.fromiter((match.end() for match in found), dtype=np.int64)
        inside = (ends > self._begin) & (ends < self._end)
        inside[inside] = [_is_between_clusters(self._text, at) for at in ends[inside]]
        if kind in (SENTENCE, LINE):
            for start, stop, is_kept in self._verbatim:
                if is_kept or kind == SENTENCE:
                    inside &= (ends <= start) | (ends >= stop)
        if kind == SENTENCE:
            return np.union1d(ends[inside], self._verbatim_lines())
        return ends[inside]

    def _verbatim_lines(self) -> NDArray[np.int64]:
        """Return the line starts in code and tables that can't be kept whole."""
        starts = [
            match.end()
            for start, stop, is_kept in self._verbatim
            if not is_kept
            for match in _LINE_START.finditer(self._text, start, stop)
            if match.end() < stop
        ]
        return np.array(starts, dtype=np.int64)


def _is_between_clusters(text: str, at: int) -> bool:
    """Whether no mark, joiner or modifier ties the code point at ``at`` to the one before."""
    following = text[at]
    if following.isascii():
        return True
    return not (
        unicodedata.category(following)[0] == "M"
        or following in "\u200c\u200d\uff9e\uff9f"
        or "\U0001f3fb" <= following <= "\U0001f3ff"
        or text[at - 1] == "\u200d"
    )


def _most_central(positions: NDArray[np.int64], low: int, high: int) -> int:
    return int(positions[np.abs(2 * positions - (low + high)).argmin()])


_SEEN = 24
"""Code points that a hash covers. With fewer, repeated beginnings tie; with more, more edits
change the hash."""


def hash_places(
    code_points: NDArray[np.uint32], positions: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Hash the code points after each position: ``(n_positions,)``.

    Only the next 24 count, so that an edit elsewhere leaves the hash as it is.
    """
    mixed = np.zeros(len(positions), dtype=np.uint64)
    if len(positions) == 0:
        return mixed
    last = len(code_points) - 1
    for offset in range(_SEEN):
        at = positions + offset
        value = np.where(at > last, 0, code_points[np.minimum(at, last)])
        mixed = (mixed ^ value.astype(np.uint64)) * np.uint64(0x100000001B3)  # FNV-1a
    # FNV leaves neighbours alike in the high bits; the finaliser of splitmix64 spreads them.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
