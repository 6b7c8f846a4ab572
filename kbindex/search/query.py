"""Answers a query from the view: which halves are asked, and what has to be said about it."""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

from kbindex.analysis.analyzer import MOST_TERMS
from kbindex.configuration.recipe import (
    compare_recipes,
    name_changes,
    refuse_other_composition,
    wanted_recipe,
)
from kbindex.core.errors import NoEmbedderError, RecipeError, UsageError
from kbindex.core.model import Answer, Recipe
from kbindex.embed import HASH, Embedder
from kbindex.embed.select import expected_identity, open_embedder
from kbindex.repo.repository import Repository
from kbindex.search.hybrid import search
from kbindex.search.request import QueryOptions, Request
from kbindex.view.database import View
from kbindex.view.open import uncovered_documents, use_view, view_recipe
from kbindex.view.unstaged import StaleDocuments

LONGEST_MEANING = 2000
"""Characters of a query that are embedded; about what the model reads at once."""
MODES = ("auto", "hybrid", "dense", "lexical")


def readable(text: str) -> str:
    """Return a query as text, whatever bytes the shell passed. Raises UsageError if it's empty."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("the query is empty", "kbindex query 'words or a question'")
    return text


def answer_query(
    repository: Repository, text: str, options: QueryOptions, stale: StaleDocuments
) -> Answer:
    """Search the view. Raises RecipeError or NoEmbedderError where the dense half is refused."""
    if options.min_similarity is not None and math.isnan(options.min_similarity):
        raise UsageError("--min-similarity is not a number")
    return use_view(repository, lambda view: _answer(repository, view, text, options, stale))


def _answer(
    repository: Repository, view: View, text: str, options: QueryOptions, stale: StaleDocuments
) -> Answer:
    recipe = view_recipe(view, repository.config)
    embedder, vector, degraded = None, None, None
    if options.mode != "lexical":
        embedder, vector, degraded = _embed_query(repository, recipe, text, options.mode)
    has_dense = vector is not None
    mode = options.mode if options.mode != "auto" else "hybrid" if has_dense else "lexical"
    weight = {"dense": 1.0, "lexical": 0.0}.get(mode, weight_of(repository, embedder))
    request = Request(text, vector, weight, with_words=mode != "dense", options=options)
    found = search(view, repository.config, request)
    return Answer(
        query=text,
        mode=mode,
        degraded=degraded,
        embedder=recipe.embedder,
        stale=stale.paths(uncovered_documents(view)),  # waits for git, which began before
        coverage=view.coverage(),
        found=found,
    )


def _embed_query(
    repository: Repository, recipe: Recipe, text: str, mode: str
) -> tuple[Embedder | None, NDArray[np.float32] | None, str | None]:
    """Return embedder, vector and, where ``auto`` has to go without, the reason."""
    try:
        embedder = query_embedder(repository, recipe)
        return embedder, embed_query(embedder, text), None
    except NoEmbedderError as error:
        if mode != "auto":
            raise
        return None, None, f"answered from words alone: {error.message}"


def embed_query(embedder: Embedder, text: str) -> NDArray[np.float32]:
    """Return the vector ``(dimension,)`` that ``text`` is searched by: that of its beginning.

    Raises NoEmbedderError, also where the embedder gives something that nothing is similar to.
    """
    vector = embedder.embed_query(text[:LONGEST_MEANING])
    if not np.isfinite(vector).all():
        raise NoEmbedderError("the query's vector is not finite", "put it in other words")
    return vector


def query_embedder(repository: Repository, recipe: Recipe) -> Embedder:
    """Return the configured embedder, if it is that of the index.

    Raises RecipeError if it isn't, NoEmbedderError if it can't be loaded or reached.
    """
    config = repository.config
    refuse_other_composition(recipe)
    _require_identity(recipe, wanted_recipe(config, expected_identity(config, recipe.embedder)))
    embedder = open_embedder(config, recipe, repository.cache_dir, os.environ, for_query=True)
    _require_identity(recipe, wanted_recipe(config, embedder.identity, embedder.origin))
    return embedder


def _require_identity(recipe: Recipe, wanted: Recipe) -> None:
    """Refuse to compare vectors of two embedders; say in what they differ."""
    if recipe.embedder != wanted.embedder:
        changes = compare_recipes(recipe, wanted)
        named = name_changes(change for change in changes if change.is_of_embedder)
        ours, theirs = wanted.embedder.name, recipe.embedder.name
        who = f"{theirs}, the configured embedder is {ours}"
        if ours == theirs:
            who = f"another {theirs} than the one here"
        raise RecipeError(
            f"the index was made by {who}: their vectors can't be compared ({named})",
            "kbindex update   (or set 'embedder' back; --mode lexical works meanwhile)",
            mended_by_update=True,
        )


def weight_of(repository: Repository, embedder: Embedder | None) -> float:
    """Return the weight of the dense half: the configured one or the embedder's own."""
    configured = repository.config.dense_weight
    if configured >= 0 or embedder is None:
        return max(configured, 0.0)
    return embedder.dense_weight


def answer_notices(answer: Answer) -> list[str]:
    """Return what is degraded, partial or stale about an answer, a sentence each."""
    notices = []
    if answer.degraded:
        notices.append(answer.degraded)
    if answer.embedder.provider == HASH:
        notices.append("the 'hash' embedder carries no meaning; it is for trying things out")
    if len(answer.query) > LONGEST_MEANING:
        notices.append(
            f"the query is long: its meaning is that of its first {LONGEST_MEANING} characters"
        )
    found = answer.found
    if found.n_words_left_out and answer.mode != "dense":
        notices.append(
            f"of the query's words the first {MOST_TERMS} are looked for, "
            f"{found.n_words_left_out} are not"
        )
    if found.n_documents == 0:
        notices.append("no document passes the filters")
    has_no_word = not (found.n_lexical or found.n_words_left_out)
    if answer.mode == "hybrid" and answer.hits and has_no_word:
        notices.append("none of the query's words is found: the hits are from meaning alone")
    for phrase in found.missing_phrases:
        notices.append(f"no hit holds the words '{phrase}' in this order: they count one by one")
    if answer.coverage.dense < answer.coverage.chunks:
        notices.append(
            f"the dense half covers {answer.coverage.dense} of {answer.coverage.chunks} chunks "
            "(kbindex update)"
        )
    if answer.stale:
        named = ", ".join(answer.stale[:3]) + (", …" if len(answer.stale) > 3 else "")
        notices.append(f"{len(answer.stale)} documents differ from what is indexed: {named}")
    return notices
