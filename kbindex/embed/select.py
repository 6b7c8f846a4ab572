"""The choice of the configured embedder, and of what an Ollama server is asked to be.

No server is asked anything here; the embedder does that when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kbindex.configuration.config import Config
from kbindex.core.errors import UsageError
from kbindex.core.model import EmbedderIdentity, Recipe
from kbindex.embed import OLLAMA, Embedder, load_embedder
from kbindex.embed.ollama.names import canonical_name
from kbindex.embed.ollama.prefixes import model_prefixes

_CONTEXT_TOKENS = 128
"""Most tokens that ``compose`` puts before a chunk: title, headings, a cut table's header."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(:[A-Za-z0-9._-]+)?")


def expected_identity(config: Config, stored: EmbedderIdentity) -> EmbedderIdentity:
    """Return the identity that a configuration asks for, without asking a server.

    What only a server knows, digest and dimension, is taken from ``stored``.
    """
    model = _ollama_model(config.embedder)
    if model is None:
        return load_embedder(config.embedder).identity
    name = canonical_name(model)
    if stored.provider == OLLAMA and canonical_name(stored.model) == name:
        name = stored.model
    query, document = _prefixes(config, model)
    return EmbedderIdentity(OLLAMA, name, stored.digest, stored.dimension, query, document)


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
    model = _ollama_model(config.embedder)
    if model is None:
        return load_embedder(config.embedder)
    from kbindex.embed.ollama.client import Patience
    from kbindex.embed.ollama.embedder import OllamaEmbedder, Wanted
    from kbindex.embed.ollama.facts import Facts
    from kbindex.embed.ollama.servers import approved_server

    longest = config.max_tokens + _CONTEXT_TOKENS
    patience = Patience(config.ollama_timeout, "ollama_timeout")
    if for_query and config.query_timeout < patience.seconds:
        patience = Patience(config.query_timeout, "query_timeout")
    prefixes = _prefixes(config, model)
    wanted = Wanted(model, canonical_name(model), *prefixes, longest, patience)
    if stored is not None and expected_identity(config, stored.embedder) == stored.embedder:
        identity = stored.embedder
        wanted = replace(wanted, model=identity.model, stored=identity, origin=stored.origin)
    return OllamaEmbedder(wanted, approved_server(config, model, environment), Facts(local))


def answering_server(embedder: Embedder) -> str:
    """Return the server that answers now, for people; empty for an embedder in this process.

    Raises NoEmbedderError.
    """
    from kbindex.embed.ollama.embedder import OllamaEmbedder

    return embedder.release if isinstance(embedder, OllamaEmbedder) else ""


def _prefixes(config: Config, model: str) -> tuple[str, str]:
    query, document = model_prefixes(model)
    return (
        query if config.query_prefix == "auto" else config.query_prefix,
        document if config.document_prefix == "auto" else config.document_prefix,
    )


def _ollama_model(embedder: str) -> str | None:
    """Return the model of ``ollama:MODEL``, ``None`` for another embedder. Raises UsageError."""
    provider, _, model = embedder.partition(":")
    if provider != OLLAMA:
        return None
    if not _MODEL.fullmatch(model):
        raise UsageError(f"'{embedder}' names no model", "name one as in 'ollama:bge-m3'")
    return model.removesuffix(":latest")
