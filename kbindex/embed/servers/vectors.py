"""Validates the vectors of a server's answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError

_LEAST_NORM = 1e-6


def unit_vectors(
    embeddings: Sequence[Sequence[float]], n_texts: int, dimension: int | None
) -> NDArray[np.float32]:
    """Return unit vectors ``(n_texts, dimension)``. Raises EmbeddingError for anything else."""
    if len(embeddings) != n_texts:
        raise EmbeddingError(None, f"{len(embeddings)} vectors came back for {n_texts} texts")
    lengths = {len(vector) for vector in embeddings}
    if len(lengths) != 1 or 0 in lengths or (dimension and lengths != {dimension}):
        expected = f", not of {dimension}" if dimension else ""
        found = ", ".join(map(str, sorted(lengths)))
        raise EmbeddingError(None, f"vectors of {found} components came back{expected}")
    vectors = np.array(embeddings, np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    for index, norm in enumerate(norms[:, 0]):
        if not np.isfinite(norm):
            raise EmbeddingError(index, "its vector has NaN or infinite components")
        if norm < _LEAST_NORM:
            raise EmbeddingError(index, "its vector is zero")
    # Only the direction counts; servers give other lengths (Ollama before 0.2, pooling of vLLM).
    unit: NDArray[np.float32] = (vectors / norms).astype(np.float32)
    return unit
