"""Two trees and a question file → whose answers move. Each tree gets a view in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import NoEmbedderError, RecipeError
from kbindex.core.model import Hit
from kbindex.embed import Embedder
from kbindex.evaluation.questions import Question
from kbindex.evaluation.runner import embed_questions
from kbindex.repo.repository import write_lock
from kbindex.search.hybrid import search
from kbindex.search.query import query_embedder, weight_of
from kbindex.search.request import QueryOptions, Request
from kbindex.storage.tree import IndexTree
from kbindex.view.files import view_in_memory
from kbindex.view.refresh import refresh_view

_K = 5


@dataclass(frozen=True)
class Move:
    """A question whose first five hits are others, or in another order."""

    question: Question
    before: tuple[Hit, ...]
    after: tuple[Hit, ...]


def find_moves(
    before: IndexTree, after: IndexTree, questions: Sequence[Question]
) -> tuple[list[Move], str]:
    """Return the questions whose answers differ, and why only words were compared, if so."""
    try:
        one, other = _embedder(before), _embedder(after)
        vectors = embed_questions(one, questions)
        is_same = one and other and one.identity == other.identity
        others = vectors if is_same else embed_questions(other, questions)
        reason = ""
    except (RecipeError, NoEmbedderError) as error:  # none for both: what is compared is alike
        one, other, vectors, others, reason = None, None, {}, {}, error.message
    old = _answers(before, questions, one, vectors)
    new = _answers(after, questions, other, others)
    moves = [
        Move(question, old[question.id], new[question.id])
        for question in questions
        if list(map(_citation, old[question.id])) != list(map(_citation, new[question.id]))
    ]
    return moves, reason


def move_json(move: Move) -> dict[str, Any]:
    """Return a move in the schema of ``diff --queries --format json``."""
    return {
        "id": move.question.id,
        "query": move.question.query,
        "before": [_hit_json(hit) for hit in move.before],
        "after": [_hit_json(hit) for hit in move.after],
        "answer_rank": {
            "before": answer_rank(move.question, move.before),
            "after": answer_rank(move.question, move.after),
        },
    }


def answer_rank(question: Question, hits: Sequence[Hit]) -> int | None:
    """Return the rank of the first hit in a document that answers, ``None`` if there is none."""
    names = {wanted.id.removesuffix(".md") for wanted in question.relevant}
    ranks = (hit.rank for hit in hits if {hit.id, hit.path.removesuffix(".md")} & names)
    return next(ranks, None)


def _hit_json(hit: Hit) -> dict[str, Any]:
    found = {"id": hit.id, "section": hit.anchor}
    return {name: value for name, value in found.items() if value is not None}


def _citation(hit: Hit) -> tuple[str, str | None]:
    return hit.path, hit.anchor


def _embedder(tree: IndexTree) -> Embedder | None:
    recipe = tree.recipe
    return query_embedder(tree.repository, recipe) if recipe else None


def _answers(
    tree: IndexTree,
    questions: Sequence[Question],
    embedder: Embedder | None,
    vectors: Mapping[str, NDArray[np.float32]],
) -> dict[str, tuple[Hit, ...]]:
    if not tree.snapshot.has_index:
        return {question.id: () for question in questions}
    view = view_in_memory()
    with write_lock(tree.git):
        refresh_view(tree, view, "")
    found = {}
    for question in questions:
        request = Request(
            question.query,
            vectors.get(question.id),
            weight_of(tree.repository, embedder),
            with_words=True,
            options=QueryOptions(n_hits=_K),
        )
        found[question.id] = search(view, tree.config, request).hits
    view.close()
    return found
