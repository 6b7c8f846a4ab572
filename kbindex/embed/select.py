"""The choice of the configured embedder, and of what a server is asked to be.

No server is asked anything here; the embedder does that when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbindex.configuration.config import Config
from kbindex.core.errors import UsageError
from kbindex.core.model import EmbedderIdentity, Recipe
from kbindex.embed import OLLAMA, OPENAI, Embedder, load_embedder
from kbindex.embed.ollama.names import canonical_name
from kbindex.embed.servers.prefixes import model_prefixes

if TYPE_CHECKING:
    from kbindex.embed.servers.service import ModelClient

_CONTEXT_TOKENS = 128
"""Most tokens that ``compose`` puts before a chunk: title, headings, a cut table's header."""
_PARALLEL_CALLS = 4
"""To an OpenAI-compatible server. They batch what comes at the same time, or queue it."""

_MODELS = {
    OLLAMA: re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(:[A-Za-z0-9._-]+)?"),
    OPENAI: re.compile(r"[A-Za-z0-9/_.][A-Za-z0-9._/:@+-]*"),
}
_EXAMPLES = {OLLAMA: "ollama:bge-m3", OPENAI: "openai:BAAI/bge-m3"}


def expected_identity(config: Config, stored: EmbedderIdentity) -> EmbedderIdentity:
    """Return the identity that a configuration asks for, without asking a server.

    What only a server knows, digest and dimension, is taken from ``stored``.
    """
    served = _served_model(config.embedder)
    if served is None:
        return load_embedder(config.embedder).identity
    provider, model = served
    name = _identity_name(provider, model)
    if stored.provider == provider and _identity_name(provider, stored.model) == name:
        name = stored.model
    query, document = _prefixes(config, model)
    return EmbedderIdentity(provider, name, stored.digest, stored.dimension, query, document)


def open_embedder(
    config: Config,
    stored: Recipe | None,
    local: Path,
    environment: Mapping[str, str],
    *,
    for_query: bool = False,
) -> Embedder:
    """Return the configured embedder for an index made by ``stored``.

    ``local`` is the folder of what this clone remembers. ``for_query``: somebody waits, so a
    server has the shorter ``query_timeout`` for each answer. Raises UsageError for a name or a
    host that means nothing; what is down, missing or not approved raises when it is used.
    """
    served = _served_model(config.embedder)
    if served is None:
        return load_embedder(config.embedder)
    from kbindex.embed.servers.embedder import ServerEmbedder, WantedModel
    from kbindex.embed.servers.facts import Facts

    provider, model = served
    longest = config.max_tokens + _CONTEXT_TOKENS
    name = _identity_name(provider, model)
    wanted = WantedModel(provider, name, *_prefixes(config, model), longest)
    if stored is not None and expected_identity(config, stored.embedder) == stored.embedder:
        identity = stored.embedder
        wanted = replace(wanted, model=identity.model, stored=identity, origin=stored.origin)
    client = _client(provider, model, config, environment, for_query=for_query)
    n_parallel = _PARALLEL_CALLS if provider == OPENAI else 1
    return ServerEmbedder(wanted, client, Facts(local), n_parallel=n_parallel)


def answering_server(embedder: Embedder) -> str:
    """Return the server that answers now, for people; empty for an embedder in this process.

    Raises NoEmbedderError.
    """
    from kbindex.embed.servers.embedder import ServerEmbedder

    return embedder.release if isinstance(embedder, ServerEmbedder) else ""


def _client(
    provider: str, model: str, config: Config, environment: Mapping[str, str], *, for_query: bool
) -> ModelClient:
    from kbindex.embed.servers.service import Patience
    from kbindex.embed.servers.trust import approved_server

    find = approved_server(config, model, environment)
    setting = f"{provider}_timeout"
    patience = Patience(getattr(config, setting), setting)
    if for_query and config.query_timeout < patience.seconds:
        patience = Patience(config.query_timeout, "query_timeout")
    if provider == OLLAMA:
        from kbindex.embed.ollama.client import OllamaClient

        return OllamaClient(find, model, patience)
    from kbindex.embed.openai.client import OpenAIClient

    key = environment.get("KBINDEX_OPENAI_API_KEY") or environment.get("OPENAI_API_KEY") or ""
    return OpenAIClient(find, model, patience, key)


def _prefixes(config: Config, model: str) -> tuple[str, str]:
    query, document = model_prefixes(model)
    return (
        query if config.query_prefix == "auto" else config.query_prefix,
        document if config.document_prefix == "auto" else config.document_prefix,
    )


def _identity_name(provider: str, model: str) -> str:
    return canonical_name(model) if provider == OLLAMA else model


def _served_model(embedder: str) -> tuple[str, str] | None:
    """Return provider and model of a server's, ``None`` for another embedder. Raises UsageError."""
    provider, _, model = embedder.partition(":")
    if provider not in _MODELS:
        return None
    if not _MODELS[provider].fullmatch(model):
        raise UsageError(f"'{embedder}' names no model", f"name one as in '{_EXAMPLES[provider]}'")
    return provider, model.removesuffix(":latest") if provider == OLLAMA else model
