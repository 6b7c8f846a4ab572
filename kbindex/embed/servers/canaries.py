"""Canaries and probes: texts whose vectors tell whether a server changed, or truncates texts.

The same weights have given other vectors in other releases, for upper case (ollama/ollama 13942)
and accents (15609); and some releases cut long texts although told not to (14186, 14259).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TEXTS = (
    "The lamps of the tower burn paraffin, and the lenses are wiped each morning.",
    "WHO KEEPS THE KEY OF THE CELLAR?",
    "Él pidió que la señora Müller añadiera el número de teléfono a su garçonnière.",
    "灯台の鍵は誰が持っていますか。",
)
"""Plain, upper case, accents, CJK."""

_KEPT = 256
"""Components of a canary vector that are stored; another computation changes all of them."""
_SAME = 0.999
"""Least cosine of equal canaries. Other processors give ≥ .99999, another tokenizer < .99."""
_TAILS = (
    "At the very end it says that nine grey herons nested behind the northern boathouse in May.",
    "At the very end it says that the invoice for twelve barrels of tar was never paid by Jonas.",
)
_FILLER = (
    "the keeper of the house went down to the sea in the rain and came back at night with wood"
)


def pack_vectors(vectors: NDArray[np.float32]) -> tuple[str, ...]:
    """Return the first components of each vector as base64 of little-endian float16."""
    kept = vectors[:, :_KEPT].astype("<f2")
    return tuple(base64.b64encode(vector.tobytes()).decode("ascii") for vector in kept)


def least_cosine(before: Sequence[str], after: Sequence[str]) -> float:
    """Return the least cosine of the pairs, 0 for lists of different lengths or dimensions."""
    pairs = list(zip(map(_unpacked, before), map(_unpacked, after), strict=False))
    if len(before) != len(after) or any(a.shape != b.shape for a, b in pairs):
        return 0.0
    return min((_cosine(a, b) for a, b in pairs), default=1.0)


def come_out_same(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether two sets of canaries are equal up to a processor's rounding."""
    return least_cosine(before, after) >= _SAME


def probe_texts(n_words: int) -> list[str]:
    """Return a text twice, and once with another last sentence; each word is at least a token."""
    words = _FILLER.split()
    n_before = max(n_words - len(_TAILS[0].split()), 0)
    head = " ".join(words[i % len(words)] for i in range(n_before))
    return [f"{head} {_TAILS[0]}", f"{head} {_TAILS[0]}", f"{head} {_TAILS[1]}"]


def tail_is_seen(vectors: NDArray[np.float32]) -> bool:
    """Whether the last sentence shows in the vectors of ``probe_texts``, beyond their noise."""
    same, again, other = vectors.astype(np.float64)
    noise = 1 - _cosine(same, again)
    return 1 - _cosine(same, other) > max(4 * noise, 1e-6)


def _unpacked(packed: str) -> NDArray[np.float64]:
    try:
        return np.frombuffer(base64.b64decode(packed), "<f2").astype(np.float64)
    except ValueError:
        return np.zeros(0)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms > 0 else 0.0
