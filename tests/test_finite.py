"""NaN and infinities are caught where they arise, and never printed: JSON has no words for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.analysis.analyzer import query_terms
from kbindex.embed.hashing import HashEmbedder
from kbindex.output.render import to_json
from kbindex.search.bm25 import search_words
from kbindex.view.database import DamagedView
from kbindex.view.words import WordIndex
from testing.repositories import Repo, run

pytestmark = pytest.mark.quick

ODD = (math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("value", ODD)
def test_no_json_holds_what_json_has_no_words_for(value: float) -> None:
    for content in (value, [value], {"hits": [{"similarity": value}]}, {value: 1}):
        with pytest.raises(ValueError, match="JSON compliant"):
            to_json(content)


@pytest.mark.parametrize("value", ODD)
def test_a_passage_whose_vector_is_not_finite_fails_its_document_alone(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    embed = HashEmbedder.embed_documents

    def odd(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = embed(self, texts)
        vectors[["wraith" in text for text in texts], 3] = value
        return vectors

    monkeypatch.setattr(HashEmbedder, "embed_documents", odd)
    indexed.write("bundle/a.md", "# A\n\nA wraith.\n")
    indexed.write("bundle/b.md", "# B\n\nA wicket.\n")
    indexed.git("add", "--all")
    done = run(indexed, "update")
    assert done.code == 1
    assert "bundle/a.md: a passage can't be embedded: its vector has NaN or infinite" in done.err
    assert "documents: 1 added" in done.out
    assert run(indexed, "query", "wicket").code == 0


def test_a_query_whose_vector_is_not_finite_is_answered_from_words(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = np.full(HashEmbedder.identity.dimension, np.nan, np.float32)
    monkeypatch.setattr(HashEmbedder, "embed_query", lambda *_: nothing)
    done = run(indexed, "query", "--format", "json", "lenses")
    assert done.code == 0
    assert done.json()["degraded"] == "answered from words alone: the query's vector is not finite"
    assert "damaged" not in done.err
    assert run(indexed, "query", "--mode", "dense", "lenses").code == 4


class Words(WordIndex):
    """Finds each word once, and a passage with the score that it is given."""

    def __init__(self, score: float | None) -> None:
        self._score = score

    def n_chunks_with(self, _string: str) -> int:
        return 1

    def bm25(self, *_: object, **__: object) -> dict[int, float | None]:
        return {1: self._score}


@pytest.mark.parametrize("score", [None, math.inf])
def test_a_score_that_is_no_number_comes_from_damage(score: float | None) -> None:
    terms = query_terms("lenses", frozenset())
    assert search_words(Words(1.0), terms, 9, None, None)
    with pytest.raises(DamagedView):
        search_words(Words(score), terms, 9, None, None)
