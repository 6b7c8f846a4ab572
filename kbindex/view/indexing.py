"""A document → its records in the view: chunks with lines, anchors, text and terms. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbindex.analysis.analyzer import stored_terms
from kbindex.core.model import Entry, Frontmatter
from kbindex.document.anchors import Anchors
from kbindex.document.markdown import nested_headings
from kbindex.view.records import (
    ChunkRecord,
    ChunkTerms,
    DocumentRecord,
    IndexedDocument,
    Opening,
)

_LONGEST_TITLE = 512
"""Most characters of a title that are stored as terms, for it is repeated in every chunk."""
_LONGEST_PATH = 2048
"""Most characters of a heading path that are stored as terms, for the same reason."""


@dataclass(frozen=True)
class ReadDocument:
    """A document with its entries and what was read from its text."""

    path: str
    blob: str
    outline: str | None
    stale: str | None
    """Why its outline is not valid, ``None`` for a valid one."""
    text: str
    frontmatter: Frontmatter
    title: str | None
    type: str | None
    language: str | None
    entries: Sequence[Entry]


def index_document(document: ReadDocument, recipe: str) -> IndexedDocument:
    """Return the records of a document; ``recipe`` names what they are made with."""
    headings = tuple(_openings(document))
    matter = document.frontmatter
    record = DocumentRecord(
        path=document.path,
        blob=document.blob,
        outline=document.outline,
        recipe=recipe,
        stale=document.stale,
        title=document.title,
        type=document.type,
        status=matter.status,
        tags=matter.tags,
        language=document.language,
        headings=headings,
        problems="; ".join(f"line {line}: {message}" for line, message in matter.problems),
    )
    return IndexedDocument(record, tuple(_chunks(document, headings)))


def _openings(document: ReadDocument) -> Iterator[Opening]:
    """Yield each heading that opens a section."""
    anchors = Anchors()
    nested = iter([*nested_headings(document.text), (len(document.text), "")])
    at, text = next(nested)
    for entry in document.entries:
        region = entry.region
        if not region.level:
            continue
        while at < region.char_start:
            anchors.add(text)
            at, text = next(nested)
        anchor = anchors.add(region.heading)
        yield Opening(region.level, region.heading, anchor, region.char_start)


def _chunks(
    document: ReadDocument, headings: Sequence[Opening]
) -> Iterator[tuple[ChunkRecord, ChunkTerms]]:
    text = document.text
    line_starts = (
        np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), np.uint32) == ord("\n")) + 1
    )
    anchors = {heading.char_start: heading.anchor for heading in headings}
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
        record = ChunkRecord(
            ordinal=ordinal,
            char_start=start,
            char_end=end,
            first_line=int(first),
            last_line=int(last),
            n_tokens=region.n_tokens,
            heading=path,
            anchor=anchor if path else None,
            key=entry.key,
            # Metadata in many pieces has one text, which the first of them holds.
            text=None if is_metadata and ordinal else text[start:end],
        )
        yield (
            record,
            ChunkTerms(
                title=title.stems,
                heading=heading.stems,
                text=body.stems,
                beside=" ".join(part.beside for part in parts),
                accented=" ".join(part.accented for part in parts),
            ),
        )
