"""Every type that crosses a module border. No behaviour beyond what follows from the fields.

Offsets are code points of the decoded blob, 0-based, end exclusive; lines are 1-based and
inclusive and end at ``\\n``, as git and grep count them. Paths are strings decoded from git's
bytes as UTF-8 with ``surrogateescape``, so that a name with any bytes survives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

CONTINUES_SECTION = "0"
CONTINUES_TABLE = "t"
NOT_EMBEDDED = "-"
MOST_DIMENSIONS = 1 << 14
"""Most components of a vector."""
SEPARATOR = " › "
"""Separates the headings of a path, for embedder and reader alike."""


class Rule(StrEnum):
    """The kind of a problem; the values are part of the JSON (bundle/reference/check-json.md)."""

    STALE_DOCUMENT = "stale-document"
    MISSING_OUTLINE = "missing-outline"
    ORPHAN_OUTLINE = "orphan-outline"
    MISSING_VECTOR = "missing-vector"
    BAD_VECTOR = "bad-vector"
    FOREIGN_VECTOR = "foreign-vector"
    RECIPE_MISMATCH = "recipe-mismatch"
    DAMAGED_FILE = "damaged-file"
    UNREADABLE_DOCUMENT = "unreadable-document"
    CONFLICT_MARKERS = "conflict-markers"
    NOT_CANONICAL = "not-canonical"
    AUDIT_MISMATCH = "audit-mismatch"
    FRONTMATTER = "frontmatter"
    LEFT_OUT = "left-out"
    STRAY_FILE = "stray-file"
    UNSTAGED = "unstaged"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a document or the index that a user should know; never an exception."""

    rule: Rule
    path: str
    message: str
    line: int | None = None
    remedy: str | None = None
    _: KW_ONLY
    mended_by_update: bool = False
    """Whether ``kbindex update`` is the remedy."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of embedding a sample of an index again."""

    n_chunks: int
    least_cosine: float | None
    """The least cosine of a stored and a computed vector, ``None`` if none was compared."""
    problems: tuple[Problem, ...] = ()


