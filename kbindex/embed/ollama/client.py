"""The client of one model on one Ollama server: makes the calls and validates the answers.

Identity, canaries and the probe are in ``embedder``.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.embed.ollama import canaries
from kbindex.embed.ollama.errors import UnansweredError, translate
from kbindex.embed.ollama.hosts import Server
from kbindex.embed.ollama.names import canonical_name

if TYPE_CHECKING:
    import httpx
    import ollama

_CONNECT_SECONDS = 5.0
PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before each further attempt at a call that the server left unanswered."""
USUAL_CONTEXT = 2048
"""Context length in tokens; more than a chunk of the default size has. Memory grows with its
square."""
_FROM_BLOB = re.compile(
    r"^(?:FROM|ADAPTER)\s.*[/\\]blobs[/\\]sha256[-:]([0-9a-f]{64})\"?\s*$", re.MULTILINE
)
"""A line of a Modelfile that names a file of weights."""


@dataclass(frozen=True)
class Patience:
    """How long one call may take, and the setting that says so."""

    seconds: int
    setting: str


@dataclass(frozen=True)
class Shown:
    """What the server tells of a model: context length in tokens, digest of the weights."""

    n_context: int
    weights: str | None
    """``sha256:…``, ``None`` where the server doesn't tell."""


class OllamaServer:
    """The client. ``n_context`` has to be set before texts are embedded."""

    def __init__(
        self,
        find: Callable[[], Server],
        model: str,
        patience: Patience,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``find`` raises NoEmbedderError where text may not be sent."""
        self._find, self._name, self._patience, self._pause = find, model, patience, pause
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
            return self.attempt(texts, pauses)
        except TooLongError:
            raise
        except EmbeddingError as error:
            if len(texts) == 1:
                self._require_health(error)
            raise

    def _require_health(self, failure: EmbeddingError) -> None:
        """Raise NoEmbedderError if a plain sentence fails twice, too."""
        for pause in PAUSES[:1]:
            try:
                self.ask([canaries.TEXTS[0]])
            except (EmbeddingError, UnansweredError):
                self._pause(pause)
            else:
                return
        try:
            self.ask([canaries.TEXTS[0]])
        except (EmbeddingError, UnansweredError):
            raise NoEmbedderError(
                f"Ollama at {self.origin} fails for every text: {failure.message}",
                "look into the server's log, restart it ('ollama serve'), then run this again; "
                "what is embedded so far is kept",
            ) from None

    def attempt(self, texts: list[str], pauses: Sequence[float] = PAUSES) -> NDArray[np.float32]:
        """Ask; after UnansweredError pause and ask again, unless the time ran out.

        Raises TooLongError, EmbeddingError, NoEmbedderError.
        """
        for pause in pauses:
            try:
                return self.ask(texts)
            except UnansweredError as error:
                if error.is_late:
                    raise self.unreachable(error) from None
                self._pause(pause)
        try:
            return self.ask(texts)
        except UnansweredError as error:
            if error.is_reply:
                failure = EmbeddingError(None, error.reason)
                self._require_health(failure)  # before a batch is halved for nothing
                raise failure from None
            raise self.unreachable(error) from None

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

        timeout = (_CONNECT_SECONDS, *[float(self._patience.seconds)] * 3)
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

    def manifest_digest(self) -> str:
        """Return the digest of the model's manifest.

        It names weights, template, parameters and licence together: the same weights with another
        parameter, or created by another release, have another.
        """
        with translate(self.origin, self._name):
            models = self._client.list().models
        wanted = canonical_name(self._name)
        for model in models:
            if canonical_name(model.model or "") == wanted and model.digest:
                return f"sha256:{model.digest.removeprefix('sha256:')}"
        raise NoEmbedderError(
            f"Ollama at {self.origin} has no model '{self._name}'",
            f"ollama pull {self._name}",
        )

    def show(self) -> Shown:
        """Return what the server tells of the model."""
        with translate(self.origin, self._name):
            shown = self._client.show(self._name)
            info = shown.modelinfo or {}
            parent = shown.details.parent_model if shown.details else None
            written = shown.modelfile or f"FROM {parent}"
        length = info.get(f"{info.get('general.architecture')}.context_length")
        return Shown(
            length if isinstance(length, int) and length > 0 else USUAL_CONTEXT,
            weights_digest(written) or weights_digest(f"FROM {parent}"),
        )

    def unreachable(self, error: UnansweredError) -> NoEmbedderError:
        """Return the error for a server that does not answer, with its remedy."""
        if error.is_late:
            return NoEmbedderError(
                f"Ollama at {self.origin} {error.reason} ({self._patience.seconds} s)",
                f"raise {self._patience.setting} if the model takes longer to load or to compute "
                "('kbindex doctor' loads it); restart the server if it hangs ('ollama serve')",
            )
        return NoEmbedderError(
            f"Ollama at {self.origin} {error.reason}",
            "start it ('ollama serve'), or say where it is (OLLAMA_HOST)",
        )


def _without_key(request: httpx.Request) -> httpx.Request:
    """Take out OLLAMA_API_KEY, which the client sends to any server."""
    request.headers.pop("Authorization", None)
    return request


def weights_digest(modelfile: str) -> str | None:
    """Return the digest of the weights that a Modelfile names, ``None`` if it names no file.

    Of several files (an adapter, a projector) it is the digest of their digests.
    """
    found = _FROM_BLOB.findall(modelfile)
    if len(found) < 2:
        return f"sha256:{found[0]}" if found else None
    return f"sha256:{hashlib.sha256(' '.join(found).encode()).hexdigest()}"


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
