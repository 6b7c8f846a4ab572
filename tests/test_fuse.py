"""Two rankings into one: weights, ties, what is unknown, and collapsing to documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kbindex.search.fusion import ScoredChunk, collapse, fuse, top_similar

pytestmark = pytest.mark.quick

NAN = math.nan


def similarities_of(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def fused(
    similarities: NDArray[np.float32] | None,
    lexical: dict[int, float],
    weight: float = 0.5,
    dense: list[int] | None = None,
    n: int = 6,
) -> list[ScoredChunk]:
    """Fuse over ``n`` chunks whose ids are 100, 101, … in documents 0, 0, 1, 1, …."""
    if dense is None:
        dense = []
        if similarities is not None:
            dense = top_similar(similarities, ~np.isnan(similarities)).tolist()
    chunks = np.arange(100, 100 + n, dtype=np.int32)
    documents = (np.arange(n) // 2).astype(np.int32)
    return fuse(chunks, documents, similarities, dense, lexical, weight)


def order(candidates: list[ScoredChunk]) -> list[int]:
    return [candidate.chunk - 100 for candidate in candidates]


# top_similar


@pytest.mark.parametrize(
    ("values", "candidates", "depth", "expected"),
    [
        ([0.1, 0.9, 0.5], [1, 1, 1], 3, [1, 2, 0]),
        ([0.1, 0.9, 0.5], [1, 1, 1], 2, [1, 2]),
        ([0.1, 0.9, 0.5], [1, 0, 1], 3, [2, 0]),
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1], 2, [0, 1]),
        ([0.5, 0.7, 0.5, 0.5], [1, 1, 1, 1], 2, [1, 0]),
        ([0.0, -1.0, 1.0], [1, 1, 1], 9, [2, 0, 1]),
        ([NAN, 0.2, NAN], [0, 1, 0], 5, [1]),
        ([0.5], [0], 5, []),
        ([], [], 5, []),
    ],
)
def test_the_most_similar_come_first_and_ties_by_place(
    values: list[float], candidates: list[int], depth: int, expected: list[int]
) -> None:
    found = top_similar(similarities_of(*values), np.array(candidates, dtype=bool), depth)
    assert found.tolist() == expected


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 70))
@settings(deadline=None, max_examples=100)
def test_a_partial_sort_gives_what_a_full_one_would(values: list[int], depth: int) -> None:
    array = np.array(values, dtype=np.float32)
    expected = sorted(range(len(values)), key=lambda place: (-values[place], place))[:depth]
    assert top_similar(array, np.ones(len(values), bool), depth).tolist() == expected


# fuse


@pytest.mark.parametrize(
    ("weight", "expected"), [(0.0, [2, 1, 0]), (1.0, [0, 1, 2]), (0.9, [0, 1, 2]), (0.1, [2, 1, 0])]
)
def test_the_weight_decides_between_the_halves(weight: float, expected: list[int]) -> None:
    similarities = similarities_of(0.9, 0.5, 0.1, -0.5, -0.6, -0.7)
    found = fused(similarities, {0: 0.1, 1: 0.5, 2: 0.9}, weight)
    assert order(found)[:3] == expected


def test_ties_are_broken_by_chunk_id() -> None:
    found = fused(similarities_of(*[0.5] * 6), {5: 0.3, 0: 0.3, 3: 0.3})
    assert order(found) == [0, 3, 5, 1, 2, 4]


@given(
    st.lists(st.none() | st.floats(-1, 1, width=32), min_size=6, max_size=6),
    st.dictionaries(st.integers(0, 5), st.floats(0, 1), max_size=6),
    st.floats(0, 1),
)
@settings(deadline=None, max_examples=200)
def test_the_ranking_is_total_and_every_score_lies_between_0_and_1(
    values: list[float | None], lexical: dict[int, float], weight: float
) -> None:
    similarities = similarities_of(*(NAN if value is None else value for value in values))
    found = fused(similarities, lexical, weight)
    assert sorted(order(found)) == sorted(
        {place for place, value in enumerate(values) if value is not None} | set(lexical)
    )
    keys = [(-c.score, math.inf if c.similarity is None else -c.similarity, c.chunk) for c in found]
    assert keys == sorted(keys)
    assert all(0.0 <= candidate.score <= 1.0 + 1e-9 for candidate in found)
    assert found == fused(similarities, dict(reversed(lexical.items())), weight)


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6),
    st.dictionaries(st.integers(0, 5), st.floats(0, 1), max_size=6),
    st.floats(0, 1),
)
@settings(deadline=None, max_examples=100)
def test_the_parts_of_a_score_add_up(
    values: list[float], lexical: dict[int, float], weight: float
) -> None:
    for candidate in fused(similarities_of(*values), lexical, weight):
        dense = weight * candidate.dense if candidate.dense is not None else 0.0
        words = (1 - weight) * candidate.lexical if candidate.lexical is not None else 0.0
        assert candidate.score == pytest.approx(dense + words, abs=1e-12)


@given(st.lists(st.floats(-1, 1, width=32), min_size=6, max_size=6), st.floats(0.01, 1))
@settings(deadline=None, max_examples=100)
def test_without_words_the_order_is_that_of_the_similarities(
    values: list[float], weight: float
) -> None:
    scores = {c.chunk: c.score for c in fused(similarities_of(*values), {}, weight)}
    for one in range(6):
        for other in range(6):
            if values[one] > values[other]:
                assert scores[100 + one] >= scores[100 + other]


def test_a_similarity_counts_by_how_far_it_stands_out() -> None:
    rest = [0.80 + 0.001 * (n % 5) for n in range(98)]
    weak, strong = (
        {c.chunk: c for c in fused(similarities_of(best, *rest, 0.8), {}, n=100)}[100]
        for best in (0.805, 0.95)
    )
    assert strong.dense == 1.0, "nothing else comes near"
    assert weak.dense is not None
    assert 0.3 < weak.dense < 0.9, "the best of many that are all alike is not full"


def test_few_of_the_words_count_less_than_in_proportion() -> None:
    found = {c.chunk - 100: c.score for c in fused(None, {0: 1.0, 1: 0.5, 2: 0.1}, weight=0.0)}
    assert found[0] == 1.0
    assert found[1] < 0.5
    assert found[2] / 0.1 < found[1] / 0.5


def test_equal_scores_are_in_the_order_of_their_similarities() -> None:
    """What lies below the mean adds nothing, but nearer is still better."""
    found = fused(similarities_of(0.9, 0.1, 0.2, 0.15, 0.12, 0.3), {}, weight=0.4)
    assert order(found) == [0, 5, 2, 3, 4, 1]


def test_an_unknown_similarity_is_none_and_a_real_zero_is_kept() -> None:
    similarities = similarities_of(NAN, 0.0, 0.5, NAN, NAN, NAN)
    found = {c.chunk - 100: c for c in fused(similarities, {0: 0.4, 1: 0.4})}
    assert (found[0].similarity, found[0].dense) == (None, None)
    assert (found[1].similarity, found[1].dense) == (0.0, 0.0)
    assert found[2].lexical is None


def test_a_similarity_is_told_of_a_chunk_that_only_the_words_found() -> None:
    similarities = similarities_of(0.9, 0.8, 0.1, NAN, NAN, NAN)
    found = {c.chunk - 100: c for c in fused(similarities, {2: 1.0}, dense=[0, 1])}
    assert found[2].similarity == pytest.approx(0.1)
    assert found[2].dense == 0.0
    assert found[2].matched_by == ("lexical",)


def test_matched_by_names_the_halves_that_found_it() -> None:
    similarities = similarities_of(0.9, 0.8, 0.7, NAN, NAN, NAN)
    found = {c.chunk - 100: c.matched_by for c in fused(similarities, {1: 0.5, 3: 0.2, 2: 0.0})}
    assert found == {0: ("dense",), 1: ("dense", "lexical"), 2: ("dense",), 3: ("lexical",)}


def test_without_a_dense_half_only_words_count() -> None:
    found = fused(None, {3: 0.9, 1: 0.2}, weight=0.0)
    assert order(found) == [3, 1]
    assert [c.score for c in found] == pytest.approx([0.9**1.25, 0.2**1.25])
    assert all(c.similarity is None and c.dense is None for c in found)


def test_without_words_and_without_vectors_nothing_is_found() -> None:
    assert fused(None, {}) == []
    assert fused(similarities_of(*[NAN] * 6), {}) == []


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_equal_similarities_divide_by_nothing(value: float, weight: float) -> None:
    found = fused(similarities_of(*[value] * 6), {}, weight)
    assert order(found) == list(range(6))
    assert all(math.isfinite(candidate.score) for candidate in found)


def test_the_document_of_each_candidate_is_told() -> None:
    found = fused(similarities_of(*[0.5] * 6), {})
    assert {c.chunk - 100: c.document for c in found} == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}


# collapse


def candidates_of(*documents: int) -> list[ScoredChunk]:
    return [
        ScoredChunk(chunk, document, 1.0 - chunk / 100, None, None, None, ())
        for chunk, document in enumerate(documents)
    ]


@pytest.mark.parametrize(
    ("documents", "per_document", "n_hits", "expected"),
    [
        ([1, 1, 2, 1, 3], 1, 5, [0, 2, 4]),
        ([1, 1, 2, 1, 3], 2, 5, [0, 1, 2, 4]),
        ([1, 1, 2, 1, 3], 9, 5, [0, 1, 2, 3, 4]),
        ([1, 1, 2, 1, 3], 1, 2, [0, 2]),
        ([1, 1, 1], 1, 1, [0]),
        ([], 1, 5, []),
    ],
)
def test_each_document_keeps_its_best_passages_in_order(
    documents: list[int], per_document: int, n_hits: int, expected: list[int]
) -> None:
    kept = collapse(candidates_of(*documents), per_document, n_hits)
    assert [candidate.chunk for candidate in kept] == expected


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 4), st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_collapsing_never_reorders_nor_exceeds(
    documents: list[int], per_document: int, n_hits: int
) -> None:
    kept = collapse(candidates_of(*documents), per_document, n_hits)
    assert [c.chunk for c in kept] == sorted(c.chunk for c in kept)
    assert len(kept) <= n_hits
    for document in set(documents):
        assert sum(c.document == document for c in kept) <= per_document
    if len(kept) < n_hits:
        assert {c.document for c in kept} == set(documents)
