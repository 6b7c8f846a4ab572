"""The records of a view: a document, its headings and its chunks, as named values. Pure.

The order of fields is that of ``DOCUMENT_VALUES`` and ``CHUNK_VALUES`` in ``database``. A record
is read from a row whose checksum was proven before: the checksum is that of the stored values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbindex.git.paths import decode_path, encode_path


@dataclass(frozen=True, slots=True)
class Opening:
    """A heading that opens a section."""

    level: int
    """1–6"""
    text: str
    anchor: str
    char_start: int


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document of the view."""

    path: str
    """The path from the repository's root."""
    blob: str
    outline: str | None
    """The blob id of its outline, ``None`` without one."""
    recipe: str
    """Names the recipe and language setting that its records were made with."""
    stale: str | None
    """Why its outline is not valid, ``None`` for a valid one."""
    title: str | None
    type: str | None
    status: str | None
    tags: tuple[str, ...]
    language: str | None
    """The language of its stems, ``None`` for words as they are written."""
    headings: tuple[Opening, ...]
    """In document order."""
    problems: str
    """The problems of its frontmatter as one line, empty without any."""

    def columns(self) -> tuple[object, ...]:
        """Return the values to store, in the schema's order behind the id."""
        return (
            encode_path(self.path),
            self.blob,
            self.outline,
            self.recipe,
            self.stale,
            self.title,
            self.type,
            self.status,
            json.dumps(self.tags),
            self.language,
            json.dumps([(h.level, h.text, h.anchor, h.char_start) for h in self.headings]),
            self.problems,
        )


def read_document(columns: Sequence[Any]) -> DocumentRecord:
    """Return the record of stored values. Raises ValueError or TypeError for other values."""
    path, blob, outline, recipe, stale, title, kind, status, tags, language, headings, problems = (
        columns
    )
    return DocumentRecord(
        decode_path(path),
        blob,
        outline,
        recipe,
        stale,
        title,
        kind,
        status,
        tuple(json.loads(tags)),
        language,
        tuple(Opening(*heading) for heading in json.loads(headings)),
        problems,
    )


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk of the view."""

    ordinal: int
    """Its position among the document's regions."""
    char_start: int
    char_end: int
    first_line: int
    last_line: int
    n_tokens: int
    heading: tuple[str, ...]
    """The heading path of its section, empty where no section can be addressed."""
    anchor: str | None
    key: str
    """32 hex digits."""
    text: str | None
    """``None`` for further pieces of metadata, whose text the first one holds."""

    def columns(self) -> tuple[object, ...]:
        """Return the values to store, in the schema's order behind id and document."""
        return (
            self.ordinal,
            self.char_start,
            self.char_end,
            self.first_line,
            self.last_line,
            self.n_tokens,
            json.dumps(self.heading),
            self.anchor,
            bytes.fromhex(self.key),
            self.text,
        )


def read_chunk(columns: Sequence[Any]) -> ChunkRecord:
    """Return the record of stored values. Raises ValueError or TypeError for other values."""
    ordinal, start, end, first, last, n_tokens, heading, anchor, key, text = columns
    path = tuple(json.loads(heading))
    return ChunkRecord(ordinal, start, end, first, last, n_tokens, path, anchor, key.hex(), text)


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The terms of a chunk in the text index, separated by spaces."""

    title: str
    heading: str
    text: str
    beside: str
    """Parts of names, pairs of characters and the like, of all three."""
    accented: str
    """Words with their accents, of all three."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document as it enters the view."""

    record: DocumentRecord
    chunks: tuple[tuple[ChunkRecord, ChunkTerms], ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The version of a document in the view."""

    id: int
    blob: str
    outline: str | None
    recipe: str


@dataclass(frozen=True, slots=True)
class Facets:
    """The properties of a document that filters look at."""

    id: int
    path: str
    type: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocatedChunk:
    """A chunk with its document and its text."""

    chunk: ChunkRecord
    document: DocumentRecord
    text: str
