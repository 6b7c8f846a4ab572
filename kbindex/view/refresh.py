"""Brings the view up to a snapshot: only documents whose blob or outline changed are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from kbindex.analysis.language import AUTO, NONE, detect_language, named_language
from kbindex.analysis.tokenizer import read_words
from kbindex.configuration.config import Config
from kbindex.configuration.recipe import identity_id, recipe_id, render_recipe
from kbindex.core.model import Entry, Frontmatter, Recipe, Snapshot
from kbindex.document.chunk import Limits, chunk
from kbindex.document.compose import compose
from kbindex.document.markdown import document_type, parse, parse_frontmatter
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.git.client import Git
from kbindex.git.paths import decode_path, encode_path
from kbindex.outline.file import make_entries
from kbindex.outline.freshness import compare
from kbindex.repo.repository import Repository
from kbindex.repo.snapshot import read_recipe
from kbindex.storage.reader import committed_vectors, load_committed
from kbindex.view.database import View
from kbindex.view.records import IndexedDocument, view_document
from kbindex.view.update import replace_documents

_ENOUGH = 20_000
"""Characters of a document that tell its language."""


def refresh_view(repository: Repository, snapshot: Snapshot, view: View, state: str) -> None:
    """Make ``view`` that of ``snapshot`` and record ``state``. The lock is held."""
    git, config = repository.git, repository.config
    recipe = read_recipe(git, snapshot, config)
    assert recipe is not None
    made_by, identity = f"{recipe_id(recipe)} {config.language}", identity_id(recipe.embedder)
    held = view.documents()
    unchanged = {
        path
        for path, blob in snapshot.documents.items()
        if held.get(encode_path(path), ())[1:] == (blob, snapshot.outlines.get(path), made_by)
    }
    gone = [entry[0] for path, entry in held.items() if decode_path(path) not in unchanged]
    changed = {p: blob for p, blob in snapshot.documents.items() if p not in unchanged}
    with repository.cache() as cache:
        committed, damage = load_committed(git, snapshot, cache, recipe.embedder, config.index_dir)
        if damage:
            raise damage[0]
        part = replace(snapshot, documents=changed)
        documents = list(_documents(git, config, part, recipe))
        read = {decode_path(document.path) for document in documents}
        keys = {entry.key for document in documents for entry in document.entries} - {"-"}
        keys |= view.keys_without_vector()
        vectors = cache.vectors(keys - committed) | committed_vectors(
            git, snapshot, cache, recipe.embedder, config.index_dir, keys & committed
        )
    about = {
        "state": state,
        "recipe": render_recipe(recipe),
        "unreadable": json.dumps(sorted(changed.keys() - read)),
    }
    columns = (view_document(document, made_by) for document in documents)
    replace_documents(view, identity, about, gone, columns, vectors, recipe.embedder.dimension)


def _documents(
    git: Git, config: Config, snapshot: Snapshot, recipe: Recipe
) -> Iterator[IndexedDocument]:
    for state in compare(snapshot, recipe.embedder, git.objects):
        if state.text is None:
            continue  # not text: check and status name it
        entries, chunks = state.entries, state.chunks
        frontmatter = parse_frontmatter(state.text)
        if not state.is_fresh:
            document = parse(state.text)
            regions = chunk(
                document,
                Limits(recipe.chunk_max_tokens, recipe.chunk_tokens),
                count_tokens,
                token_starts,
            )
            chunks = tuple(compose(state.text, frontmatter, regions))
            entries = tuple(make_entries(chunks, recipe.embedder))
        yield IndexedDocument(
            path=encode_path(state.path),
            blob=state.blob,
            outline=state.outline,
            stale=None if state.is_fresh else state.message,
            text=state.text,
            frontmatter=frontmatter,
            title=frontmatter.title or _first_h1(entries) or _file_name(state.path),
            type=document_type(state.path, frontmatter.type),
            language=_language(config, frontmatter, state.text),
            entries=entries,
            chunks=chunks,
        )


def _language(config: Config, frontmatter: Frontmatter, text: str) -> str | None:
    if config.language == NONE:
        return None
    if frontmatter.language and frontmatter.language != AUTO:
        return named_language(frontmatter.language)
    if config.language != AUTO:
        return named_language(config.language)
    return detect_language(read_words(text[:_ENOUGH]).inline)


def _file_name(path: str) -> str:
    name = PurePosixPath(path).stem
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _first_h1(entries: tuple[Entry, ...]) -> str | None:
    return next((e.region.heading for e in entries if e.region.opens == "1"), None) or None
