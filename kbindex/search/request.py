"""The request of a search, with its options and filters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Filters:
    """Conditions on a hit's document, applied before ranking; empty matches any."""

    path: str = ""
    type: str = ""
    tag: str = ""


@dataclass(frozen=True)
class QueryOptions:
    """The options of one query."""

    mode: str = "auto"
    """auto | hybrid | dense | lexical"""
    n_hits: int = 5
    per_document: int = 1
    """The most hits in one document."""
    min_similarity: float | None = None
    """The least cosine of a hit; without effect where there is no dense half."""
    with_text: bool = False
    explain: bool = False
    filters: Filters = field(default_factory=Filters)


@dataclass(frozen=True)
class Request:
    """One search of the view."""

    query: str
    vector: NDArray[np.float32] | None
    """``(dimension,)``, ``None`` without the dense half."""
    weight: float
    """The weight of the dense half, 0–1."""
    with_words: bool
    """Whether the lexical half is asked."""
    options: QueryOptions = field(default_factory=QueryOptions)
