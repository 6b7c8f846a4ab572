"""Brings the view up to a snapshot: only documents whose blob or outline changed are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from pathlib import PurePosixPath

from kbindex.analysis.detection import prepare_detection
from kbindex.analysis.language import AUTO, NONE, detect_language, named_language
from kbindex.configuration.config import Config
from kbindex.configuration.recipe import identity_id, recipe_id, render_recipe
from kbindex.core.model import NOT_EMBEDDED, Entry, Frontmatter, Recipe
from kbindex.document.chunk import Limits, chunk
from kbindex.document.compose import compose
from kbindex.document.markdown import document_type, parse, parse_frontmatter
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.outline.file import make_entries
from kbindex.outline.states import Proven, Stale
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree
from kbindex.view.database import View
from kbindex.view.indexing import ReadDocument, index_document
from kbindex.view.update import replace_documents

_ENOUGH = 20_000
"""Characters of a document's body that tell its language."""


def refresh_view(tree: IndexTree, view: View, state: str) -> None:
    """Make ``view`` that of the index in ``tree`` and record ``state``. The lock is held."""
    recipe, config, snapshot = tree.recipe, tree.config, tree.snapshot
    assert recipe is not None
    made_by, identity = f"{recipe_id(recipe)} {config.language}", identity_id(recipe.embedder)
    held = view.held()
    unchanged = {
        path
        for path, entry in held.items()
        if (entry.blob, entry.outline, entry.recipe)
        == (snapshot.documents.get(path), snapshot.outlines.get(path), made_by)
    }
    gone = [entry.id for path, entry in held.items() if path not in unchanged]
    changed = snapshot.documents.keys() - unchanged
    if changed and config.language == AUTO:
        prepare_detection()
    with tree.repository.cache() as cache:
        committed = CommittedRows(tree, recipe.embedder, cache)
        if committed.damage:
            raise committed.damage[0]
        documents = list(_documents(tree, recipe, changed))
        read = {document.path for document in documents}
        keys = {entry.key for document in documents for entry in document.entries} - {NOT_EMBEDDED}
        keys |= view.keys_without_vector()
        vectors = cache.vectors(keys - committed.keys) | committed.vectors(keys & committed.keys)
    about = {
        "state": state,
        "recipe": render_recipe(recipe),
        "unreadable": json.dumps(sorted(changed - read)),
    }
    indexed = (index_document(document, made_by) for document in documents)
    replace_documents(view, identity, about, gone, indexed, vectors, recipe.embedder.dimension)


def _documents(tree: IndexTree, recipe: Recipe, paths: Set[str]) -> Iterator[ReadDocument]:
    for state in tree.compare(recipe.embedder, paths=paths):
        if not isinstance(state, Proven | Stale):
            continue  # not text: check and status name it
        frontmatter = parse_frontmatter(state.text)
        if isinstance(state, Proven):
            entries, stale = state.entries, None
        else:
            entries, stale = _entries(state.text, frontmatter, recipe), state.message
        yield ReadDocument(
            path=state.path,
            blob=state.blob,
            outline=state.outline,
            stale=stale,
            text=state.text,
            frontmatter=frontmatter,
            title=frontmatter.title or _first_h1(entries) or _file_name(state.path),
            type=document_type(state.path, frontmatter.type),
            language=_language(tree.config, frontmatter, state.text),
            entries=entries,
        )


def _entries(text: str, frontmatter: Frontmatter, recipe: Recipe) -> tuple[Entry, ...]:
    """Return the entries that a document without a valid outline would have."""
    limits = Limits(recipe.chunk_max_tokens, recipe.chunk_tokens)
    regions = chunk(parse(text), limits, count_tokens, token_starts)
    return tuple(make_entries(compose(text, frontmatter, regions), recipe.embedder))


def _language(config: Config, frontmatter: Frontmatter, text: str) -> str | None:
    if config.language == NONE:
        return None
    if frontmatter.language and frontmatter.language != AUTO:
        return named_language(frontmatter.language)
    if config.language != AUTO:
        return named_language(config.language)
    return detect_language(text[frontmatter.end :][:_ENOUGH] or text[:_ENOUGH])


def _file_name(path: str) -> str:
    name = PurePosixPath(path).stem
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _first_h1(entries: tuple[Entry, ...]) -> str | None:
    return next((e.region.heading for e in entries if e.region.level == 1), None) or None
