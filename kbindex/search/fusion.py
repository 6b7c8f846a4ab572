"""Two rankings of chunks → one: coverage-normalised convex fusion, collapsed to documents.

A convex combination of normalised scores (Bruch et al. 2023) instead of ranks: RRF throws the
distances away and costs up to 20 points where one half is weak. BM25 is divided by what the query
could reach at most rather than by its best hit, so that a query whose words are nowhere scores
low on words; and a passage with few of the words less than in proportion, so that meaning decides
where words explain little. Similarities are counted in standard deviations above their mean: what
the best of as many unrelated passages would reach by chance (√(2 ln n)) is full, or the best if it
stands out more. bundle/concepts/hybrid-search.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEPTH = 100
"""Candidates taken from each half."""
_EMPHASIS = 1.25
"""The exponent of a passage's share of the words."""


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """A chunk that one half or both found; absent is ``None``, never 0."""

    chunk: int
    document: int
    score: float
    similarity: float | None
    lexical: float | None
    """The share of the attainable BM25, with ``_EMPHASIS``, 0–1."""
    dense: float | None
    """The cosine, scaled to 0–1 beside words."""
    matched_by: tuple[str, ...]


def top_similar(
    similarities: NDArray[np.float32], is_candidate: NDArray[np.bool_], depth: int = DEPTH
) -> NDArray[np.intp]:
    """Return the indices of the ``depth`` most similar candidates, best first, ties by index."""
    indices = np.flatnonzero(is_candidate)
    if len(indices) > depth:
        nearest = np.argpartition(-similarities[indices], depth - 1)[:depth]
        worst = similarities[indices[nearest]].min()
        indices = indices[similarities[indices] >= worst]
    return indices[np.argsort(-similarities[indices], kind="stable")][:depth]


def fuse(
    chunks: NDArray[np.int32],
    documents: NDArray[np.int32],
    similarities: NDArray[np.float32] | None,
    dense: Sequence[int],
    lexical: dict[int, float],
    weight: float,
) -> list[ScoredChunk]:
    """Return the union of both halves' candidates, best first; ties by similarity, then index.

    ``dense`` and the keys of ``lexical`` are indices into ``chunks``; ``similarities`` has a NaN
    where a chunk has no vector and is ``None`` where there is no dense half. ``weight`` is that
    of the dense half, 0–1.
    """
    # Cosines of one model crowd into a narrow band; beside words they need its whole width.
    low, high = _range(similarities) if weight < 1.0 else (0.0, 1.0)
    is_dense = set(dense)
    found = []
    for index in sorted({*dense, *lexical}):
        similarity = _known(similarities, index)
        share = lexical[index] ** _EMPHASIS if index in lexical else None
        scaled = (
            None if similarity is None else min(max((similarity - low) / (high - low), 0.0), 1.0)
        )
        score = weight * (scaled or 0.0) + (1.0 - weight) * (share or 0.0)
        matched = (("dense",) if index in is_dense else ()) + (("lexical",) if share else ())
        found.append(
            ScoredChunk(
                int(chunks[index]), int(documents[index]), score, similarity, share, scaled, matched
            )
        )
    return sorted(  # stable: what is still equal stays in order of the index
        found, key=lambda c: (-c.score, math.inf if c.similarity is None else -c.similarity)
    )


def collapse(
    candidates: Sequence[ScoredChunk], per_document: int, n_hits: int
) -> list[ScoredChunk]:
    """Keep the best ``per_document`` candidates of each document, ``n_hits`` in all."""
    seen: dict[int, int] = {}
    kept = []
    for candidate in candidates:
        seen[candidate.document] = seen.get(candidate.document, 0) + 1
        if seen[candidate.document] <= per_document:
            kept.append(candidate)
        if len(kept) == n_hits:
            break
    return kept


def _range(similarities: NDArray[np.float32] | None) -> tuple[float, float]:
    """Return ``(low, high)``: the cosines that are scaled to 0 and 1."""
    if similarities is None:
        return 0.0, 1.0
    known = similarities[~np.isnan(similarities)]
    if not len(known):
        return 0.0, 1.0
    mean, best = float(known.mean()), float(known.max())
    by_chance = float(known.std()) * math.sqrt(2 * math.log(len(known)))
    reach = max(best - mean, by_chance)
    return (mean, mean + reach) if reach > 1e-6 else (best - 1.0, best)


def _known(similarities: NDArray[np.float32] | None, index: int) -> float | None:
    if similarities is None or np.isnan(similarities[index]):
        return None
    return float(similarities[index])
