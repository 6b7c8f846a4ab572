"""The client of one model on an OpenAI-compatible server: vLLM, Text Embeddings Inference,
llama-server, LM Studio, and hosted ones.

A call names the model, the texts and the encoding, and nothing else: servers refuse fields that
they don't know, and none has one that forbids truncation everywhere. Such a server tells neither
a digest nor a limit: canaries tell whether it is the same, the probe how it treats long texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import NoEmbedderError, UsageError
from kbindex.embed.openai.answer import error_words, read_embeddings
from kbindex.embed.openai.errors import OPENAI_SERVICE, refusal_error
from kbindex.embed.servers import canaries
from kbindex.embed.servers.calls import Calls
from kbindex.embed.servers.errors import Refusal, asked_wait, transport_errors
from kbindex.embed.servers.hosts import Server
from kbindex.embed.servers.service import Memory, Patience, ServedModel
from kbindex.embed.servers.vectors import unit_vectors

if TYPE_CHECKING:
    import httpx

_CONNECT_SECONDS = 5.0
_PROBED = (0.5, 2, 8)
"""Lengths of the probe's texts, as words per cl100k token of the longest chunk."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*(/[A-Za-z0-9][A-Za-z0-9._:@-]*)?")
"""A model's name that can't be a path of somebody's machine."""
_KEY = re.compile(r"[!-~]+")


class OpenAIClient:
    """The client. The model has to be found before texts are embedded."""

    service = OPENAI_SERVICE

    def __init__(
        self, find: Callable[[], Server], model: str, patience: Patience, key: str
    ) -> None:
        """``find`` raises NoEmbedderError where text may not be sent; ``key`` may be empty."""
        self._find, self._name, self.patience, self._key = find, model, patience, key
        self._dimension: int | None = None
        self._reported = model

    @property
    def origin(self) -> str:
        return self._server.origin

    def find_model(self, _memory: Memory, calls: Calls, longest_text: int) -> ServedModel:
        """Embed the canaries: nothing else tells the dimension, or whether it is the same model."""
        vectors = calls.attempt(canaries.TEXTS)
        self._dimension = vectors.shape[1]
        return ServedModel(
            release=f"openai {self._reported}",
            digests=(),
            state="",
            dimension=self._dimension,
            n_context=0,
            probed=tuple(int(longest_text * share) for share in _PROBED),
            canaries=canaries.pack_vectors(vectors),
        )

    def ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of one call; see ModelClient."""
        body = {"model": self._name, "input": list(texts), "encoding_format": "float"}
        with transport_errors("an OpenAI-compatible server"):
            reply = self._client.post(f"{self._server.url}/embeddings", json=body)
            if reply.status_code == 200:
                answer = reply.json()
                vectors = read_embeddings(answer, len(texts))
                self._note_reported(answer)
                return unit_vectors(vectors, len(texts), self._dimension)
        message, code = error_words(reply.text)
        refusal = Refusal(reply.status_code, self._redacted(message), asked_wait(reply.headers))
        raise refusal_error(refusal, code, self.origin, self._name)

    def unreachable(self, reason: str) -> NoEmbedderError:
        return NoEmbedderError(
            f"the server at {self.origin} {reason}",
            f"start it, or say where it is ({self.service.named_by})",
        )

    def _note_reported(self, answer: Any) -> None:
        reported = answer.get("model")
        if isinstance(reported, str) and _PLAIN_NAME.fullmatch(reported[:200]):
            self._reported = reported

    def _redacted(self, words: str) -> str:
        return words.replace(self._key, "…") if self._key else words

    @cached_property
    def _server(self) -> Server:
        return self._find()

    @cached_property
    def _client(self) -> httpx.Client:
        import httpx

        return httpx.Client(
            timeout=httpx.Timeout(float(self.patience.seconds), connect=_CONNECT_SECONDS),
            # Nothing may lead a text elsewhere: no redirect, and on this machine no proxy.
            follow_redirects=False,
            trust_env=not self._server.is_loopback,
            headers=self._headers,
        )

    @property
    def _headers(self) -> dict[str, str]:
        if not self._key or not self._server.is_own:
            return {}
        if not _KEY.fullmatch(self._key):  # httpx would name it in its error
            raise UsageError(
                "the API key in the environment holds a space, a line end or a character that no "
                "key has",
                f"set {self.service.key} again",
            )
        return {"Authorization": f"Bearer {self._key}"}
