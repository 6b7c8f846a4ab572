"""Embeds texts in batches and stores each batch at once, so that an interruption loses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError, TooLongError
from kbindex.embed import Embedder
from kbindex.embed.parallel import in_parallel

Progress = Callable[[int, int], None]
Keep = Callable[[Mapping[str, NDArray[np.float16]]], None]
"""Stores the vectors of one batch, by key."""

_BATCH_TEXTS = 8
"""Texts in a batch: enough for the builtin model to use every core, few enough to lose little."""


@dataclass(frozen=True)
class Text:
    """A text to embed, and the path of its document for messages."""

    shown: str
    path: str


@dataclass
class Embedded:
    """The outcome: vectors by key, number of calls, refused texts, reasons of failures by path."""

    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    n_calls: int = 0
    too_long: set[str] = field(default_factory=set)
    """Keys of texts that the embedder refused for their length."""
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, part: Embedded) -> None:
        """Take over the outcome of some more texts; of a document's failures the first stays."""
        self.vectors |= part.vectors
        self.n_calls += part.n_calls
        self.too_long |= part.too_long
        self.failures = part.failures | self.failures


def count_calls(n_texts: int) -> int:
    """Return how many calls it takes to embed so many texts."""
    return -(-n_texts // _BATCH_TEXTS)


def embed_texts(
    embedder: Embedder, texts: Mapping[str, Text], keep: Keep, progress: Progress
) -> Embedded:
    """Embed every text. One that is refused fails its document alone; the rest goes on.

    ``keep`` and ``progress`` are called in this thread, for each batch as it is done.
    """
    result = Embedded()
    keys = list(texts)
    batches = [keys[i : i + _BATCH_TEXTS] for i in range(0, len(keys), _BATCH_TEXTS)]
    n_done = 0
    for batch, part in in_parallel(
        lambda batch: _embed_batch(embedder, batch, texts), batches, embedder.n_parallel
    ):
        keep(part.vectors)
        result.add(part)
        n_done += len(batch)
        progress(n_done, len(keys))
    return result


def _embed_batch(embedder: Embedder, batch: list[str], texts: Mapping[str, Text]) -> Embedded:
    """Embed a batch; find a refused text by bisection where the embedder doesn't name it."""
    result = Embedded()
    if not batch:
        return result
    try:
        vectors = _finite(embedder.embed_documents([texts[key].shown for key in batch]))
    except EmbeddingError as error:
        if error.index is None and len(batch) > 1:
            middle = len(batch) // 2
            parts = [batch[:middle], batch[middle:]]
        else:
            at = error.index or 0
            parts = [batch[:at] + batch[at + 1 :]]
            _note_refusal(batch[at], error, texts, result)
        for part in parts:
            result.add(_embed_batch(embedder, part, texts))
        return result
    result.n_calls = 1
    result.vectors = dict(zip(batch, vectors.astype(np.float16), strict=True))
    return result


def _finite(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors. Raises EmbeddingError for the first that is not finite."""
    for index, vector in enumerate(vectors):
        if not np.isfinite(vector).all():
            raise EmbeddingError(index, "its vector has NaN or infinite components")
    return vectors


def _note_refusal(
    key: str, error: EmbeddingError, texts: Mapping[str, Text], result: Embedded
) -> None:
    if isinstance(error, TooLongError):
        result.too_long.add(key)
    else:
        reason = f"a passage can't be embedded: {error.message}"
        result.failures.setdefault(texts[key].path, reason)
