"""The one comparison of a snapshot's documents with its outlines, used by every verb.

Hook, update, check, status and view all ask the same question here, so they can't disagree.
No I/O: blobs come from the store that is passed in, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kbindex.core.model import EmbedderIdentity, Rule
from kbindex.document.markdown import MOST_DOCUMENT_BYTES, UnreadableDocument, decode
from kbindex.outline.file import ConflictMarkers, OutlineMismatch, parse_outline, verify_outline
from kbindex.outline.states import DocumentState, Known, Proven, Stale, Unreadable


class Blobs(Protocol):
    """A source of contents by object id: git's objects."""

    def read_blobs(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (object id, content) in the order asked."""

    def oversized(self, oids: Sequence[str], most_bytes: int) -> set[str]:
        """Return those of the objects that have more bytes."""


Pairs = Mapping[tuple[str, str], tuple[str, ...]]


def compare(
    documents: Mapping[str, str],
    outlines: Mapping[str, str],
    identity: EmbedderIdentity | None,
    blobs: Blobs,
    proven: Pairs | None = None,
    max_tokens: int | None = None,
) -> Iterator[DocumentState]:
    """Yield the state of every document, ordered by path.

    ``documents`` and ``outlines`` map the path of a document to the blob of it and of its outline.

    ``proven`` maps pairs of document and outline blobs that need no second proof to their keys.
    Without an ``identity`` (no usable recipe) no outline can be valid. With ``max_tokens`` one
    whose chunks are longer isn't, either.
    """
    proven = proven or {}
    unproven = []
    for path, blob in sorted(documents.items()):
        outline = outlines.get(path)
        if outline is not None and identity is not None and (blob, outline) in proven:
            yield Known(path, blob, outline, proven[blob, outline])
        else:
            unproven.append((path, blob, outline))
    oids = [oid for _, blob, outline in unproven for oid in (blob, outline) if oid]
    large = blobs.oversized(oids, MOST_DOCUMENT_BYTES)
    contents = blobs.read_blobs(oid for oid in oids if oid not in large)
    for path, blob, outline in unproven:
        document = None if blob in large else next(contents)[1]
        listing = b"" if outline in large else next(contents)[1] if outline else None
        yield _state(path, blob, outline, document, listing, identity, max_tokens)


def _state(
    path: str,
    blob: str,
    outline: str | None,
    document: bytes | None,
    listing: bytes | None,
    identity: EmbedderIdentity | None,
    max_tokens: int | None,
) -> DocumentState:
    """Compare one document, ``None`` if it is too large, with its outline, ``None`` without one."""
    try:
        text = decode(document)
    except UnreadableDocument as error:
        return Unreadable(path, blob, outline, error.reason, error.line)
    if outline is None or listing is None:
        return Stale(path, blob, None, text, Rule.MISSING_OUTLINE, "it is not in the index")
    if identity is None:
        return Stale(path, blob, outline, text, Rule.STALE_DOCUMENT, "the recipe changed")
    try:
        lines = parse_outline(listing.decode("utf-8", "replace"))
        entries = verify_outline(text, lines, identity, max_tokens)
    except ConflictMarkers as error:
        return Stale(path, blob, outline, text, Rule.CONFLICT_MARKERS, error.reason)
    except OutlineMismatch as error:
        line = text.count("\n", 0, error.char_start) + 1
        return Stale(path, blob, outline, text, Rule.STALE_DOCUMENT, error.reason, line)
    return Proven(path, blob, outline, text, tuple(entries))
