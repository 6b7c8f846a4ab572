"""Failures of a call to a server, translated into errors that a build or a user can act on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError
from kbindex.core.text import printable

if TYPE_CHECKING:
    from kbindex.embed.servers.service import Service

_LONGEST_SAID = 200
_NOT_A_NUMBER = re.compile(r"\bNaN\b|\bInf\b")


class UnansweredError(Exception):
    """No usable answer this time; another attempt may get one.

    ``is_reply`` says that the server did reply, with an error of its own; ``is_late`` that the
    time ran out, so that another attempt would take as long again; ``is_busy`` that it has too
    much to do; ``wait`` is the number of seconds that it asks for.
    """

    def __init__(
        self,
        reason: str,
        *,
        is_reply: bool = False,
        is_late: bool = False,
        is_busy: bool = False,
        wait: float = 0.0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_reply, self.is_late, self.is_busy = is_reply, is_late, is_busy
        self.wait = wait


@dataclass(frozen=True)
class Refusal:
    """A reply that is an error: HTTP status, the server's words, the wait that it asks for."""

    status: int
    message: str
    wait: float = 0.0

    @property
    def said(self) -> str:
        """The words on one line, without control characters, bounded."""
        line = printable(" ".join(self.message.split()))
        return line[:_LONGEST_SAID] or f"HTTP {self.status}"


@contextmanager
def transport_errors(title: str) -> Iterator[None]:
    """Raise UnansweredError for whatever goes wrong between the server and us."""
    try:
        import httpx
    except (ImportError, OSError, ValueError) as error:
        raise UnansweredError(f"can't be asked ({error})") from None
    try:
        yield
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout):
        raise UnansweredError("can't be reached") from None
    except httpx.TimeoutException:
        raise UnansweredError("gives no answer in time", is_late=True) from None
    except httpx.RequestError as error:
        raise UnansweredError(f"broke the connection off ({error})") from None
    except (ImportError, OSError) as error:  # of a proxy or certificate that can't be used
        raise UnansweredError(f"can't be reached ({error})") from None
    # No JSON, or of another form, or with numbers that are none of a vector.
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise UnansweredError(f"answers something that is not {title}'s", is_reply=True) from None


def error_of(refusal: Refusal, origin: str, model: str, service: Service) -> Exception:
    """Return the error that a refusal means for every kind of server."""
    status, said = refusal.status, refusal.said
    if _NOT_A_NUMBER.search(said):
        return EmbeddingError(None, f"{model} gives no numbers for it ({said})")
    if 300 <= status < 400:
        return NoEmbedderError(
            f"the server at {origin} wants to redirect (HTTP {status}), which is not followed",
            f"name the server that is meant ({service.named_by})",
        )
    if status in (401, 403, 407):  # not in the server's words, which may quote the key
        return NoEmbedderError(
            f"the server at {origin} refuses access (HTTP {status})",
            f"set {service.key}, which is sent only to a server that your environment names; or "
            f"name another server ({service.named_by})",
        )
    if status in (408, 425, 429) or status >= 500:
        return UnansweredError(
            f"fails with HTTP {status}: {said}",
            is_reply=True,
            is_busy=status == 429 or refusal.wait > 0,
            wait=refusal.wait,
        )
    return EmbeddingError(None, said)


def too_long(model: str, said: str) -> TooLongError:
    return TooLongError(None, f"it is too long for {model} ({said})")


def asked_wait(headers: Mapping[str, str]) -> float:
    """Return the seconds that a reply asks to wait, 0 if it doesn't (RFC 9110, 10.2.3).

    Retry-After is a number of seconds or a date; ``retry-after-ms`` is OpenAI's.
    """
    after = headers.get("retry-after", "")
    seconds = 0.0
    with suppress(ValueError, OverflowError):
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif after[:1].isalpha():
            seconds = parsedate_to_datetime(after).timestamp() - time.time()
        else:
            seconds = float(after)
    return seconds if seconds > 0 else 0.0  # nor is NaN
