"""What a kind of server is to the rest: its words, its models, and the calls that it answers.

Types only; the kinds are in ``ollama/`` and ``openai/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import NoEmbedderError

if TYPE_CHECKING:
    from kbindex.embed.servers.calls import Calls


class Memory(Protocol):
    """Remembers a server's answers from one run to the next."""

    def recall(self, name: str) -> str | None: ...

    def note(self, name: str, value: str) -> None: ...


@dataclass(frozen=True)
class Service:
    """The words of messages and remedies about one kind of server."""

    title: str
    """What answers, as in "TITLE at http://…"."""
    restart: str
    named_by: str
    """The variables and settings that name the server."""
    key: str
    """The variable that holds the key."""
    despite: str
    """What the server was told before it cut a text off."""
    uncut: str
    """What helps where texts are cut off."""
    example: str
    """An embedder to try."""


@dataclass(frozen=True)
class Patience:
    """How long one call may take, and the setting that says so."""

    seconds: int
    setting: str


@dataclass(frozen=True)
class ServedModel:
    """A model as a server has it."""

    release: str
    """The server's kind and version, or the model that it says it runs; for people."""
    digests: tuple[str, ...]
    """Digests that mean this model, that of the identity first; empty where none is told."""
    state: str
    """Changes whenever the server may compute otherwise; empty where that can't be told."""
    dimension: int
    n_context: int
    """Most tokens of a text; 0 where the server doesn't tell."""
    probed: tuple[int, ...]
    """Lengths in words of the texts that show whether the server cuts, in ascending order."""
    canaries: tuple[str, ...] = ()
    """Packed vectors of the canaries, where finding the model brought them."""


class ModelClient(Protocol):
    """One model on one server. Makes single calls and validates their answers."""

    service: Service
    patience: Patience

    @property
    def origin(self) -> str:
        """Scheme, host and port. Raises NoEmbedderError where text may not be sent."""

    def find_model(self, memory: Memory, calls: Calls, longest_text: int) -> ServedModel:
        """Return the model as the server has it, for texts of so many cl100k tokens at most.

        Raises UnansweredError, EmbeddingError, NoEmbedderError.
        """

    def ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors ``(n_texts, dimension)`` of one call.

        Raises UnansweredError for what may pass, TooLongError, EmbeddingError, NoEmbedderError.
        """

    def unreachable(self, reason: str) -> NoEmbedderError:
        """Return the error for a server that does not answer, with its remedy."""
