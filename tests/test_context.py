"""``context`` and ``related``: what fits is cited, what doesn't is named."""

from __future__ import annotations

import numpy as np
import pytest

from kbindex.core.model import Hit
from kbindex.search.context import fit_budget, render_excerpt
from testing.repositories import Repo


def words(text: str) -> int:
    return len(text.split())


def hit(rank: int, text: str) -> Hit:
    return Hit(
        rank=rank,
        id=f"d{rank}",
        path=f"bundle/d{rank}.md",
        title=f"D{rank}",
        type=None,
        status=None,
        score=1 / rank,
        similarity=None,
        matched_by=("dense",),
        heading=(),
        anchor=None,
        first_line=1,
        last_line=1,
        char_start=100,
        char_end=100 + len(text),
        blob="0" * 40,
        text=text,
    )


LONG = "word " * 200


@pytest.mark.parametrize("budget", [1, 5, 40, 60, 100, 250, 500, 10_000])
def test_a_context_fits_its_budget_and_names_everything_else(budget: int) -> None:
    hits = [hit(rank, LONG) for rank in (1, 2, 3)]
    found = fit_budget(hits, budget, words)
    rendered = "".join(render_excerpt(e.hit, e.text) for e in found.excerpts)
    assert words(rendered) <= found.n_tokens <= budget
    named = [e.hit for e in found.excerpts] + list(found.omitted)
    assert sorted(named, key=lambda h: h.rank) == hits


def test_a_cut_passage_is_partial_and_its_span_ends_where_it_was_cut() -> None:
    found = fit_budget([hit(1, LONG), hit(2, "short")], 60, words)
    (excerpt,) = found.excerpts
    assert excerpt.partial
    assert excerpt.text == LONG[: excerpt.char_end - 100]
    assert excerpt.text.endswith(" ")
    assert [h.rank for h in found.omitted] == [2]


def test_a_passage_that_fits_is_whole() -> None:
    found = fit_budget([hit(1, "a b c")], 100, words)
    assert not found.excerpts[0].partial
    assert found.excerpts[0].text == "a b c"


def test_every_excerpt_is_the_text_of_its_span(indexed: Repo) -> None:
    found = indexed.call("context", "cellar lamps", "--budget", "70", "--format", "json").json()
    assert found["tokens"] <= 70
    assert found["excerpts"]
    for excerpt in found["excerpts"]:
        start, end = excerpt["span"]
        assert indexed.blob(excerpt["path"]).decode()[start:end] == excerpt["text"]
    cited = {(e["path"], tuple(e["span"])) for e in found["excerpts"]}
    assert cited.isdisjoint({(o["path"], tuple(o["span"])) for o in found["omitted"]})


def test_a_context_without_room_exits_1_with_the_same_schema(indexed: Repo) -> None:
    done = indexed.call("context", "lamps", "--budget", "3", "--format", "json")
    assert done.code == 1
    assert done.json()["excerpts"] == []
    assert done.json()["omitted"]


def test_text_context_holds_only_excerpts_and_names_the_rest_on_stderr(indexed: Repo) -> None:
    done = indexed.call("context", "lamps", "--budget", "60")
    assert done.out.startswith("[bundle/")
    assert "omitted" in done.err


def test_related_names_the_nearest_documents_but_not_itself(indexed: Repo) -> None:
    done = indexed.call("related", "lamps", "--format", "json")
    assert done.code == 0
    ids = [document["id"] for document in done.json()["related"]]
    assert sorted(ids) == ["ops/rota", "plain"]


def test_related_ranks_by_the_mean_of_unit_chunk_vectors(indexed: Repo) -> None:
    from kbindex.repo.repository import open_repository
    from kbindex.view.open import use_view

    def vectors(view) -> dict[str, np.ndarray]:
        _, documents, slots = view.chunk_arrays()
        matrix = view.matrix(256)
        found = view.facets()
        own = {f.path: matrix[slots[documents == f.id]].mean(axis=0) for f in found}
        return {path: vector / np.linalg.norm(vector) for path, vector in own.items()}

    own = use_view(open_repository(indexed.root), vectors)
    found = indexed.call("related", "lamps", "--format", "json").json()["related"]
    for document in found:
        expected = own["bundle/lamps.md"] @ own[document["path"]]
        assert document["similarity"] == pytest.approx(expected, abs=1e-3)


def test_related_to_an_unknown_document_is_a_usage_error(indexed: Repo) -> None:
    assert indexed.call("related", "lamp").code == 2
