"""The Embedder protocol and the choice of one. Each provider is a module, imported when chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import UsageError
from kbindex.core.model import EmbedderIdentity, Origin

BUILTIN = "builtin"
HASH = "hash"
PORTABLE = "portable"
OLLAMA = "ollama"
OPENAI = "openai"


class Embedder(Protocol):
    """Turns texts into unit vectors. None truncates a text: it raises EmbeddingError instead."""

    @property
    def identity(self) -> EmbedderIdentity: ...

    @property
    def origin(self) -> Origin:
        """The server that computes the vectors; empty for an embedder in this process."""

    @property
    def n_parallel(self) -> int:
        """Most calls of ``embed_documents`` that may run at the same time, in threads."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of a document text, as ``count_tokens`` counts them."""

    @property
    def dense_weight(self) -> float:
        """The weight of its cosines beside BM25, 0–1 (bundle/concepts/hybrid-search.md)."""

    def count_tokens(self, text: str) -> int:
        """Return the tokens of a document text, prefix and special tokens included.

        Where only a server can count them, it is a lower bound; the server raises TooLongError.
        """

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors ``(n_texts, dimension)``. Raises EmbeddingError, NoEmbedderError."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return a unit vector ``(dimension,)``. Raises NoEmbedderError."""


def load_embedder(name: str) -> Embedder:
    """Return the embedder of that name which runs in this process.

    Raises UsageError for an unknown name. An embedder that can't be loaded raises
    NoEmbedderError at its first vector.
    """
    if name == BUILTIN:
        from kbindex.embed.builtin import BuiltinEmbedder

        return BuiltinEmbedder()
    if name == HASH:
        from kbindex.embed.hashing import HashEmbedder

        return HashEmbedder()
    if name == PORTABLE:
        from kbindex.embed.portable import PortableEmbedder

        return PortableEmbedder()
    raise UsageError(
        f"unknown embedder '{name}'",
        f"set embedder to '{BUILTIN}' (the default), '{OLLAMA}:MODEL', '{OPENAI}:MODEL', "
        f"'{PORTABLE}' or '{HASH}'",
    )
