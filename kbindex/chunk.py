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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kbindex.model import CONTINUES_SECTION, CONTINUES_TABLE, Block, Document, Region
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in cl100k tokens of the chunk's own text."""

    maximum: int

    @property
    def clearance(self) -> int:
        """How far a cut stays from both ends, so that no scrap is left over."""
        return self.maximum // 3


def chunk(
    document: Document, limits: Limits, count: CountTokens, starts: TokenStarts
) -> list[Region]:
    """Return the regions of ``document`` in order; their spans add up to its whole text."""
    cutter = _Cutter(document, starts)
    headings = {heading.char_start: heading for heading in document.headings}
    regions: list[Region] = []
    for begin, end in _sections(document):
        opening = headings.get(begin)
        opens = str(opening.level) if opening else CONTINUES_SECTION
        heading = opening.text if opening else ""
        # Blank lines or a byte order mark before the first block belong to its region.
        begin = 0 if not regions and not document.frontmatter.end else begin
        for start, stop, continues in cutter.cut_section(begin, end, limits):
            n_tokens = count(document.text[start:stop])
            regions.append(Region(start, stop, n_tokens, continues or opens, heading))
            opens, heading = CONTINUES_SECTION, ""
    return [*_frontmatter_regions(document, count), *regions]


def refine(
    document: Document, region: Region, maximum: int, count: CountTokens, starts: TokenStarts
) -> list[Region]:
    """Cut ``region`` further, to at most ``maximum`` tokens a piece; it may stay as it is."""
    cutter = _Cutter(document, starts)
    limits = Limits(maximum)
    in_table = region.opens == CONTINUES_TABLE or cutter.is_table(region.char_start)
    pieces = list(cutter.cut(region.char_start, region.char_end, limits, in_table))
    text = document.text
    rest = CONTINUES_TABLE if in_table else CONTINUES_SECTION
    return [
        Region(
            start,
            end,
            count(text[start:end]),
            rest if index else region.opens,
            "" if index else region.heading,
        )
        for index, (start, end) in enumerate(pieces)
    ]


def _frontmatter_regions(document: Document, count: CountTokens) -> Iterator[Region]:
    """Yield the frontmatter's region, and an empty one for each further piece of long metadata."""
    end = document.frontmatter.end
    if end:
        pieces = metadata_pieces(document.frontmatter) or [""]
        for index, piece in enumerate(pieces):
            yield Region(end if index else 0, end, count(piece), CONTINUES_SECTION)


def _sections(document: Document) -> Iterator[tuple[int, int]]:
    """Yield the span of each section's own text; the first may stand before any heading."""
    starts = [heading.char_start for heading in document.headings]
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
        self._code_points = np.frombuffer(document.text.encode("utf-32-le"), dtype=np.uint32)

    def is_table(self, start: int) -> bool:
        block = self._block_at(start)
        return block is not None and block.kind == "table" and block.char_start == start

    def cut_section(
        self, begin: int, end: int, limits: Limits
    ) -> Iterator[tuple[int, int, str | None]]:
        """Yield (start, end, opens) with ``opens`` set where a piece continues a table."""
        for start, stop, is_table in self._isolate_tables(begin, end, limits):
            for index, piece in enumerate(self.cut(start, stop, limits, is_table)):
                yield (*piece, CONTINUES_TABLE if is_table and index else None)

    def cut(
        self, begin: int, end: int, limits: Limits, in_table: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield the pieces of a span, each within the limit unless a code point is over it."""
        places = _Places(self._text, self._code_points, begin, end, self._kept_whole(limits))
        places.add(_BLOCK, (s for s in self._starts_within(begin, end)))
        places.add(_ITEM, self._items_within(begin, end))
        pending = [(begin, end)]
        while pending:
            start, stop = pending.pop()
            at = self._best_cut(start, stop, limits, places, in_table)
            if at is None:
                yield start, stop
            else:
                pending += [(at, stop), (start, at)]

    def _isolate_tables(
        self, begin: int, end: int, limits: Limits
    ) -> Iterator[tuple[int, int, bool]]:
        """Split a section so that a table that must be cut stands alone."""
        at = begin
        if self._n_tokens(begin, end) > limits.maximum:
            for block, start, stop in self._blocks_within(begin, end):
                if block.kind == "table" and self._n_tokens(start, stop) > limits.maximum:
                    if at < start:
                        yield at, start, False
                    yield start, stop, True
                    at = stop
        if at < end:
            yield at, end, False

    def _best_cut(
        self, start: int, stop: int, limits: Limits, places: _Places, in_table: bool
    ) -> int | None:
        n_tokens = self._n_tokens(start, stop)
        if n_tokens <= limits.maximum or stop - start < 2:
            return None
        low = self._position(start, limits.clearance)
        high = self._position(stop, -limits.clearance)
        for kind in (_LINE,) if in_table else (_BLOCK, _ITEM, _SENTENCE):
            if (at := places.best(kind, low, high)) is not None:
                return at
        # Beside a fence or table that is kept whole a small piece is better than a cut in it.
        for kind in () if in_table else (_BLOCK, _ITEM, _LINE):
            if (at := places.middle(kind, start + 1, stop - 1)) is not None:
                return at
        for kind in (_WORD, _GRAPHEME, _CODE_POINT):
            if (at := places.best(kind, low, high)) is not None:
                return at
        return (start + stop) // 2

    def _kept_whole(self, limits: Limits) -> Callable[[int, int], list[tuple[int, int]]]:
        def spans(begin: int, end: int) -> list[tuple[int, int]]:
            return [
                (start, stop)
                for block, start, stop in self._blocks_within(begin, end)
                if block.kind in ("code", "table") and self._n_tokens(start, stop) <= limits.maximum
            ]

        return spans

    def _n_tokens(self, start: int, end: int) -> int:
        first, last = np.searchsorted(self._tokens, (start, end))
        return int(last - first)

    def _position(self, at: int, n_tokens: int) -> int:
        """Return the code point that stands ``n_tokens`` after (or before) ``at``."""
        index = int(np.searchsorted(self._tokens, at)) + n_tokens
        if index >= len(self._tokens):
            return len(self._text)
        return int(self._tokens[max(index, 0)])

    def _block_at(self, at: int) -> Block | None:
        index = bisect_left(self._block_starts, at)
        return self._blocks[index] if index < len(self._blocks) else None

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
        kept_whole: Callable[[int, int], list[tuple[int, int]]],
    ) -> None:
        self._text, self._code_points = text, code_points
        self._begin, self._end = begin, end
        self._kept_whole = kept_whole
        self._positions: dict[int, NDArray[np.int64]] = {}
        self._hashes: dict[int, NDArray[np.uint64]] = {}

    def add(self, kind: int, positions: Iterable[int]) -> None:
        array = np.fromiter(positions, dtype=np.int64)
        self._positions[kind] = array
        self._hashes[kind] = hash_places(self._code_points, array)

    def best(self, kind: int, low: int, high: int) -> int | None:
        """Return the place of least hash in ``[low, high]``; of equal ones the most central."""
        positions, first, last = self._range(kind, low, high)
        if first >= last:
            return None
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
        if kind in (_SENTENCE, _LINE):
            for start, stop in self._kept_whole(self._begin, self._end):
                inside &= (ends <= start) | (ends >= stop)
        return ends[inside]


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
