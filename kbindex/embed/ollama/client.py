"""The client of one model on one Ollama server: makes the calls and validates the answers.

Identity, canaries and the probe are in ``embedder``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.embed.ollama import canaries
from kbindex.embed.ollama.errors import UnansweredError, translate
from kbindex.embed.ollama.hosts import Server

if TYPE_CHECKING:
    import httpx
    import ollama

_CONNECT_SECONDS = 5.0
PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before each further attempt at a call that the server left unanswered."""
USUAL_CONTEXT = 2048
"""Context length in tokens; more than a chunk of the default size has. Memory grows with its
square."""


class OllamaServer:
    """The client. ``n_context`` has to be set before texts are embedded."""

    def __init__(
        self,
        find: Callable[[], Server],
        model: str,
        timeout: int,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``find`` raises NoEmbedderError where text may not be sent; ``timeout`` in seconds."""
        self._find, self._name, self._timeout, self._pause = find, model, timeout, pause
        self.n_context = 0
        """Most tokens of a text and of a batch; 0 until it is known."""
        self.dimension: int | None = None
        """The dimension of every vector, ``None`` until it is known."""

    @property
    def origin(self) -> str:
        return self._server.origin

    # Texts

    def embed(self, texts: list[str], pauses: Sequence[float] = PAUSES) -> NDArray[np.float32]:
        """Return unit vectors. A failure of a single text is the text's only if others work.

        Raises TooLongError, EmbeddingError, NoEmbedderError.
        """
        try:
            return self._attempt(texts, pauses)
        except TooLongError:
            raise
        except EmbeddingError as error:
            if len(texts) == 1:
                self._require_health(error)
            raise

    def _require_health(self, failure: EmbeddingError) -> None:
        try:
            self.ask([canaries.TEXTS[0]])
        except (EmbeddingError, UnansweredError):
            raise NoEmbedderError(
                f"Ollama at {self.origin} fails for every text: {failure.message}",
                "look into the server's log, restart it ('ollama serve'), then run this again; "
                "what is embedded so far is kept",
            ) from None

    def _attempt(self, texts: list[str], pauses: Sequence[float]) -> NDArray[np.float32]:
        """Ask; after UnansweredError pause and ask again."""
        for pause in pauses:
            try:
                return self.ask(texts)
            except UnansweredError:
                self._pause(pause)
        try:
            return self.ask(texts)
        except UnansweredError as error:
            if error.is_reply:
                failure = EmbeddingError(None, error.reason)
                self._require_health(failure)  # before a batch is halved for nothing
                raise failure from None
            raise self.unreachable(error.reason) from None

    def ask(self, texts: list[str]) -> NDArray[np.float32]:
        """Make one call and validate its answer. Raises UnansweredError for a transient failure."""
        options = {"num_ctx": self.n_context, "num_batch": self.n_context}
        # A NUL ends the text in some engines and would hide the rest.
        shown = [text.replace("\0", "\ufffd") for text in texts]
        with translate(self.origin, self._name):
            answer = self._client.embed(
                model=self._name, input=shown, truncate=False, options=options
            )
        return _proven(answer.embeddings, len(texts), self.dimension)

    # The server

    @cached_property
    def _server(self) -> Server:
        return self._find()

    @cached_property
    def _client(self) -> ollama.Client:
        import ollama

        timeout = (_CONNECT_SECONDS, *[float(self._timeout)] * 3)
        return ollama.Client(
            host=self._server.url,
            timeout=timeout,
            # Nothing may lead a text elsewhere: no redirect, and on this machine no proxy.
            follow_redirects=False,
            trust_env=not self._server.is_loopback,
            auth=None if self._server.is_own else _without_key,
        )

    def version(self) -> str:
        """Return the server's version, for which the client has no call."""
        import httpx

        with translate(self.origin, self._name):
            answer = httpx.get(
                f"{self._server.url}/api/version",
                timeout=_CONNECT_SECONDS,
                trust_env=not self._server.is_loopback,
                headers=self._key_header,
            )
            return str(answer.raise_for_status().json()["version"])

    @property
    def _key_header(self) -> dict[str, str]:
        key = os.environ.get("OLLAMA_API_KEY")
        return {"Authorization": f"Bearer {key}"} if key and self._server.is_own else {}

    def digest(self) -> str:
        """Return the digest of the model's files, which changes with ``ollama pull``."""
        with translate(self.origin, self._name):
            models = self._client.list().models
        wanted = _tagged(self._name)
        for model in models:
            if _tagged(model.model or "") == wanted and model.digest:
                return f"sha256:{model.digest.removeprefix('sha256:')}"
        raise NoEmbedderError(
            f"Ollama at {self.origin} has no model '{self._name}'",
            f"ollama pull {self._name}",
        )

    def context_length(self) -> int:
        """Return the model's context length in tokens."""
        with translate(self.origin, self._name):
            info = self._client.show(self._name).modelinfo or {}
        length = info.get(f"{info.get('general.architecture')}.context_length")
        return length if isinstance(length, int) and length > 0 else USUAL_CONTEXT

    def unreachable(self, reason: str) -> NoEmbedderError:
        """Return the error for a server that does not answer, with its remedy."""
        return NoEmbedderError(
            f"Ollama at {self.origin} {reason}",
            "start it ('ollama serve'), or say where it is (OLLAMA_HOST); a slow one may need a "
            "larger ollama_timeout",
        )


def _without_key(request: httpx.Request) -> httpx.Request:
    """Take out OLLAMA_API_KEY, which the client sends to any server."""
    request.headers.pop("Authorization", None)
    return request


def _tagged(model: str) -> str:
    """Return a model's name as Ollama completes it; case doesn't count there."""
    name = model.lower()
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def _proven(
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
        if norm < 1e-6:
            raise EmbeddingError(index, "its vector is zero")
    # Only the direction counts; releases before 0.2 gave other lengths.
    unit: NDArray[np.float32] = (vectors / norms).astype(np.float32)
    return unit
