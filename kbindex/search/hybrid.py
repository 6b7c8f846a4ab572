"""A query against the view: both halves, fused, with their citations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kbindex.analysis.analyzer import query_terms
from kbindex.configuration.config import Config
from kbindex.configuration.patterns import Patterns, composed
from kbindex.core.errors import UsageError
from kbindex.core.model import Found, Hit
from kbindex.search.bm25 import chunks_with_phrases, search_words
from kbindex.search.fusion import DEPTH, ScoredChunk, collapse, fuse, top_similar
from kbindex.search.request import Filters, Request
from kbindex.view.database import DamagedView, View


def search(view: View, config: Config, request: Request) -> Found:
    """Return the best hits among the documents that the request's filters let through.

    Raises UsageError for a pattern that can't be read, and DamagedView.
    """
    options = request.options
    chunks, documents, slots = view.chunk_arrays()
    allowed = _allowed_documents(view, config, options.filters)
    is_allowed = (
        np.isin(documents, sorted(allowed)) if allowed is not None else np.ones(len(chunks), bool)
    )
    terms = query_terms(request.query, view.languages())
    with_phrases, missing = chunks_with_phrases(view.words, terms)
    if with_phrases:
        is_allowed &= np.isin(chunks, sorted(with_phrases))
    similarities = dense = None
    if request.vector is not None:
        similarities = _similarities(view, slots, request.vector)
        is_allowed_vector = is_allowed & (slots >= 0)
        if options.min_similarity is not None:
            is_allowed_vector &= similarities >= options.min_similarity
        dense = top_similar(similarities, is_allowed_vector)
    words = (
        search_words(view.words, terms, len(chunks), allowed, with_phrases or None)
        if request.with_words
        else {}
    )
    index_of = _index_by_id(chunks)
    shares = sorted(
        ((int(index_of[c]), share) for c, share in words.items()), key=lambda s: (-s[1], s[0])
    )
    lexical = dict(shares[:DEPTH])
    if options.min_similarity is not None and similarities is not None:
        lexical = {i: s for i, s in lexical.items() if similarities[i] >= options.min_similarity}
    candidates = fuse(
        chunks,
        documents,
        similarities,
        [] if dense is None else dense.tolist(),
        lexical,
        request.weight,
    )
    best = collapse(candidates, options.per_document, options.n_hits)
    hits = _hits(view, config, best, request)
    return Found(
        tuple(hits),
        n_lexical=len(lexical),
        n_dense=0 if dense is None else len(dense),
        missing_phrases=tuple(missing),
        n_words_left_out=terms.n_left_out,
        n_documents=None if allowed is None else len(allowed),
    )


def _index_by_id(chunks: NDArray[np.int32]) -> NDArray[np.intp]:
    """Map chunk id → index in ``chunks``: ``(max_id + 1,)``; unused ids are undefined."""
    index_of = np.zeros(int(chunks.max(initial=0)) + 1, np.intp)
    index_of[chunks] = np.arange(len(chunks))
    return index_of


def _similarities(
    view: View, slots: NDArray[np.int32], vector: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return each chunk's cosine ``(n_chunks,)``, NaN without a vector."""
    matrix = view.matrix(len(vector))
    if len(matrix) == 0:
        return np.full(len(slots), np.nan, np.float32)
    with np.errstate(all="ignore"):  # what is no number is damage, and said as such
        similarities: NDArray[np.float32] = (matrix @ vector)[slots]
    require_finite(similarities[slots >= 0])
    similarities[slots < 0] = np.nan
    return similarities


def require_finite(numbers: NDArray[np.float32]) -> None:
    """Raise DamagedView for NaN and infinities."""
    if not np.isfinite(numbers).all():
        raise DamagedView("a vector in the matrix is not a number")


def _allowed_documents(view: View, config: Config, filters: Filters) -> set[int] | None:
    """Return the ids of documents that the filters let through, ``None`` without filters."""
    if filters == Filters():
        return None
    found = view.facets()
    paths = {facets.id: composed(facets.path) for facets in found}
    matches_path = _path_filter(config, composed(filters.path), paths.values())
    kind, tag = filters.type.casefold(), filters.tag.casefold()
    return {
        facets.id
        for facets in found
        if matches_path(paths[facets.id])
        and (not kind or (facets.type or "").casefold() == kind)
        and (not tag or tag in map(str.casefold, facets.tags))
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


def _hits(view: View, config: Config, best: Sequence[ScoredChunk], request: Request) -> list[Hit]:
    hits = []
    for rank, candidate in enumerate(best, start=1):
        located = view.chunk(candidate.chunk)
        chunk, document = located.chunk, located.document
        explain = request.options.explain
        hits.append(
            Hit(
                rank=rank,
                id=config.document_id(document.path),
                path=document.path,
                blob=document.blob,
                title=document.title,
                type=document.type,
                status=document.status,
                score=candidate.score,
                similarity=candidate.similarity,
                matched_by=candidate.matched_by,
                char_start=chunk.char_start,
                char_end=chunk.char_end,
                first_line=chunk.first_line,
                last_line=chunk.last_line,
                heading=chunk.heading,
                anchor=chunk.anchor,
                text=located.text if request.options.with_text else None,
                explanation=_explanation(candidate, request.weight) if explain else None,
            )
        )
    return hits


def _explanation(candidate: ScoredChunk, weight: float) -> dict[str, float]:
    """Return the parts of a score; they add up to it."""
    parts = {}
    if candidate.dense is not None:
        parts["dense"] = weight * candidate.dense
    if candidate.lexical is not None:
        parts["lexical"] = (1.0 - weight) * candidate.lexical
    return parts
