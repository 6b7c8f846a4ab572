"""The documents nearest to one, by their own vectors; queries are not ranked by them."""

from __future__ import annotations

import numpy as np

from kbindex.search.hybrid import require_finite
from kbindex.view.database import View
from kbindex.view.records import DocumentRecord


def nearest_documents(
    view: View, dimension: int, path: str, n_documents: int
) -> list[tuple[DocumentRecord, float]]:
    """Return the documents nearest to the one at ``path`` with their cosine, best first.

    A document's own vector is normalize(mean(normalize(chunk vectors))). It ranks nothing else.
    """
    _, documents, slots = view.chunk_arrays()
    known = slots >= 0
    numbers, members = np.unique(documents[known], return_inverse=True)
    sums = np.zeros((len(numbers), dimension), np.float32)
    with np.errstate(all="ignore"):
        np.add.at(sums, members, view.matrix(dimension)[slots[known]])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
    require_finite(norms)
    vectors = np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)
    own = np.flatnonzero(numbers == view.document_id(path))
    if not len(own):
        return []
    similarities = vectors @ vectors[own[0]]
    order = [int(i) for i in np.argsort(-similarities, kind="stable") if i != own[0]]
    return [
        (view.document_at(int(numbers[i])), float(similarities[i])) for i in order[:n_documents]
    ]
