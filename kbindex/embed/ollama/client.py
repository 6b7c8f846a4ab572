"""The client of one model on one Ollama server: makes the calls and validates the answers.

Never cut off: every call says ``truncate=False`` and sets ``num_ctx`` and ``num_batch`` alike,
since an input must fit one batch (by default 2048 tokens, whatever the model reads); what is
refused for its length is reported. Texts go in small batches, one after the other: parallel ones
were corrupted in places (ollama/ollama 6262, 13170).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import NoEmbedderError
from kbindex.embed.ollama.errors import OLLAMA_SERVICE, translate
from kbindex.embed.ollama.names import canonical_name
from kbindex.embed.servers import canaries
from kbindex.embed.servers.calls import Calls
from kbindex.embed.servers.hosts import Server
from kbindex.embed.servers.service import Memory, Patience, ServedModel
from kbindex.embed.servers.vectors import unit_vectors
from kbindex.local.files import parse_json

if TYPE_CHECKING:
    import httpx
    import ollama

_CONNECT_SECONDS = 5.0
USUAL_CONTEXT = 2048
"""Context length in tokens; more than a chunk of the default size has. Memory grows with its
square."""
_PROBED = (0.25, 0.5, 1.25)
"""Lengths of the probe's texts, as words per token of the context."""
_LARGEST_SIZE = 1 << 30
"""Largest context length or dimension that a remembered answer may hold; no model has it."""
_FROM_BLOB = re.compile(
    r"^(?:FROM|ADAPTER)\s.*[/\\]blobs[/\\]sha256[-:]([0-9a-f]{64})\"?\s*$", re.MULTILINE
)
"""A line of a Modelfile that names a file of weights."""


@dataclass(frozen=True)
class Shown:
    """What the server tells of a model: context length in tokens, digest of the weights."""

    n_context: int
    weights: str | None
    """``sha256:…``, ``None`` where the server doesn't tell."""


class OllamaClient:
    """The client. The model has to be found before texts are embedded."""

    service = OLLAMA_SERVICE

    def __init__(self, find: Callable[[], Server], model: str, patience: Patience) -> None:
        """``find`` raises NoEmbedderError where text may not be sent."""
        self._find, self._name, self.patience = find, model, patience
        self._n_context = 0
        self._dimension: int | None = None

    @property
    def origin(self) -> str:
        return self._server.origin

    def find_model(self, memory: Memory, calls: Calls, longest_text: int) -> ServedModel:
        """Ask for version, digest and, where they are not known yet, weights and sizes.

        The context length is what texts of ``longest_text`` cl100k tokens need, not what the
        model could read. Raises UnansweredError, EmbeddingError, NoEmbedderError.
        """
        version, manifest = self._version(), self._manifest_digest()
        noted = _sizes(memory.recall(f"model {manifest}"))
        digest = _digest(memory.recall(f"weights {manifest}"))
        shown = None if noted and digest else self._show()
        if shown is not None:
            digest = shown.weights or manifest
            memory.note(f"weights {manifest}", digest)
        length, dimension = noted or (shown.n_context if shown else USUAL_CONTEXT, 0)
        self._n_context = min(length, max(USUAL_CONTEXT, 2 * longest_text))
        if not noted:
            # /api/show names the width inside the model, which need not be the vector's.
            dimension = calls.attempt([canaries.TEXTS[0]]).shape[1]
            memory.note(f"model {manifest}", json.dumps([length, dimension]))
        self._dimension = dimension
        return ServedModel(
            release=f"ollama {version}",
            digests=(digest or manifest, manifest),
            state=f"{version} {manifest}",
            dimension=dimension,
            n_context=self._n_context,
            probed=tuple(int(self._n_context * share) for share in _PROBED),
        )

    def ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of one call; see ModelClient."""
        options = {"num_ctx": self._n_context, "num_batch": self._n_context}
        with translate(self.origin, self._name):
            answer = self._client.embed(
                model=self._name, input=texts, truncate=False, options=options
            )
        return unit_vectors(answer.embeddings, len(texts), self._dimension)

    def unreachable(self, reason: str) -> NoEmbedderError:
        return NoEmbedderError(
            f"Ollama at {self.origin} {reason}",
            "start it ('ollama serve'), or say where it is (OLLAMA_HOST)",
        )

    @cached_property
    def _server(self) -> Server:
        return self._find()

    @cached_property
    def _client(self) -> ollama.Client:
        import ollama

        timeout = (_CONNECT_SECONDS, *[float(self.patience.seconds)] * 3)
        return ollama.Client(
            host=self._server.url,
            timeout=timeout,
            # Nothing may lead a text elsewhere: no redirect, and on this machine no proxy.
            follow_redirects=False,
            trust_env=not self._server.is_loopback,
            auth=None if self._server.is_own else _without_key,
        )

    def _version(self) -> str:
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

    def _manifest_digest(self) -> str:
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

    def _show(self) -> Shown:
        """Return what the server tells of the model."""
        with translate(self.origin, self._name):
            shown = self._client.show(self._name)
            info = shown.modelinfo or {}
            parent = shown.details.parent_model if shown.details else None
            written = shown.modelfile or ""
        length = info.get(f"{info.get('general.architecture')}.context_length")
        return Shown(
            length if isinstance(length, int) and length > 0 else USUAL_CONTEXT,
            weights_digest(written) or weights_digest(f"FROM {parent}"),
        )


def weights_digest(modelfile: str) -> str | None:
    """Return the digest of the weights that a Modelfile names, ``None`` if it names no file.

    Of several files (an adapter, a projector) it is the digest of their digests.
    """
    found = _FROM_BLOB.findall(modelfile)
    if len(found) < 2:
        return f"sha256:{found[0]}" if found else None
    return f"sha256:{hashlib.sha256(' '.join(found).encode()).hexdigest()}"


def _without_key(request: httpx.Request) -> httpx.Request:
    """Take out OLLAMA_API_KEY, which the client sends to any server."""
    request.headers.pop("Authorization", None)
    return request


# What is remembered may be garbled: then it is asked again.


def _digest(noted: str | None) -> str | None:
    """Return a noted digest, ``None`` for anything else."""
    return noted if noted and re.fullmatch(r"sha256:[0-9a-f]{64}", noted) else None


def _sizes(noted: str | None) -> tuple[int, int] | None:
    """Return the length of the context and the dimension, ``None`` for anything else."""
    found = parse_json(noted or "")
    is_pair = isinstance(found, list) and len(found) == 2
    is_sound = is_pair and all(type(n) is int and 0 < n <= _LARGEST_SIZE for n in found)
    return (found[0], found[1]) if is_sound else None
