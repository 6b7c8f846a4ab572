"""The ``hash`` embedder: deterministic feature hashing (Weinberger et al. 2009), no meaning.

For tests, benchmarks and trying things out at any size, where only identity matters.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import EmbedderIdentity, Origin

_WORD = re.compile(r"\w+")
_DIMENSION = 256


class HashEmbedder:
    """Words hashed into 256 signed buckets; equal texts give equal vectors, everywhere."""

    identity = EmbedderIdentity("hash", "feature-hashing", "crc32-v1", _DIMENSION)
    origin = Origin()
    n_parallel = 1
    max_tokens = 8192
    dense_weight = 0.2

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, _DIMENSION), np.float32)
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(_DIMENSION, np.float32)
        for word in _WORD.findall(text.lower()) or [text]:
            code = zlib.crc32(word.encode())
            vector[code % _DIMENSION] += 1.0 if code & 0x8000_0000 else -1.0
        norm = float(np.linalg.norm(vector))
        if norm == 0.0:
            vector[0] = norm = 1.0
        return vector / np.float32(norm)
