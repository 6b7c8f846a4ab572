"""A query against the view: both halves, fused, with their citations."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbindex.analysis.analyzer import query_terms
from kbindex.configuration.config import Config
from kbindex.configuration.patterns import Patterns, composed
from kbindex.core.errors import UsageError
from kbindex.core.model import Coverage, Hit
from kbindex.git.paths import decode_path, encode_path
from kbindex.search.bm25 import chunks_with_phrases, search_words
from kbindex.search.fusion import DEPTH, Candidate, collapse, fuse, top_similar
from kbindex.view.database import DamagedView, View


@dataclass(frozen=True)
class Filters:
    """What a hit must satisfy, applied before ranking; empty means anything."""

    path: str = ""
    type: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Request:
    """One search. ``weight`` is that of the dense half; ``vector`` is ``None`` without one."""

    query: str
    vector: NDArray[np.float32] | None
    weight: float
    with_words: bool
    n_hits: int = 5
    per_document: int = 1
    min_similarity: float | None = None
    with_text: bool = False
    explain: bool = False


@dataclass(frozen=True)
class Found:
    """Hits, how many candidates each half gave, and what could not be asked for."""

    hits: tuple[Hit, ...]
    n_lexical: int
    n_dense: int
    missing_phrases: tuple[str, ...] = ()
    """Quoted phrases that not every hit holds."""
    n_words_left_out: int = 0
    n_documents: int | None = None
    """How many documents the filters let through, ``None`` without filters."""


def search(view: View, config: Config, request: Request, filters: Filters) -> Found:
    """Return the best hits for ``request`` among the documents that ``filters`` let through."""
    chunks, documents, slots = view.chunk_arrays()
    allowed = _allowed_documents(view.db, config, filters)
    is_allowed = (
        np.isin(documents, sorted(allowed)) if allowed is not None else np.ones(len(chunks), bool)
    )
    terms = query_terms(request.query, view.languages())
    with_phrases, missing = chunks_with_phrases(view.db, terms)
    if with_phrases:
        is_allowed &= np.isin(chunks, sorted(with_phrases))
    similarities = dense = None
    if request.vector is not None:
        similarities = _similarities(view, slots, request.vector)
        is_allowed_vector = is_allowed & (slots >= 0)
        if request.min_similarity is not None:
            is_allowed_vector &= similarities >= request.min_similarity
        dense = top_similar(similarities, is_allowed_vector)
    words = (
        search_words(view.db, terms, len(chunks), allowed, with_phrases or None)
        if request.with_words
        else {}
    )
    place_of = _places(chunks)
    shares = sorted(
        ((int(place_of[c]), share) for c, share in words.items()), key=lambda s: (-s[1], s[0])
    )
    lexical = dict(shares[:DEPTH])
    if request.min_similarity is not None and similarities is not None:
        lexical = {p: s for p, s in lexical.items() if similarities[p] >= request.min_similarity}
    candidates = fuse(
        chunks,
        documents,
        similarities,
        [] if dense is None else dense.tolist(),
        lexical,
        request.weight,
    )
    best = collapse(candidates, request.per_document, request.n_hits)
    hits = _hits(view, config, best, request)
    return Found(
        tuple(hits),
        n_lexical=len(lexical),
        n_dense=0 if dense is None else len(dense),
        missing_phrases=tuple(missing),
        n_words_left_out=terms.n_left_out,
        n_documents=None if allowed is None else len(allowed),
    )


def coverage(view: View) -> Coverage:
    """Return how many documents and chunks each half of the search can see."""
    chunks, _, slots = view.chunk_arrays()
    n_documents = view.db.execute("SELECT count(*) FROM document").fetchone()[0]
    return Coverage(n_documents, len(chunks), view.n_with_words(), int((slots >= 0).sum()))


def nearest_documents(
    view: View, dimension: int, path: str, n_documents: int
) -> list[tuple[int, float]]:
    """Return (document id, cosine) of the documents nearest to ``path``, best first.

    A document's own vector is normalize(mean(normalize(chunk vectors))). It ranks nothing else.
    """
    _, documents, slots = view.chunk_arrays()
    known = slots >= 0
    numbers, members = np.unique(documents[known], return_inverse=True)
    sums = np.zeros((len(numbers), dimension), np.float32)
    with np.errstate(all="ignore"):
        np.add.at(sums, members, view.matrix(dimension)[slots[known]])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
    _require_finite(norms)
    vectors = np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)
    own = view.db.execute("SELECT id FROM document WHERE path = ?", (encode_path(path),)).fetchone()
    place = np.flatnonzero(numbers == own[0])
    if not len(place):
        return []
    similarities = vectors @ vectors[place[0]]
    order = [int(i) for i in np.argsort(-similarities, kind="stable") if i != place[0]]
    return [(int(numbers[i]), float(similarities[i])) for i in order[:n_documents]]


def _places(chunks: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the place in ``chunks`` of each id; what stands at other ids means nothing."""
    places = np.zeros(int(chunks.max(initial=0)) + 1, np.intp)
    places[chunks] = np.arange(len(chunks))
    return places


