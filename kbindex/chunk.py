"""Document → Regions that tile it: where chunks begin.

A region never crosses a heading. A section over the limit is cut at the best place that stays
clear of both ends, and its halves again, until everything fits. "Best" is decided by kind of
place first (between blocks, then list items, sentences, lines, words, graphemes) and by a hash
of the text around the place second. Both depend on nothing but nearby text, so the cuts form a
Cartesian tree of the places (Vuillemin 1980): an edit can only change the cuts next to it, and
those far away stay. That is what keeps a commit small and lets branches merge.

Not here: what the embedder is shown (``compose``), and keys.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kbindex.model import (
    CONTINUES_SECTION,
    CONTINUES_TABLE,
    Block,
    Document,
    Heading,
    Region,
)
from kbindex.okf import metadata_pieces

CountTokens = Callable[[str], int]
TokenStarts = Callable[[str], NDArray[np.int64]]

# Places where a text can be cut, best first.
_BLOCK, _ITEM, _SENTENCE, _LINE, _WORD, _GRAPHEME, _CODE_POINT = range(7)

# Possessive, and never tried again inside a run: linear on any input.
_SENTENCE_END = re.compile(
    r"""(?<![.!?…؟۔।॥])[.!?…؟۔।॥]++["'”’»)\]*_`]*+\s++(?=\S)  # a space between sentences
      | (?<![。！？｡])[。！？｡]++["'”’」』）】]*+\s*+(?=\S)       # none, as in Chinese
      """,
    re.VERBOSE,
)
_LINE_START = re.compile(r"(?:\r\n?|\n)+")
_WORD_START = re.compile(r"(?<=\s)(?=\S)|(?<=[\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f])(?=\w)")


_SLACK = 4
"""Tokens that a piece counted alone may have more than counted as a part of its document."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in cl100k tokens of the chunk's own text."""

    maximum: int
    target: int = 0
    """The size aimed at; 0 is two thirds of the maximum."""

    @property
    def clearance(self) -> int:
        """How far a cut stays from both ends, so that no scrap is left over."""
        third = self.maximum // 3
        return min(self.target // 2, third) if self.target else third


def chunk(
    document: Document, limits: Limits, count: CountTokens, starts: TokenStarts
) -> list[Region]:
    """Return the regions of ``document`` in order; their spans add up to its whole text."""
    cutter = _Cutter(document, starts)
    openings = [h for h in document.headings if cutter.is_opening(h, limits)]
    headings = {heading.char_start: heading for heading in openings}
    regions: list[Region] = []
    for begin, end in _sections(document, openings):
        opening = headings.get(begin)
        opens = str(opening.level) if opening else CONTINUES_SECTION
        heading = opening.text if opening else ""
        # Blank lines or a byte order mark before the first block belong to its region.
        begin = begin if regions else document.frontmatter.end
        keep = opening.char_end if opening else begin
        for start, stop, continues in cutter.cut_section(begin, end, limits, keep):
            n_tokens = count(document.text[start:stop])
            regions.append(Region(start, stop, n_tokens, continues or opens, heading))
            opens, heading = CONTINUES_SECTION, ""
    return [*_frontmatter_regions(document, count), *regions]


def refine(
    document: Document, region: Region, maximum: int, count: CountTokens, starts: TokenStarts
) -> list[Region]:
    """Cut ``region`` further, to at most ``maximum`` tokens a piece; it may stay as it is."""
    begin, end, limits = region.char_start, region.char_end, Limits(maximum)
    if begin == end:
        return [region]
    cutter = _Cutter(document, starts)
    table = cutter.cut_table_at(region)
    keep = cutter.heading_end(region)
    pieces: list[tuple[int, int, str | None]] = []
    if table is None or begin < table.char_start:
        until = end if table is None else table.char_start
        pieces += cutter.cut_section(begin, until, limits, keep)
        begin = until
    if table is not None:
        is_first = begin == table.char_start
        for number, piece in enumerate(cutter.cut(begin, end, limits, table.item_starts[0], table)):
            pieces.append((*piece, None if is_first and number == 0 else CONTINUES_TABLE))
    return [
        Region(
            start,
            stop,
            count(document.text[start:stop]),
            (continues or CONTINUES_SECTION) if index else region.opens,
            "" if index else region.heading,
        )
        for index, (start, stop, continues) in enumerate(pieces)
    ]


def _frontmatter_regions(document: Document, count: CountTokens) -> Iterator[Region]:
    """Yield the frontmatter's region, and an empty one for each further piece of long metadata."""
    end = document.frontmatter.end
    if end:
        pieces = metadata_pieces(document.frontmatter) or [""]
        for index, piece in enumerate(pieces):
            yield Region(end if index else 0, end, count(piece), CONTINUES_SECTION)


def _sections(document: Document, openings: Sequence[Heading]) -> Iterator[tuple[int, int]]:
    """Yield the span of each section's own text; the first may stand before any heading."""
    starts = [heading.char_start for heading in openings]
    body, end = document.frontmatter.end, len(document.text)
    first = starts[0] if starts else end
    if document.text[body:first].strip("\ufeff \t\r\n") or (not starts and body < end):
        starts.insert(0, body)
    yield from pairwise([*starts, end])


class _Cutter:
    """Cuts spans of one document; computes the places of a kind only when they are needed."""

    def __init__(self, document: Document, starts: TokenStarts) -> None:
        self._text = document.text
        self._blocks = document.blocks
        self._block_starts = [block.char_start for block in document.blocks]
        self._tokens = starts(document.text)
        self._heading_ends = {h.char_start: h.char_end for h in document.headings}
        self._code_points = np.frombuffer(document.text.encode("utf-32-le"), dtype=np.uint32)

    def is_opening(self, heading: Heading, limits: Limits) -> bool:
        """Whether a heading is short enough to be one: a longer one is cut like any text."""
        return self._n_tokens(heading.char_start, heading.char_end) <= limits.clearance

    def heading_end(self, region: Region) -> int:
        """Return where the heading of ``region`` ends, its beginning if it opens none."""
        if region.opens in (CONTINUES_SECTION, CONTINUES_TABLE):
            return region.char_start
        starts = (s for s in self._block_starts if region.char_start <= s < region.char_end)
        return self._heading_ends[next(starts)]

    def cut_table_at(self, region: Region) -> Block | None:
        """Return the table that ``region`` holds a piece of, if others hold the rest."""
        for block, _, stop in self._blocks_within(region.char_start, len(self._text)):
            if block.char_start >= region.char_end:
                return None
            is_piece = region.opens == CONTINUES_TABLE or stop > region.char_end
            if block.kind == "table" and is_piece:
                return block
        return None

    def cut_section(
        self, begin: int, end: int, limits: Limits, keep: int
    ) -> Iterator[tuple[int, int, str | None]]:
        """Yield (start, end, opens) with ``opens`` set where a piece continues a table.

        No cut falls before ``keep``, the end of the section's heading.
        """
        for start, stop, table in self._segments(begin, end, limits):
            header_end = table.item_starts[0] if table else 0  # the other pieces cite the header
            pieces = self.cut(start, stop, limits, max(keep, header_end), table)
            for index, piece in enumerate(pieces):
                yield (*piece, CONTINUES_TABLE if table and index else None)

    def cut(
        self, begin: int, end: int, limits: Limits, keep: int, table: Block | None
    ) -> Iterator[tuple[int, int]]:
        """Yield the pieces of a span, each within the limit unless a code point is over it."""
        if not self._is_over(begin, end, limits):
            yield begin, end
            return
        verbatim = list(self._verbatim(begin, end, limits))
        places = _Places(self._text, self._code_points, begin, end, verbatim)
        if table is None:
            places.add(_BLOCK, self._starts_within(begin, end))
            places.add(_ITEM, self._items_within(begin, end))
        else:
            places.add(_ITEM, (row for row in table.item_starts[1:] if begin < row < end))
        pending = [(begin, end)]
        while pending:
            start, stop = pending.pop()
            at = self._best_cut(start, stop, limits, places, keep, is_table=table is not None)
            if at is None:
                yield start, stop
            else:
                pending += [(at, stop), (start, at)]

    def _segments(
        self, begin: int, end: int, limits: Limits
    ) -> Iterator[tuple[int, int, Block | None]]:
        """Split a section so that a table that must be cut ends its first piece.

        Little text before or after such a table goes with it rather than being a scrap.
        """
        at = begin
        blocks = self._blocks_within(begin, end) if self._is_over(begin, end, limits) else ()
        for block, start, stop in blocks:
            if (
                block.kind != "table"
                or not block.item_starts
                or not self._is_over(start, stop, limits)
            ):
                continue
            header_end = block.item_starts[0]
            if self._n_tokens(start, header_end) > limits.clearance:
                continue  # too long a header to repeat: cut like any text
            if self._n_tokens(at, header_end) > limits.clearance:
                yield at, start, None
                at = start
            if self._n_tokens(stop, end) <= limits.clearance // 2:
                stop = end
            yield at, stop, block
            at = stop
        if at < end:
            yield at, end, None

    def _best_cut(
        self,
        start: int,
        stop: int,
        limits: Limits,
        places: _Places,
        keep: int,
        *,
        is_table: bool,
    ) -> int | None:
        if not self._is_over(start, stop, limits) or max(start + 1, keep) >= stop:
            return None
        low = max(self._position(start, limits.clearance), keep)
        high = self._position(stop, -limits.clearance)
        for kind in (_ITEM,) if is_table else (_BLOCK, _ITEM, _SENTENCE):
            if (at := places.best(kind, low, high)) is not None:
                return at
        # Beside a fence, table or row that fits a small piece is better than a cut in it.
        for kind in (_ITEM,) if is_table else (_BLOCK, _ITEM, _LINE):
            if (at := places.middle(kind, max(start + 1, keep), stop - 1)) is not None:
                return at
        for kind in (_WORD, _GRAPHEME, _CODE_POINT):
            if (at := places.best(kind, low, high)) is not None:
                return at
        return max((start + stop) // 2, keep, start + 1)

    def _is_over(self, start: int, end: int, limits: Limits) -> bool:
        return self._n_tokens(start, end) > limits.maximum - _SLACK

    def _verbatim(self, begin: int, end: int, limits: Limits) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, kept whole) of the code blocks and tables within a span."""
        for block, start, stop in self._blocks_within(begin, end):
            if block.kind in ("code", "table"):
                yield start, stop, not self._is_over(start, stop, limits)

    def _n_tokens(self, start: int, end: int) -> int:
        first, last = np.searchsorted(self._tokens, (start, end))
        return int(last - first)

    def _position(self, at: int, n_tokens: int) -> int:
        """Return the code point that stands ``n_tokens`` after (or before) ``at``."""
        index = int(np.searchsorted(self._tokens, at)) + n_tokens
        if index >= len(self._tokens):
            return len(self._text)
        return int(self._tokens[max(index, 0)])

    def _blocks_within(self, begin: int, end: int) -> Iterator[tuple[Block, int, int]]:
        first = max(bisect_left(self._block_starts, begin + 1) - 1, 0)
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            if block.char_start >= end:
                return
            following = self._block_starts[index + 1 : index + 2]
            stop = min(*following, end) if following else end
            if stop > begin:
                yield block, max(block.char_start, begin), stop

    def _starts_within(self, begin: int, end: int) -> Sequence[int]:
        low = bisect_left(self._block_starts, begin + 1)
        return self._block_starts[low : bisect_left(self._block_starts, end)]

    def _items_within(self, begin: int, end: int) -> Iterator[int]:
        for block, _, _ in self._blocks_within(begin, end):
            if block.kind == "list":
                yield from (start for start in block.item_starts if begin < start < end)


class _Places:
    """The places of each kind inside one span, with a hash of the text around each."""

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
        """Return the place of least hash in ``[low, high]``; of equal ones the most central."""
        positions, first, last = self._range(kind, low, high)
        if first >= last:
            return None
        if kind not in self._hashes:
            self._hashes[kind] = hash_places(self._code_points, positions)
        hashes = self._hashes[kind][first:last]
        equal = first + np.flatnonzero(hashes == hashes.min())
        return _most_central(positions[equal], low, high)

    def middle(self, kind: int, low: int, high: int) -> int | None:
        """Return the most central place in ``[low, high]``."""
        positions, first, last = self._range(kind, low, high)
        return _most_central(positions[first:last], low, high) if first < last else None

    def _range(self, kind: int, low: int, high: int) -> tuple[NDArray[np.int64], int, int]:
        if kind not in self._positions:
            self.add(kind, self._find(kind))
        positions = self._positions[kind]
        first, last = np.searchsorted(positions, (low, high + 1))
        return positions, int(first), int(last)

    def _find(self, kind: int) -> Iterable[int]:
        if kind == _CODE_POINT:
            return range(self._begin + 1, self._end)
        if kind == _GRAPHEME:
            import regex  # slow to import and hardly ever needed

            clusters = regex.compile(r"\X").finditer(self._text, self._begin, self._end)
            return [match.start() for match in clusters][1:]
        pattern = {_SENTENCE: _SENTENCE_END, _LINE: _LINE_START, _WORD: _WORD_START}[kind]
        found = pattern.finditer(self._text, self._begin, self._end)
        ends = np.fromiter((match.end() for match in found), dtype=np.int64)
        inside = (ends > self._begin) & (ends < self._end)
        inside[inside] = [_is_between_clusters(self._text, at) for at in ends[inside]]
        if kind in (_SENTENCE, _LINE):
            for start, stop, is_kept in self._verbatim:
                if is_kept or kind == _SENTENCE:
                    inside &= (ends <= start) | (ends >= stop)
        if kind == _SENTENCE:
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


_BEFORE, _AFTER = 16, 32


def hash_places(
    code_points: NDArray[np.uint32], positions: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Hash the code points around each position: ``(n_positions,)``.

    Only 16 before and 32 after it count, so that an edit elsewhere leaves the hash alone.
    """
    mixed = np.zeros(len(positions), dtype=np.uint64)
    if len(positions) == 0:
        return mixed
    last = len(code_points) - 1
    for offset in range(-_BEFORE, _AFTER):
        at = positions + offset
        value = np.where((at < 0) | (at > last), 0, code_points[np.clip(at, 0, last)])
        mixed = (mixed ^ value.astype(np.uint64)) * np.uint64(0x100000001B3)  # FNV-1a
    # FNV leaves neighbours alike in the high bits; the finaliser of splitmix64 spreads them.
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
