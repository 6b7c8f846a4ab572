"""Outline file ↔ its lines, and the proof that they describe a document.

An outline has a line a region in document order and a blank line after each:
``key<TAB>characters<TAB>tokens<TAB>opens<TAB>heading``. Lengths rather than offsets, blank lines
and no header make edits in different places merge line by line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kbindex.configuration.recipe import key_of
from kbindex.core.model import (
    CONTINUES_SECTION,
    CONTINUES_TABLE,
    NOT_EMBEDDED,
    Chunk,
    EmbedderIdentity,
    Entry,
    Line,
    Region,
)
from kbindex.document.compose import compose, table_header
from kbindex.document.markdown import match_heading, metadata_pieces, parse_frontmatter

_SLACK = 16
"""Tokens that a piece counted alone may have more than its chunker counted."""

MOST_ENTRIES = 500_000
"""Lines of an outline, and so chunks of a document."""

_LINE = re.compile(r"([0-9a-f]{32}|-)\t(0|[1-9][0-9]{0,15})\t(0|[1-9][0-9]{0,15})\t([0-6t])\t(.*)")
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)


class OutlineMismatch(Exception):
    """An outline is not that of the document; ``char_start`` is where they part."""

    def __init__(self, char_start: int, reason: str) -> None:
        super().__init__(reason)
        self.char_start = char_start
        self.reason = reason


class ConflictMarkers(OutlineMismatch):
    """A merge left its markers in the outline."""


def render_outline(entries: Sequence[Line | Entry]) -> str:
    """Return the text of an outline."""
    return "".join(
        f"{e.key}\t{e.region.char_end - e.region.char_start}\t{e.region.n_tokens}"
        f"\t{e.region.opens}\t{e.region.heading}\n\n"
        for e in entries
    )


def parse_outline(text: str) -> list[Line]:
    """Read an outline. Raises OutlineMismatch for anything that kbindex would not write."""
    if _CONFLICT.search(text):
        raise ConflictMarkers(0, "the outline holds conflict markers")
    lines: list[Line] = []
    at = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        match = _LINE.fullmatch(line)
        if len(lines) == MOST_ENTRIES:
            raise OutlineMismatch(0, f"the outline has more than {MOST_ENTRIES} lines")
        if match is None:
            raise OutlineMismatch(at, f"line {number} of the outline can't be read")
        key, length, n_tokens, opens, heading = match.groups()
        end = at + int(length)
        lines.append(Line(key, Region(at, end, int(n_tokens), opens, heading)))
        at = end
    return lines


def count_recontexted(before: str, outline: str, after: str, entries: Sequence[Entry]) -> int:
    """Return how many chunks have another key though their own text is that of a chunk before.

    ``outline`` is that of the text ``before``, ``entries`` that of the text ``after``.
    """
    try:
        old = parse_outline(outline)
    except OutlineMismatch:
        return 0
    old_keys = {entry.key for entry in old}
    old_texts = {before[entry.region.char_start : entry.region.char_end].rstrip() for entry in old}
    return sum(
        entry.key not in old_keys
        and after[entry.region.char_start : entry.region.char_end].rstrip() in old_texts
        for entry in entries
    )


def make_entries(chunks: Sequence[Chunk], identity: EmbedderIdentity) -> list[Entry]:
    """Return the entries of composed chunks under an embedder."""
    return [
        Entry(
            key_of(identity, chunk.shown) if chunk.shown is not None else NOT_EMBEDDED,
            chunk.region,
            chunk.heading_path,
            chunk.shown,
        )
        for chunk in chunks
    ]


def verify_outline(
    text: str,
    lines: Sequence[Line],
    identity: EmbedderIdentity,
    max_tokens: int | None = None,
) -> list[Entry]:
    """Return the entries that the ``lines`` of an outline claim for ``text``, every key proven.

    Everything but "this line is a heading" is derived from the text: lengths, headings, title,
    paths, table headers, metadata, and which regions may go without a vector. With ``max_tokens``
    no chunk of the body may be longer. Raises OutlineMismatch at the first difference.
    """
    frontmatter = parse_frontmatter(text)
    regions = [line.region for line in lines]
    _verify_tiling(text, regions)
    n_pieces = len(metadata_pieces(frontmatter)) if frontmatter.end else 0
    if frontmatter.end:
        _verify_frontmatter(frontmatter.end, n_pieces, regions)
    if any(region.char_start == region.char_end for region in regions[max(n_pieces, 1) :]):
        raise OutlineMismatch(0, "the outline has lines for no text")
    _verify_openings(text, regions)
    entries = make_entries(compose(text, frontmatter, regions), identity)
    for line, entry in zip(lines, entries, strict=True):
        if line.key != entry.key:
            raise OutlineMismatch(
                entry.region.char_start, "the text, its title or a heading above it changed"
            )
    if max_tokens is not None:
        _verify_limit(frontmatter.end, regions, max_tokens + _SLACK)
    return entries


def _verify_tiling(text: str, regions: Sequence[Region]) -> None:
    covered = regions[-1].char_end if regions else 0
    if covered != len(text):
        at = min(covered, len(text))
        raise OutlineMismatch(at, f"the outline covers {covered} of {len(text)} characters")


def _verify_frontmatter(end: int, n_pieces: int, regions: Sequence[Region]) -> None:
    spans = [(r.char_start, r.char_end, r.opens) for r in regions[: max(n_pieces, 1)]]
    if spans != [(0, end, CONTINUES_SECTION), *[(end, end, CONTINUES_SECTION)] * (n_pieces - 1)]:
        raise OutlineMismatch(0, "the frontmatter changed")


def _verify_limit(body: int, regions: Sequence[Region], most: int) -> None:
    for region in regions:
        is_cuttable = region.char_start >= body and region.char_end - region.char_start > 1
        if is_cuttable and region.n_tokens > most:
            raise OutlineMismatch(
                region.char_start, "a chunk is longer than the limit: it was made with another one"
            )


def _verify_openings(text: str, regions: Sequence[Region]) -> None:
    table_start: Region | None = None
    for region in regions:
        at = region.char_start
        if region.opens == CONTINUES_TABLE:
            if table_start is None or not table_header(
                text[table_start.char_start : table_start.char_end]
            ):
                raise OutlineMismatch(at, "it no longer continues a table")
            continue
        table_start = region
        if region.opens == CONTINUES_SECTION:
            if region.heading:
                raise OutlineMismatch(at, "the outline names a heading where none opens")
            continue
        found = match_heading(text[at : region.char_end], region.level)
        if found is None or found[0] != region.heading:
            raise OutlineMismatch(at, "the heading changed")
