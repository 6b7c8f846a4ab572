"""Regions → Chunks: the exact text that is embedded for each region.

It is decided here alone: building derives keys from it, and ``check`` derives them again from
an outline, without a parser and without a model. That is why the context's cap counts cl100k
tokens rather than the embedder's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from kbindex.core.model import CONTINUES_TABLE, SEPARATOR, Chunk, Frontmatter, Region
from kbindex.document.markdown import match_heading, metadata_pieces
from kbindex.document.tokens import count_tokens, token_starts

CONTEXT_TOKENS = 64

_WHITE_SPACE = "\ufeff \t\r\n"
_DELIMITER_ROW = re.compile(r"(?=.*[|:])(?=.*-)[ \t|:-]+")


def compose(text: str, frontmatter: Frontmatter, regions: Sequence[Region]) -> list[Chunk]:
    """Return a chunk for each region, its heading path and shown text derived from those above."""
    first = _first_body_region(frontmatter, regions)
    paths = heading_paths(regions)
    title = frontmatter.title or next((r.heading for r in regions if r.level == 1), None)
    pieces = metadata_pieces(frontmatter)
    chunks = [
        Chunk(region, (), pieces[index] if index < len(pieces) else None)
        for index, region in enumerate(regions[:first])
    ]
    contexts = [
        _context(title, path[:-1] if region.level else path)
        for region, path in zip(regions[first:], paths[first:], strict=True)
    ]
    silent = _silent_regions(text, regions, contexts, first)
    header = ""
    for index in range(first, len(regions)):
        region, path = regions[index], paths[index]
        body = text[region.char_start : region.char_end]
        if region.opens != CONTINUES_TABLE:
            header = table_header(body) or ""
        parts = contexts[index - first]
        lines = [SEPARATOR.join(parts)] if parts else []
        if region.opens == CONTINUES_TABLE and header:
            lines.append(_capped(header))
        # White space at the end would give a passage another key when a section is added below
        # it, and says nothing.
        shown = "\n".join([*lines, body.rstrip(_WHITE_SPACE)])
        chunks.append(Chunk(region, path, None if index in silent else shown))
    return chunks


def table_header(body: str) -> str | None:
    """Return the header row of the table that ``body`` ends in, else ``None``.

    A table ends at the first blank line, so it is in the last run of lines without one. Where it
    is followed by other text in the same chunk, nothing continues it and nothing asks.
    """
    lines = body.rstrip(_WHITE_SPACE).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = max((i for i, line in enumerate(lines) if not line.strip()), default=-1) + 1
    for row, following in pairwise(lines[first:]):
        if _DELIMITER_ROW.fullmatch(following) and row.strip():
            return row.strip()
    return None


def _first_body_region(frontmatter: Frontmatter, regions: Sequence[Region]) -> int:
    if not frontmatter.end:
        return 0
    return min(max(len(metadata_pieces(frontmatter)), 1), len(regions))


def heading_paths(regions: Sequence[Region]) -> list[tuple[str, ...]]:
    """Return, for each region, the headings that it stands under, its own included."""
    paths = []
    stack: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    for region in regions:
        level = region.level
        if level:
            while stack and stack[-1][0] >= level:
                stack.pop()
            stack.append((level, region.heading))
            path = tuple(heading for _, heading in stack)
        paths.append(path)
    return paths


@lru_cache(maxsize=4096)
def _context(title: str | None, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return title and headings, outermost first, as far as they fit the cap from the inside."""
    parts = [part for part in path if part]
    if title and parts[:1] != [title]:
        parts.insert(0, title)
    while len(parts) > 1 and not _fits(SEPARATOR.join(parts)):
        parts.pop(0)
    return tuple(map(_capped, parts))


def _fits(line: str) -> bool:
    # A token is at least a byte, so short lines need no tokenizer.
    return len(line.encode()) <= CONTEXT_TOKENS or count_tokens(line) <= CONTEXT_TOKENS


@lru_cache(maxsize=4096)
def _capped(line: str) -> str:
    if _fits(line):
        return line
    return line[: int(token_starts(line)[CONTEXT_TOKENS])]


def _silent_regions(
    text: str, regions: Sequence[Region], contexts: Sequence[tuple[str, ...]], first: int
) -> set[int]:
    """Return the numbers of the regions that need no vector because nothing in them is hidden.

    White space, and a heading directly above a deeper one, if the next passage that is shown
    repeats it whole.
    """
    silent = set()
    next_shown: tuple[str, ...] = ()
    for index in reversed(range(first, len(regions))):
        region = regions[index]
        body = text[region.char_start : region.char_end]
        following = regions[index + 1] if index + 1 < len(regions) else None
        if not body.strip(_WHITE_SPACE) or _is_repeated(region, body, following, next_shown):
            silent.add(index)
        else:
            next_shown = contexts[index - first]
    return silent


def _is_repeated(
    region: Region, body: str, following: Region | None, next_shown: tuple[str, ...]
) -> bool:
    if region.level == 0 or following is None or following.level <= region.level:
        return False
    heading = match_heading(body, region.level)
    return (
        heading is not None
        and not body[heading[1] :].strip(_WHITE_SPACE)
        and (not heading[0] or heading[0] in next_shown)
    )
