"""Reads an answer of ``/v1/embeddings``, and its errors. Pure.

Servers differ: vectors are lists of numbers or base64 of little-endian float32, ``index`` may be
missing, and an error stands in one of four places.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from kbindex.core.errors import EmbeddingError
from kbindex.local.files import parse_json


def read_embeddings(answer: Any, n_texts: int) -> list[list[float]]:
    """Return a vector for each text, in the order of the texts.

    Raises EmbeddingError for vectors that can't be matched with texts, and ValueError, TypeError
    or KeyError for what is no such answer at all.
    """
    items = answer["data"]
    vectors = [_vector(item["embedding"]) for item in items]
    indices = [item.get("index") for item in items]
    if all(index is None for index in indices):
        return vectors
    if sorted(indices) != list(range(n_texts)):
        raise EmbeddingError(None, f"vectors for {n_texts} texts came back with other numbers")
    in_order = dict(zip(indices, vectors, strict=True))
    return [in_order[index] for index in range(n_texts)]


def _vector(embedding: Any) -> list[float]:
    if isinstance(embedding, str):
        packed = base64.b64decode(embedding, validate=True)
        return [float(x) for x in np.frombuffer(packed, "<f4")]
    return [float(x) for x in embedding]


def error_words(body: str) -> tuple[str, str]:
    """Return an error's message and its code; the whole body where it has no known form."""
    content = parse_json(body)
    if not isinstance(content, dict):
        return body, ""
    error = content.get("error") or content.get("message") or content.get("detail") or body
    if isinstance(error, dict):
        return str(error.get("message") or error), str(error.get("code") or error.get("type") or "")
    return str(error), str(content.get("error_type") or "")