class Status(StrEnum):
    """The outcome of a check of ``doctor``; the values are part of its JSON."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of ``doctor``."""

    check: str
    status: Status
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The YAML block of a document; ``end`` is the offset of the body (0: no block)."""

    end: int = 0
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    type: str | None = None
    status: str | None = None
    language: str | None = None
    problems: tuple[tuple[int, str], ...] = ()
    """(line, message) pairs."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading that opens a section. ``text`` is its source on one line, markers removed."""

    char_start: int
    char_end: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block; ``item_starts`` are its list items but the first, or table body rows."""

    char_start: int
    kind: str
    """heading | paragraph | list | table | code | other"""
    item_starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: frontmatter, and the body's blocks and headings in order."""

    text: str
    frontmatter: Frontmatter
    headings: tuple[Heading, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A contiguous part of a document; the regions of a document tile its text."""

    char_start: int
    char_end: int
    n_tokens: int
    opens: str
    """``1``–``6``: the level of the heading it begins with; ``0`` or ``t``: what it continues."""
    heading: str = ""

    @property
    def level(self) -> int:
        """The level of the heading that it begins with, 1–6, or 0 where it continues something."""
        return int(self.opens) if self.opens.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A region with its context, before an embedder gives it a key."""

    region: Region
    heading_path: tuple[str, ...]
    shown: str | None
    """The exact text shown to the embedder, ``None`` for a region that is not embedded."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an outline file: the claim that a region has a key."""

    key: str
    """32 hex digits, or ``NOT_EMBEDDED``."""
    region: Region


@dataclass(frozen=True, slots=True)
class Entry:
    """A region of a document with its key and everything that the key was derived from."""

    key: str
    """32 hex digits, or ``NOT_EMBEDDED``."""
    region: Region
    heading_path: tuple[str, ...]
    shown: str | None
    """The exact text shown to the embedder, ``None`` for a region that is not embedded."""

    @property
    def line(self) -> Line:
        """Its line in the outline file."""
        return Line(self.key, self.region)


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """The properties of an embedder; two vectors are comparable if all of them agree."""

    provider: str
    model: str
    digest: str
    dimension: int
    query_prefix: str = ""
    document_prefix: str = ""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The server that vectors came from; empty for an embedder that runs in the process."""

    server: str = ""
    """Its name and version at the time of the build."""
    canaries: tuple[str, ...] = ()
    """Vectors of fixed texts, packed: they tell whether a server computes as that one did."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The embedder, limits and versions that made an index; the content of ``recipe.json``."""

    embedder: EmbedderIdentity
    chunk_tokens: int
    chunk_max_tokens: int
    format: int = 1
    chunker: int = 1
    composition: int = 1
    needs: str = "0.1.0"
    """The first version of kbindex that can make it."""
    dtype: str = "float16"
    origin: Origin = Origin()
    """The server that made the vectors; it does not decide whether vectors are comparable."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stored chunk without its vector, which travels beside it as ``(n_rows, dim)`` float16."""

    key: str
    embedder: str
    path: str
    ordinal: int
    blob: str
    char_start: int
    char_end: int
    heading: tuple[str, ...]
    n_tokens: int
    sum: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The documents and the index files of one git tree, as object ids; nothing is read yet."""

    tree: str
    documents: Mapping[str, str]
    """Path from the repository's root → blob id."""
    outlines: Mapping[str, str]
    """Path of a *document* → blob id of its outline."""
    orphans: Mapping[str, str]
    """Path of an outline without a document → its blob id."""
    wal: Mapping[str, str]
    """File name → blob id."""
    table: Mapping[str, str]
    """Path below ``chunks.lance/`` → blob id."""
    recipe: str | None
    lineage: str | None = None
    """The blob id of the table's mark."""
    skipped: tuple[Problem, ...] = ()
    refused: tuple[Problem, ...] = ()
    """Entries below the index folder for which the index is not read."""
    strays: tuple[Problem, ...] = ()
    """Files below the index folder that nothing reads."""
    left_out: tuple[Problem, ...] = ()
    """The first files that look like documents and are left out."""
    n_left_out: int = 0

    @property
    def has_index(self) -> bool:
        """Whether anything of an index is there; without a recipe it is damaged."""
        parts = (self.recipe, self.outlines, self.orphans, self.wal, self.table, self.refused)
        return any(parts)


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a query, with its citation."""

    rank: int
    id: str
    path: str
    title: str | None
    type: str | None
    status: str | None
    score: float
    similarity: float | None
    matched_by: tuple[str, ...]
    heading: tuple[str, ...]
    anchor: str | None
    first_line: int
    last_line: int
    char_start: int
    char_end: int
    blob: str
    text: str | None = None
    explanation: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the index each half of the search can see."""

    documents: int
    chunks: int
    lexical: int
    dense: int


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    hits: tuple[Hit, ...] = ()
    n_lexical: int = 0
    """The candidates of the lexical half."""
    n_dense: int = 0
    """The candidates of the dense half."""
    missing_phrases: tuple[str, ...] = ()
    """Quoted phrases that not every hit holds."""
    n_words_left_out: int = 0
    """Words of the query beyond those that are looked for."""
    n_documents: int | None = None
    """The documents that the filters let through, ``None`` without filters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query: what was found, and what has to be known to judge it."""

    query: str
    mode: str
    """lexical | dense | hybrid"""
    degraded: str | None
    """Why the dense half is missing although it was wanted, ``None`` where it isn't."""
    embedder: EmbedderIdentity
    stale: tuple[str, ...]
    """Documents that differ from what is indexed."""
    coverage: Coverage
    found: Found = Found()

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The hits, best first."""
        return self.found.hits
