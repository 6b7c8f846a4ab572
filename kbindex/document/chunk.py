"""Document → Regions that tile it: where chunks begin.

A region never crosses a heading. A section over the limit is cut at the best place that stays
clear of both ends, and its halves again, until everything fits. "Best" is decided by kind of
place first (between blocks, then list items, sentences, lines, words, graphemes) and by a hash
of the text after the place second. Both depend on nothing but nearby text, so the cuts form a
Cartesian tree of the places (Vuillemin 1980): an edit can only change the cuts next to it, and
those far away stay. That is what keeps a commit small and lets branches merge.

Not here: what the embedder is shown (``compose``), and keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import (
    CONTINUES_SECTION,
    CONTINUES_TABLE,
    Block,
    Document,
    Heading,
    Region,
)
from kbindex.document.boundaries import (
    BLOCK,
    CODE_POINT,
    GRAPHEME,
    ITEM,
    LINE,
    SENTENCE,
    WORD,
    Places,
)
from kbindex.document.markdown import metadata_pieces

CountTokens = Callable[[str], int]
TokenStarts = Callable[[str], NDArray[np.int64]]

_SLACK = 4
"""Tokens by which a piece counted alone may exceed its count as a part of the document."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in cl100k tokens of the chunk's own text."""

    maximum: int
    target: int = 0
    """The desired size; 0 means two thirds of the maximum."""

    @property
    def clearance(self) -> int:
        """The least tokens between a cut and either end, so that no tiny piece remains."""
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
    """Return ``region`` in pieces of at most ``maximum`` tokens, or unchanged if it fits."""
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
    """Cuts spans of one document; computes the cut points of a kind when first needed."""

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
        if not region.level:
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
        places = Places(self._text, self._code_points, begin, end, verbatim)
        if table is None:
            places.add(BLOCK, self._starts_within(begin, end))
            places.add(ITEM, self._items_within(begin, end))
        else:
            places.add(ITEM, (row for row in table.item_starts[1:] if begin < row < end))
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
        places: Places,
        keep: int,
        *,
        is_table: bool,
    ) -> int | None:
        if not self._is_over(start, stop, limits) or max(start + 1, keep) >= stop:
            return None
        # A piece of a token or two has no room for clearance: a cut at its edge would be none.
        low = max(self._position(start, limits.clearance), keep, start + 1)
        high = min(self._position(stop, -limits.clearance), stop - 1)
        for kind in (ITEM,) if is_table else (BLOCK, ITEM, SENTENCE):
            if (at := places.best(kind, low, high)) is not None:
                return at
        # Beside a fence, table or row that fits a small piece is better than a cut in it.
        for kind in (ITEM,) if is_table else (BLOCK, ITEM, LINE):
            if (at := places.middle(kind, max(start + 1, keep), stop - 1)) is not None:
                return at
        for kind in (WORD, GRAPHEME, CODE_POINT):
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
        """Return the offset ``n_tokens`` after ``at``, or before it if negative (code points)."""
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
