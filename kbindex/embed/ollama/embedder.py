"""The embedder ``ollama:MODEL``: a model that an Ollama server runs, here or elsewhere.

Never cut off: every call says ``truncate=False`` and sets ``num_ctx`` and ``num_batch`` alike,
since an input must fit one batch (by default 2048 tokens, whatever the model reads); what is
refused for its length is reported, and a server that ignores the flag is found out by a probe.
Texts go in small batches, one after the other: parallel ones were corrupted in places
(ollama/ollama 6262, 13170).

The server is asked when an answer is first needed. The calls are in ``client``; identity,
canaries and the probe are here.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import weights
from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.core.model import EmbedderIdentity, Origin
from kbindex.embed.ollama import canaries
from kbindex.embed.ollama.client import PAUSES, USUAL_CONTEXT, OllamaServer, Patience
from kbindex.embed.ollama.errors import UnansweredError
from kbindex.embed.ollama.hosts import Server
from kbindex.local.files import parse_json

_NO_LIMIT = 1 << 20
_LARGEST_SIZE = 1 << 30
"""Largest context length or dimension that a remembered answer may hold; no model has it."""
_PROBED = (0.25, 0.5, 1.25)
"""Lengths of the probe's texts, as words per token of the context."""


class Memory(Protocol):
    """Remembers a server's answers from one run to the next."""

    def recall(self, name: str) -> str | None: ...

    def note(self, name: str, value: str) -> None: ...


@dataclass(frozen=True)
class Wanted:
    """The model that the configuration asks for, and the identity that the index has."""

    name: str
    """As it is configured: what the server is asked for."""
    model: str
    """As the identity names it; one for all names that mean the same model."""
    query_prefix: str
    document_prefix: str
    longest_text: int
    """Most cl100k tokens of a chunk with its context."""
    patience: Patience
    stored: EmbedderIdentity | None = None
    """The identity of the index, where it is of the same provider, model and prefixes."""
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class _Model:
    """A model as a server has it; ``n_context`` is the context length to use, in its tokens."""

    version: str
    manifest: str
    digest: str
    """Of the weights; where the server doesn't tell it, of the manifest."""
    dimension: int
    n_context: int


@dataclass(frozen=True)
class _Settled:
    """The embedder's identity; with a ``failure`` it holds until a text is to be embedded."""

    identity: EmbedderIdentity
    origin: Origin
    failure: NoEmbedderError | None = None


