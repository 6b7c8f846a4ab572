"""Translates the Ollama client's exceptions into errors that a build or a user can act on.

The words are those of the server's source and issues: it has no error codes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kbindex.core.errors import EmbeddingError, NoEmbedderError
from kbindex.embed.servers.errors import (
    Refusal,
    UnansweredError,
    error_of,
    too_long,
    transport_errors,
)
from kbindex.embed.servers.service import Service

OLLAMA_SERVICE = Service(
    title="Ollama",
    restart=" ('ollama serve')",
    named_by="OLLAMA_HOST or ollama_host",
    key="OLLAMA_API_KEY",
    despite=" although it is told not to",
    uncut="another release of Ollama, another model, or a smaller chunk_max_tokens",
    example="ollama:bge-m3",
)
_TOO_LONG = re.compile(
    r"exceeds (the|maximum) context length|exceeds maximum context|too large to process"
    r"|input length exceeds|larger than the (max )?context",
    re.IGNORECASE,
)
_RUNNER = re.compile(
    r"do embedding request|llama[ -](runner|server)|model runner|runner process"
    r"|(Post|Get) \"http://(127\.0\.0\.1|localhost)",
    re.IGNORECASE,
)
"""Names the process that holds the model. Its crash is answered with 400 from 0.25 to 0.33:
``do embedding request: Post "http://127.0.0.1:…/v1/embeddings": EOF``. The next call starts it."""


@contextmanager
def translate(origin: str, model: str) -> Iterator[None]:
    """Raise EmbeddingError, TooLongError, NoEmbedderError or UnansweredError instead."""
    try:
        import httpx
        import ollama
    except (ImportError, OSError, ValueError) as error:
        # It makes a client when it is imported, of whatever proxy and certificates are set.
        raise UnansweredError(f"can't be asked ({error})") from None
    with transport_errors(OLLAMA_SERVICE.title):
        try:
            yield
        except ollama.ResponseError as error:
            refusal = Refusal(error.status_code, str(error.error))
        except httpx.HTTPStatusError as error:
            refusal = Refusal(error.response.status_code, error.response.text)
        else:
            return
    raise _error_of(refusal, origin, model)


def _error_of(refusal: Refusal, origin: str, model: str) -> Exception:
    said = refusal.said
    if _TOO_LONG.search(said):
        return too_long(model, said)
    if refusal.status == 404:
        is_model = "model" in said.lower()
        remedy = f"ollama pull {model}" if is_model else "say where Ollama is (OLLAMA_HOST)"
        return NoEmbedderError(f"Ollama at {origin}: {said}", remedy)
    error = error_of(refusal, origin, model, OLLAMA_SERVICE)
    if isinstance(error, EmbeddingError) and _RUNNER.search(said):
        return UnansweredError(f"fails with HTTP {refusal.status}: {said}", is_reply=True)
    return error
