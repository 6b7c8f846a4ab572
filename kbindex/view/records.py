"""A document as the view holds it: its chunks with lines, anchors, text and terms. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbindex.analysis.analyzer import stored_terms
from kbindex.core.model import Entry, Frontmatter, ViewChunk, ViewDocument
from kbindex.document.anchors import Anchors
from kbindex.document.markdown import nested_headings

_LONGEST_TITLE = 512
"""Characters of a title that are stored as terms, for it stands beside every chunk."""
_LONGEST_PATH = 2048
"""Characters of headings, likewise."""


@dataclass(frozen=True)
class IndexedDocument:
    """What is known of a document that goes into the view."""

    path: bytes
    blob: str
    outline: str | None
    stale: str | None
    """Why its outline doesn't stand; ``None`` when it does."""
    text: str
    frontmatter: Frontmatter
    title: str | None
    type: str | None
    language: str | None
    entries: Sequence[Entry]


def view_document(document: IndexedDocument, recipe: str) -> ViewDocument:
    """Return the columns of a document and of its chunks."""
    headings = list(_headings(document))
    matter = document.frontmatter
    return ViewDocument(
        columns=(
            document.path,
            document.blob,
            document.outline,
            recipe,
            document.stale,
            document.title,
            document.type,
            matter.status,
            json.dumps(matter.tags),
            document.language,
            json.dumps(headings),
            "; ".join(f"line {line}: {message}" for line, message in matter.problems),
        ),
        chunks=tuple(_chunks(document, headings)),
    )


def _headings(document: IndexedDocument) -> Iterator[tuple[int, str, str, int]]:
    """Yield (level, text, anchor, char_start) of each heading that opens a section."""
    anchors = Anchors()
    nested = iter([*nested_headings(document.text), (len(document.text), "")])
    at, text = next(nested)
    for entry in document.entries:
        region = entry.region
        if region.opens in ("0", "t"):
            continue
        while at < region.char_start:
            anchors.add(text)
            at, text = next(nested)
        yield int(region.opens), region.heading, anchors.add(region.heading), region.char_start


def _chunks(
    document: IndexedDocument, headings: Sequence[tuple[int, str, str, int]]
) -> Iterator[ViewChunk]:
    text = document.text
    line_starts = (
        np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), np.uint32) == ord("\n")) + 1
    )
    anchors = {start: anchor for _, _, anchor, start in headings}
    anchor: str | None = None
    title = stored_terms((document.title or "")[:_LONGEST_TITLE], document.language)
    for ordinal, entry in enumerate(document.entries):
        region = entry.region
        anchor = anchors.get(region.char_start, anchor) if entry.heading_path else None
        # A heading without words, or without an anchor, addresses no section.
        path = entry.heading_path if anchor and entry.heading_path[-1] else ()
        if entry.shown is None:
            continue
        is_metadata = region.char_end <= document.frontmatter.end
        start, end = (
            (0, document.frontmatter.end) if is_metadata else (region.char_start, region.char_end)
        )
        first, last = np.searchsorted(line_starts, (start, max(end - 1, start)), side="right") + 1
        # Of a frontmatter the values are searched, the text is YAML.
        searched = entry.shown if is_metadata else text[start:end]
        heading, body = (
            stored_terms(words, document.language)
            for words in (" ".join(entry.heading_path)[:_LONGEST_PATH], searched)
        )
        parts = (title, heading, body)
        yield ViewChunk(
            columns=(
                ordinal,
                start,
                end,
                int(first),
                int(last),
                region.n_tokens,
                json.dumps(path),
                anchor if path else None,
                bytes.fromhex(entry.key),
                # Metadata in many pieces has one text, which the first of them holds.
                None if is_metadata and ordinal else text[start:end],
            ),
            terms=(
                *(part.stems for part in parts),
                " ".join(part.beside for part in parts),
                " ".join(part.accented for part in parts),
            ),
        )