class OllamaEmbedder:
    """A model behind ``/api/embed``. Vectors are brought to unit length."""

    dense_weight = 0.3

    def __init__(
        self,
        wanted: Wanted,
        find_server: Callable[[], Server],
        memory: Memory,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``find_server`` raises NoEmbedderError where text may not be sent."""
        self._wanted, self._memory = wanted, memory
        self._server = OllamaServer(find_server, wanted.name, wanted.patience, pause)

    # What it is

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity; while the server can't be asked, that of the index.

        Raises NoEmbedderError where there is no index to take it from. A server that computes
        other vectors from the same weights gets a digest of its own.
        """
        return self._settled.identity

    @property
    def origin(self) -> Origin:
        """The server of the build, as long as its canaries come out the same."""
        return self._settled.origin

    @cached_property
    def _settled(self) -> _Settled:
        stored = self._wanted.stored
        try:
            model, now = self._model, self._canaries()
        except NoEmbedderError as error:
            if stored is None:
                raise
            return _Settled(stored, self._wanted.origin, error)
        actual = self._identity_of(model)
        origin = Origin(f"ollama {model.version}", now)
        if stored is not None and not self._is_same_model(stored, model):
            stored = None
        # Without an index there may be work of an interrupted build, by the server of that time.
        before = self._wanted.origin.canaries if stored else self._computed_by(model.digest)
        if before and not canaries.come_out_same(before, now):
            mark = hashlib.sha256("".join(now).encode()).hexdigest()[:8]
            return _Settled(replace(actual, digest=f"{model.digest}+{mark}"), origin)
        if stored is None:
            return _Settled(actual, origin)
        return _Settled(stored, self._wanted.origin if before else origin)

    def _is_same_model(self, stored: EmbedderIdentity, model: _Model) -> bool:
        """Whether an index is of this model's weights.

        Earlier indexes name the manifest: the one that the server has, or one whose weights this
        clone has seen.
        """
        named = weights(stored.digest)
        is_named = (
            named in (model.digest, model.manifest)
            or self._memory.recall(f"weights {named}") == model.digest
        )
        return is_named and stored.dimension == model.dimension

    def _computed_by(self, digest: str) -> tuple[str, ...]:
        """Return the canaries of the server that made this clone's first vectors of a digest."""
        return _strings(self._memory.recall(f"computed {digest}"))

    def _require_server(self) -> _Model:
        """Return the model as the server has it. Raises NoEmbedderError."""
        if self._settled.failure is not None:
            raise self._settled.failure
        return self._model

    def _identity_of(self, model: _Model) -> EmbedderIdentity:
        return EmbedderIdentity(
            "ollama",
            self._wanted.model,
            model.digest,
            model.dimension,
            self._wanted.query_prefix,
            self._wanted.document_prefix,
        )

    # Texts

    @property
    def max_tokens(self) -> int:
        return self._server.n_context or _NO_LIMIT

    def count_tokens(self, text: str) -> int:
        """Return a lower bound of the tokens; only the server can count them."""
        return len(text.split())

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors. Raises TooLongError, EmbeddingError, NoEmbedderError."""
        self._require_whole_texts()
        prefix = self._wanted.document_prefix
        return self._server.embed([prefix + text for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self._require_server()
        try:
            prefixed = self._wanted.query_prefix + text
            vector: NDArray[np.float32] = self._server.embed([prefixed], PAUSES[:1])[0]
        except TooLongError:
            raise NoEmbedderError(
                f"the query is longer than {self._wanted.model} reads", "shorten the query"
            ) from None
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"the query can't be embedded: {error.message}", "put it in other words"
            ) from None
        return vector

    # The server

    @cached_property
    def _model(self) -> _Model:
        """Ask the server for version, digest and, where they are not known yet, sizes."""
        server = self._server
        try:
            version, manifest = server.version(), server.manifest_digest()
            noted = _sizes(self._memory.recall(f"model {manifest}"))
            digest = _digest(self._memory.recall(f"weights {manifest}"))
            shown = None if noted and digest else server.show()
            if shown is not None:
                digest = shown.weights or manifest
                self._memory.note(f"weights {manifest}", digest)
            length, dimension = noted or (shown.n_context if shown else USUAL_CONTEXT, 0)
            server.n_context = min(length, max(USUAL_CONTEXT, 2 * self._wanted.longest_text))
            if not noted:
                # /api/show names the width inside the model, which need not be the vector's.
                dimension = server.attempt([canaries.TEXTS[0]]).shape[1]
                self._memory.note(f"model {manifest}", json.dumps([length, dimension]))
        except UnansweredError as error:
            raise server.unreachable(error) from None
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"{self._wanted.model} can't embed: {error.message}",
                "name a model that embeds, such as 'ollama:bge-m3'",
            ) from None
        server.dimension = dimension
        return _Model(version, manifest, digest or manifest, dimension, server.n_context)

    @property
    def release(self) -> str:
        """The server that answers now: name and version. Raises NoEmbedderError."""
        return f"ollama {self._require_server().version}"

    # Trust

    def _canaries(self) -> tuple[str, ...]:
        """Return the packed canary vectors of this server, from memory where it is the same."""
        model = self._model
        name = f"canaries {self._server.origin} {model.version} {model.manifest}"
        noted = _strings(self._memory.recall(name))
        if noted:
            return noted
        try:
            packed = canaries.pack_vectors(self._server.embed(list(canaries.TEXTS)))
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"Ollama at {self._server.origin} fails for four plain sentences: {error.message}",
                "look into the server's log",
            ) from None
        self._memory.note(name, json.dumps(packed))
        return packed

    def _require_whole_texts(self) -> None:
        """Refuse a server that cuts texts silently. Probed once for a server, model and size."""
        if not self.sees_tails:
            raise NoEmbedderError(
                f"Ollama {self._model.version} at {self._server.origin} cuts long texts for "
                f"{self._wanted.model} although it is told not to: what it cuts off could not be "
                "found",
                "another release of Ollama, another model, or a smaller chunk_max_tokens",
            )

    @cached_property
    def sees_tails(self) -> bool:
        """Whether a change at the very end of a text shows in its vector, or the text is refused.

        Raises NoEmbedderError where the server can't be asked.
        """
        model = self._require_server()
        name = f"tails {self._server.origin} {model.version} {model.manifest} {model.n_context}"
        noted = self._memory.recall(name)
        if noted != "seen":
            lengths = [int(model.n_context * share) for share in _PROBED]
            noted = "seen" if all(map(self._sees_tail, lengths)) else "cut"
            if noted == "seen":  # one that cuts is asked again: it may have been set right
                self._memory.note(name, noted)
        if not self._computed_by(self.identity.digest):
            self._memory.note(f"computed {self.identity.digest}", json.dumps(self._canaries()))
        return noted == "seen"

    def _sees_tail(self, n_words: int) -> bool:
        try:
            vectors = self._server.embed(canaries.probe_texts(n_words))
        except TooLongError:
            return True
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"Ollama at {self._server.origin} fails for a text of {n_words} words: "
                f"{error.message}",
                "look into the server's log",
            ) from None
        return canaries.tail_is_seen(vectors)


# What is remembered may be garbled: then it is asked again.


def _strings(noted: str | None) -> tuple[str, ...]:
    """Return the strings of a JSON list, none for anything else."""
    found = parse_json(noted or "")
    is_list = isinstance(found, list) and all(isinstance(item, str) for item in found)
    return tuple(found) if is_list else ()


def _digest(noted: str | None) -> str | None:
    """Return a noted digest, ``None`` for anything else."""
    return noted if noted and re.fullmatch(r"sha256:[0-9a-f]{64}", noted) else None


def _sizes(noted: str | None) -> tuple[int, int] | None:
    """Return the length of the context and the dimension, ``None`` for anything else."""
    found = parse_json(noted or "")
    is_pair = isinstance(found, list) and len(found) == 2
    is_sound = is_pair and all(type(n) is int and 0 < n <= _LARGEST_SIZE for n in found)
    return (found[0], found[1]) if is_sound else None
