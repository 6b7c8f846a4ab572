"""What a refusal of an OpenAI-compatible server means; the words are those of several servers."""

from __future__ import annotations

import re

from kbindex.core.errors import NoEmbedderError
from kbindex.embed.servers.errors import Refusal, error_of, too_long
from kbindex.embed.servers.service import Service

OPENAI_SERVICE = Service(
    title="the server",
    restart="",
    named_by="OPENAI_BASE_URL or openai_base_url",
    key="OPENAI_API_KEY",
    despite="",
    uncut="switch its truncation off (Text Embeddings Inference: '--auto-truncate false'), or take "
    "another server, another model or a smaller chunk_max_tokens",
    example="openai:BAAI/bge-m3",
)
_TOO_LONG = re.compile(
    r"maximum (context|input|sequence|model) length"
    r"|exceed\w*\b.*(context|tokens|length)|(context|length)\w*_exceeded"
    r"|must have less than \d+ tokens|is too (large|long)|too many tokens|longer than the maximum",
    re.IGNORECASE,
)
_TOO_LONG_BUT_500 = re.compile(r"too large to process|exceed", re.IGNORECASE)
"""llama-server's; other failures of a server mention a context, too."""
_NO_QUOTA = re.compile(r"insufficient_quota|billing|out of credits", re.IGNORECASE)


def refusal_error(refusal: Refusal, code: str, origin: str, model: str) -> Exception:
    """Return the error that a refusal means."""
    status, said = refusal.status, refusal.said
    words = _TOO_LONG_BUT_500 if status >= 500 else _TOO_LONG
    is_about_texts = status not in (401, 403, 404, 429)
    if status == 413 or (is_about_texts and words.search(f"{code} {said}")):
        return too_long(model, said)
    if status == 404:
        return NoEmbedderError(
            f"the server at {origin} knows no such model or path: {said}",
            f"name the model as the server does (openai:{model} is asked for), and the base URL "
            "with its path, mostly /v1 (OPENAI_BASE_URL or openai_base_url)",
        )
    if status == 402 or (status == 429 and _NO_QUOTA.search(f"{code} {said}")):
        return NoEmbedderError(
            f"the server at {origin} has no quota left for you: {said}",
            "see to the account, then run this again; what is embedded so far is kept",
        )
    return error_of(refusal, origin, model, OPENAI_SERVICE)
