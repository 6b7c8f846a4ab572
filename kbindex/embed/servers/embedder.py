"""An embedder that is a server, here or elsewhere: identity, canaries, and the probe.

Never cut off: what a server refuses for its length is reported, and one that cuts texts silently
is found out by a probe before its first document. The server is asked when an answer is first
needed. Single calls are in the client of each kind, their repetition in ``calls``.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import weights
from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.core.model import EmbedderIdentity, Origin
from kbindex.embed.servers import canaries
from kbindex.embed.servers.calls import QUERY_PAUSES, Calls
from kbindex.embed.servers.errors import UnansweredError
from kbindex.embed.servers.service import Memory, ModelClient, ServedModel
from kbindex.local.files import parse_json

_NO_LIMIT = 1 << 20
_SEEN, _REFUSED, _CUT = "seen", "refused", "cut"
"""What the probe finds: all of the longest text counts, it is refused, its end doesn't count."""


@dataclass(frozen=True)
class WantedModel:
    """The model that the configuration asks for, and the identity that the index has."""

    provider: str
    model: str
    """As the identity names it; one for all names that mean the same model."""
    query_prefix: str
    document_prefix: str
    longest_text: int
    """Most cl100k tokens of a chunk with its context."""
    stored: EmbedderIdentity | None = None
    """The identity of the index, where it is of the same provider, model and prefixes."""
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class _Identified:
    """The embedder's identity; with a ``failure`` it holds until a text is to be embedded."""

    identity: EmbedderIdentity
    origin: Origin
    failure: NoEmbedderError | None = None


