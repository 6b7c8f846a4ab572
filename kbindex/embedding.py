"""Texts → vectors, a batch at a time, each kept at once: interrupted work is not done again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbindex.embed import Embedder
from kbindex.errors import EmbeddingError

Progress = Callable[[int, int], None]
Keep = Callable[[Mapping[str, NDArray[np.float16]]], None]
"""Is given the vectors of each batch by key."""

_BATCH_TEXTS = 8
"""Enough for the builtin model to use every core, few enough to lose little when interrupted."""


@dataclass(frozen=True)
class Text:
    """What to embed under a key, and the document to name if that fails."""

    shown: str
    path: str


@dataclass
class Embedded:
    """The new vectors by key, the number of calls, and why documents failed."""

    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    n_calls: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def count_calls(n_texts: int) -> int:
    """Return how many calls it takes to embed so many texts."""
    return -(-n_texts // _BATCH_TEXTS)


def embed_texts(
    embedder: Embedder, texts: Mapping[str, Text], keep: Keep, progress: Progress
) -> Embedded:
    """Embed every text. One that is refused fails its document alone; the rest goes on."""
    result = Embedded()
    keys = list(texts)
    for first in range(0, len(keys), _BATCH_TEXTS):
        batch = keys[first : first + _BATCH_TEXTS]
        _embed_batch(embedder, batch, texts, keep, result)
        progress(min(first + _BATCH_TEXTS, len(keys)), len(keys))
    return result


def _embed_batch(
    embedder: Embedder,
    batch: list[str],
    texts: Mapping[str, Text],
    keep: Keep,
    result: Embedded,
) -> None:
    while batch:
        try:
            vectors = embedder.embed_documents([texts[key].shown for key in batch])
        except EmbeddingError as error:
            refused = batch.pop(error.index)
            reason = f"a passage can't be embedded: {error.message}"
            result.failures.setdefault(texts[refused].path, reason)
            continue
        result.n_calls += 1
        stored = dict(zip(batch, vectors.astype(np.float16), strict=True))
        keep(stored)
        result.vectors |= stored
        return