def _similarities(
    view: View, slots: NDArray[np.int32], vector: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return each chunk's cosine ``(n_chunks,)``, NaN without a vector."""
    matrix = view.matrix(len(vector))
    if len(matrix) == 0:
        return np.full(len(slots), np.nan, np.float32)
    with np.errstate(all="ignore"):  # what is no number is damage, and said as such
        similarities: NDArray[np.float32] = (matrix @ vector)[slots]
    _require_finite(similarities[slots >= 0])
    similarities[slots < 0] = np.nan
    return similarities


def _require_finite(numbers: NDArray[np.float32]) -> None:
    if not np.isfinite(numbers).all():
        raise DamagedView("a vector in the matrix is not a number")


def _allowed_documents(db: sqlite3.Connection, config: Config, filters: Filters) -> set[int] | None:
    if filters == Filters():
        return None
    found = db.execute("SELECT id, path, type, tags FROM document").fetchall()
    paths = {number: composed(decode_path(path)) for number, path, _, _ in found}
    matches_path = _path_filter(config, composed(filters.path), paths.values())
    return {
        number
        for number, _, kind, tags in found
        if matches_path(paths[number])
        and (not filters.type or (kind or "").casefold() == filters.type.casefold())
        and (not filters.tag or filters.tag.casefold() in map(str.casefold, json.loads(tags)))
    }


def _path_filter(config: Config, pattern: str, paths: Iterable[str]) -> Callable[[str], bool]:
    """Return what a pattern lets through: what it is the very path of, and what it matches."""
    if not pattern:
        return lambda _path: True
    try:
        patterns = Patterns([pattern])
    except ValueError as error:
        if not any(pattern in (path, config.document_path(path)) for path in paths):
            raise UsageError(f"--path: {error}") from None
        patterns = Patterns([])
    return lambda path: any(
        name == pattern or patterns.match(name) for name in (path, config.document_path(path))
    )


def _hits(view: View, config: Config, best: Sequence[Candidate], request: Request) -> list[Hit]:
    hits = []
    for rank, candidate in enumerate(best, start=1):
        chunk, document, text = view.passage(candidate.chunk)
        path = decode_path(document["path"])
        hits.append(
            Hit(
                rank=rank,
                id=config.document_id(path),
                path=path,
                blob=document["blob"],
                title=document["title"],
                type=document["type"],
                status=document["status"],
                score=candidate.score,
                similarity=candidate.similarity,
                matched_by=candidate.matched_by,
                char_start=chunk["char_start"],
                char_end=chunk["char_end"],
                first_line=chunk["first_line"],
                last_line=chunk["last_line"],
                heading=tuple(json.loads(chunk["heading"])),
                anchor=chunk["anchor"],
                text=text if request.with_text else None,
                explanation=_explanation(candidate, request.weight) if request.explain else None,
            )
        )
    return hits


def _explanation(candidate: Candidate, weight: float) -> dict[str, float]:
    """Return the parts of a score; they add up to it."""
    parts = {}
    if candidate.dense is not None:
        parts["dense"] = weight * candidate.dense
    if candidate.lexical is not None:
        parts["lexical"] = (1.0 - weight) * candidate.lexical
    return parts