class ServerEmbedder:
    """A model behind a server. Vectors are brought to unit length."""

    dense_weight = 0.3

    def __init__(
        self, wanted: WantedModel, client: ModelClient, memory: Memory, *, n_parallel: int = 1
    ) -> None:
        self._wanted, self._client, self._memory = wanted, client, memory
        self._calls = Calls(client)
        self._lock = threading.Lock()
        self.n_parallel = n_parallel

    # What it is

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity; while the server can't be asked, that of the index.

        Raises NoEmbedderError where there is no index to take it from. A server that computes
        other vectors from the same weights gets a digest of its own.
        """
        return self._identified.identity

    @property
    def origin(self) -> Origin:
        """The server of the build, as long as its canaries come out the same."""
        return self._identified.origin

    @property
    def release(self) -> str:
        """The server that answers now. Raises NoEmbedderError."""
        return self._require_server().release

    @cached_property
    def _identified(self) -> _Identified:
        stored = self._wanted.stored
        try:
            model, now = self._model, self._canaries()
        except NoEmbedderError as error:
            if stored is None:
                raise
            return _Identified(stored, self._wanted.origin, error)
        if stored is not None and not self._may_be(stored, model):
            stored = None
        # Without an index there may be work of an interrupted build, by the server of that time.
        before = self._wanted.origin.canaries if stored else self._computed_by(_first_name(model))
        is_same = bool(before) and canaries.come_out_same(before, now)
        if stored is not None and (is_same or (model.digests and not before)):
            origin = self._wanted.origin if before else Origin(model.release, now)
            return _Identified(stored, origin)
        if is_same:
            now = tuple(before)
        digest = _digest(model, now, is_other=bool(before) and not is_same)
        return _Identified(self._identity_of(model, digest), Origin(model.release, now))

    def _may_be(self, stored: EmbedderIdentity, model: ServedModel) -> bool:
        """Whether an index can be of this model, as far as digests and sizes tell.

        Earlier indexes name an Ollama model's manifest: the one that the server has, or one whose
        weights this clone has seen.
        """
        named = weights(stored.digest)
        is_named = (
            not model.digests
            or named in model.digests
            or self._memory.recall(f"weights {named}") == model.digests[0]
        )
        return is_named and stored.dimension == model.dimension

    def _computed_by(self, name: str) -> tuple[str, ...]:
        """Return the canaries of the server that made this clone's first vectors."""
        return _strings(self._memory.recall(f"computed {name or self._wanted.model}"))

    def _note_computation(self) -> None:
        name = self.identity.digest if self._model.digests else ""
        if self._computed_by(name) != self.origin.canaries:
            name = f"computed {name or self._wanted.model}"
            self._memory.note(name, json.dumps(self.origin.canaries))

    def _require_server(self) -> ServedModel:
        """Return the model as the server has it. Raises NoEmbedderError."""
        if self._identified.failure is not None:
            raise self._identified.failure
        return self._model

    def _identity_of(self, model: ServedModel, digest: str) -> EmbedderIdentity:
        return EmbedderIdentity(
            self._wanted.provider,
            self._wanted.model,
            digest,
            model.dimension,
            self._wanted.query_prefix,
            self._wanted.document_prefix,
        )

    # Texts

    @property
    def max_tokens(self) -> int:
        model = self.__dict__.get("_model")  # without asking the server
        return model.n_context if model is not None and model.n_context else _NO_LIMIT

    def count_tokens(self, text: str) -> int:
        """Return a lower bound of the tokens; only the server can count them."""
        return len(text.split())

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors. Raises TooLongError, EmbeddingError, NoEmbedderError."""
        with self._lock:  # one thread probes, the others wait for it
            self._require_whole_texts()
            longest = self._longest_proven
        prefixed = [self._wanted.document_prefix + text for text in texts]
        for index, text in enumerate(prefixed):
            if len(text.encode()) > longest:
                raise TooLongError(
                    index, f"it is longer than {self._wanted.model} is known to read"
                )
        return self._calls.embed(prefixed)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self._require_server()
        try:
            prefixed = self._wanted.query_prefix + text
            vector: NDArray[np.float32] = self._calls.embed([prefixed], QUERY_PAUSES)[0]
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
    def _model(self) -> ServedModel:
        wanted = self._wanted
        try:
            return self._client.find_model(self._memory, self._calls, wanted.longest_text)
        except UnansweredError as error:
            raise self._calls.unreachable(error) from None
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"{wanted.model} can't embed: {error.message}",
                f"name a model that embeds, such as '{self._client.service.example}'",
            ) from None

    # Trust

    def _canaries(self) -> tuple[str, ...]:
        """Return the packed canary vectors of this server, from memory where it is the same."""
        model = self._model
        if model.canaries:
            return model.canaries
        name = f"canaries {self._client.origin} {model.state}"
        noted = _strings(self._memory.recall(name))
        if noted:
            return noted
        try:
            packed = canaries.pack_vectors(self._calls.embed(canaries.TEXTS))
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"{self._client.service.title} at {self._client.origin} fails for four plain "
                f"sentences: {error.message}",
                "look into the server's log",
            ) from None
        self._memory.note(name, json.dumps(packed))
        return packed

    def _require_whole_texts(self) -> None:
        """Refuse a server that cuts texts silently. Probed once for a server, model and size."""
        if not self.sees_tails:
            raise NoEmbedderError(
                f"{self._client.service.title} at {self._client.origin} ({self._model.release}) "
                f"cuts long texts for {self._wanted.model}{self._client.service.despite}: "
                "what it cuts off could not be found",
                self._client.service.uncut,
            )

    @property
    def sees_tails(self) -> bool:
        """Whether a change at the very end of a text shows in its vector, or the text is refused.

        Raises NoEmbedderError where the server can't be asked.
        """
        return self._probed != _CUT

    @cached_property
    def _longest_proven(self) -> int:
        """Most bytes of a text whose end is known to count. A token has at least one."""
        model = self._model
        is_known = model.n_context or self._probed == _REFUSED
        return _NO_LIMIT if is_known else model.probed[-1]

    @cached_property
    def _probed(self) -> str:
        model = self._require_server()
        state = model.state or f"{self._wanted.model} {self.identity.digest}"
        name = f"tails {self._client.origin} {state} {model.n_context or model.probed[-1]}"
        noted = self._memory.recall(name)
        if noted not in (_SEEN, _REFUSED):
            noted = _SEEN
            for n_words in model.probed:
                noted = self._probe(n_words)
                if noted != _SEEN:
                    break
            if noted != _CUT:  # one that cuts is asked again: it may have been set right
                self._memory.note(name, noted)
        self._note_computation()
        return noted

    def _probe(self, n_words: int) -> str:
        """Return what becomes of texts of so many words, each sent alone."""
        texts = canaries.probe_texts(n_words)
        try:
            vectors = np.concatenate([self._calls.embed([text]) for text in texts])
        except TooLongError:
            return _REFUSED
        except EmbeddingError as error:
            raise NoEmbedderError(
                f"{self._client.service.title} at {self._client.origin} fails for a text of "
                f"{n_words} words: {error.message}",
                "look into the server's log",
            ) from None
        return _SEEN if canaries.tail_is_seen(vectors) else _CUT


def _first_name(model: ServedModel) -> str:
    return model.digests[0] if model.digests else ""


def _digest(model: ServedModel, now: Sequence[str], *, is_other: bool) -> str:
    """Return the digest of the identity.

    Where the server tells none, only the canaries tell models apart. They are hashed as they
    are: a rounding of theirs would give one identity to vectors that can't be compared.
    """
    mark = hashlib.sha256("".join(now).encode()).hexdigest()
    if not model.digests:
        return f"canaries:{mark[:16]}"
    return f"{model.digests[0]}+{mark[:8]}" if is_other else model.digests[0]


def _strings(noted: str | None) -> tuple[str, ...]:
    """Return the strings of a JSON list, none for anything else: what is noted may be garbled."""
    found = parse_json(noted or "")
    is_list = isinstance(found, list) and all(isinstance(item, str) for item in found)
    return tuple(found) if is_list else ()
