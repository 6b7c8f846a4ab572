"""Translates the Ollama client's exceptions into errors that a build or a user can act on.

The words are those of the server's source and issues: it has no error codes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError

_TOO_LONG = re.compile(
    r"exceeds (the|maximum) context length|exceeds maximum context|too large to process"
    r"|input length exceeds|larger than the (max )?context",
    re.IGNORECASE,
)
_NOT_A_NUMBER = re.compile(r"\bNaN\b|\bInf\b")
_RUNNER = re.compile(
    r"do embedding request|llama[ -](runner|server)|model runner|runner process"
    r"|(Post|Get) \"http://(127\.0\.0\.1|localhost)",
    re.IGNORECASE,
)
"""Names the process that holds the model. Its crash is answered with 400 from 0.25 to 0.33:
``do embedding request: Post "http://127.0.0.1:…/v1/embeddings": EOF``. The next call starts it."""


class UnansweredError(Exception):
    """No usable answer this time; another attempt may get one.

    ``is_reply`` says that the server did reply, with an error of its own; ``is_late`` that the
    time ran out, so that another attempt would take as long again.
    """

    def __init__(self, reason: str, *, is_reply: bool = False, is_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_reply = is_reply
        self.is_late = is_late


@contextmanager
def translate(origin: str, model: str) -> Iterator[None]:
    """Raise EmbeddingError, TooLongError, NoEmbedderError or UnansweredError instead."""
    try:
        import httpx
        import ollama
    except (ImportError, OSError, ValueError) as error:
        # It makes a client when it is imported, of whatever proxy and certificates are set.
        raise UnansweredError(f"can't be asked ({error})") from None
    try:
        yield
    except ollama.ResponseError as error:
        raise _reply(error.status_code, str(error.error), origin, model) from None
    except httpx.HTTPStatusError as error:
        response = error.response
        raise _reply(response.status_code, response.text, origin, model) from None
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout):
        raise UnansweredError("can't be reached") from None
    except httpx.TimeoutException:
        raise UnansweredError("gives no answer in time", is_late=True) from None
    except httpx.RequestError as error:
        raise UnansweredError(f"broke the connection off ({error})") from None
    except (ImportError, OSError) as error:  # of a proxy or certificate that can't be used
        raise UnansweredError(f"can't be reached ({error})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no JSON, or odd
        raise UnansweredError("answers something that is not Ollama's", is_reply=True) from None


def _reply(status: int, message: str, origin: str, model: str) -> Exception:
    said = " ".join(message.split())[:200] or f"HTTP {status}"
    if _TOO_LONG.search(said):
        return TooLongError(None, f"it is too long for {model}")
    if _NOT_A_NUMBER.search(said):
        return EmbeddingError(None, f"{model} gives no numbers for it ({said})")
    if status == 404:
        is_model = "model" in said.lower()
        remedy = f"ollama pull {model}" if is_model else "say where Ollama is (OLLAMA_HOST)"
        return NoEmbedderError(f"Ollama at {origin}: {said}", remedy)
    if 300 <= status < 400:
        return NoEmbedderError(
            f"the server at {origin} wants to redirect (HTTP {status}), which is not followed",
            "name the server that is meant (OLLAMA_HOST or ollama_host)",
        )
    if status in (401, 403, 407):
        return NoEmbedderError(
            f"the server at {origin} refuses access (HTTP {status}): {said}",
            "set OLLAMA_API_KEY, or name another server (OLLAMA_HOST)",
        )
    if status == 429 or status >= 500 or _RUNNER.search(said):
        return UnansweredError(f"fails with HTTP {status}: {said}", is_reply=True)
    return EmbeddingError(None, said)
