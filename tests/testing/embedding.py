"""Embedding as a build does it, without a repository."""

from __future__ import annotations

from pathlib import Path

from kbindex.configuration.config import Config
from kbindex.configuration.recipe import wanted_recipe
from kbindex.core.model import Recipe
from kbindex.embed import Embedder
from kbindex.embed.batch import Embedded, Text, embed_texts
from kbindex.local.cache import Cache


def embed_all(embedder: Embedder, texts: list[str], folder: Path) -> Embedded:
    """Embed texts with a cache in ``folder``; the key of a text is its number, 32 hex digits."""
    named = {f"{i:032x}": Text(text, f"doc{i}.md") for i, text in enumerate(texts)}
    with Cache(folder) as cache:
        return embed_texts(embedder, named, cache.replace_vectors, lambda _done, _total: None)


def recipe_of(embedder: Embedder) -> Recipe:
    """Return the recipe of an index that the embedder would make by default."""
    return wanted_recipe(Config(), embedder.identity, embedder.origin)
