"""Calls that are made again when a server left them unanswered, and not for ever.

A failure is a text's only if the server embeds a plain sentence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.embed.servers import canaries
from kbindex.embed.servers.errors import UnansweredError
from kbindex.embed.servers.service import ModelClient

PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before each further attempt at a call that the server left unanswered."""
QUERY_PAUSES = PAUSES[:1]
_BUSY_PAUSES = (*PAUSES, 4.0, 8.0, 16.0, 32.0)
"""The same where the server says that it has too much to do; if it says how long, at least that."""
_LONGEST_WAIT = 90.0
_LONGEST_WAIT_OF_QUERY = 5.0
"""Seconds. A server that asks for more, for a day's quota, isn't waited for."""


class Calls:
    """Embeds through a client, with patience."""

    def __init__(self, client: ModelClient, pause: Callable[[float], None] = time.sleep) -> None:
        self._client, self.pause = client, pause

    def embed(self, texts: Sequence[str], pauses: Sequence[float] = PAUSES) -> NDArray[np.float32]:
        """Return unit vectors. A failure of a single text is the text's only if others work.

        Raises TooLongError, EmbeddingError, NoEmbedderError.
        """
        # A NUL ends the text in some engines and would hide the rest.
        shown = [text.replace("\0", "\ufffd") for text in texts]
        try:
            return self.attempt(shown, pauses)
        except TooLongError:
            raise
        except EmbeddingError as error:
            if len(texts) == 1:
                self._require_health(error)
            raise

    def attempt(
        self, texts: Sequence[str], pauses: Sequence[float] = PAUSES
    ) -> NDArray[np.float32]:
        """Ask; after UnansweredError pause and ask again, unless the time ran out.

        Raises TooLongError, EmbeddingError, NoEmbedderError.
        """
        n_attempts = 0
        while True:
            try:
                return self._client.ask(texts)
            except UnansweredError as error:
                wait = _wait(error, n_attempts, pauses)
                if wait is None:
                    raise self._given_up(error) from None
                self.pause(wait)
                n_attempts += 1

    def unreachable(self, error: UnansweredError) -> NoEmbedderError:
        """Return the error for a server that does not answer, with its remedy."""
        patience, service = self._client.patience, self._client.service
        if error.is_late:
            return NoEmbedderError(
                f"{service.title} at {self._client.origin} {error.reason} ({patience.seconds} s)",
                f"raise {patience.setting} if the model takes longer to load or to compute "
                f"('kbindex doctor' loads it); restart the server if it hangs{service.restart}",
            )
        return self._client.unreachable(error.reason)

    def _given_up(self, error: UnansweredError) -> Exception:
        if error.wait > _LONGEST_WAIT_OF_QUERY:
            return NoEmbedderError(
                f"{self._client.service.title} at {self._client.origin} {error.reason}, and asks "
                f"to wait for {error.wait:.0f} s",
                "run this again after that time; what is embedded so far is kept",
            )
        if not error.is_reply:
            return self.unreachable(error)
        failure = EmbeddingError(None, error.reason)
        self._require_health(failure)  # before a batch is halved for nothing
        return failure

    def _require_health(self, failure: EmbeddingError) -> None:
        """Raise NoEmbedderError if a plain sentence fails twice, too."""
        for pause in (PAUSES[0], None):
            try:
                self._client.ask([canaries.TEXTS[0]])
            except (EmbeddingError, UnansweredError):
                if pause:
                    self.pause(pause)
            else:
                return
        service = self._client.service
        raise NoEmbedderError(
            f"{service.title} at {self._client.origin} fails for every text: {failure.message}",
            f"look into the server's log, restart it{service.restart}, then run this again; "
            "what is embedded so far is kept",
        )


def _wait(error: UnansweredError, n_attempts: int, pauses: Sequence[float]) -> float | None:
    """Return the seconds before the next attempt, ``None`` if there should be none."""
    is_query = len(pauses) < len(PAUSES)
    usual = pauses if is_query or not error.is_busy else _BUSY_PAUSES
    longest = _LONGEST_WAIT_OF_QUERY if is_query else _LONGEST_WAIT
    if error.is_late or n_attempts >= len(usual) or error.wait > longest:
        return None
    return max(usual[n_attempts], error.wait)
