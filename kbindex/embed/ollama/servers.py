"""The configured Ollama server, and whether text may be sent to it.

The user's environment says first. A repository's configuration comes with a clone, possibly from
a stranger: it may only name this machine, or what the user has approved outside the repository.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kbindex.configuration.config import Config
from kbindex.core.errors import NoEmbedderError
from kbindex.embed.ollama.approvals import approved_origins
from kbindex.embed.ollama.hosts import CLOUD, Server, is_cloud_model, parse_server


def configured_server(config: Config, environment: Mapping[str, str]) -> Server:
    """Return the configured server. Raises UsageError for an address that can't be parsed."""
    own = environment.get("KBINDEX_OLLAMA_HOST") or environment.get("OLLAMA_HOST")
    server = parse_server(own or config.ollama_host or "127.0.0.1")
    return replace(server, is_own=bool(own))


def approved_server(
    config: Config, model: str, environment: Mapping[str, str]
) -> Callable[[], Server]:
    """Return a function that returns the server, or raises NoEmbedderError if it isn't approved.

    Raises UsageError for an address that can't be parsed.
    """
    server = configured_server(config, environment)
    is_own_model = environment.get("KBINDEX_EMBEDDER") == config.embedder

    def find() -> Server:
        if not (server.is_own or server.is_loopback):
            _require_approval(server.origin)
        if is_cloud_model(model) and not is_own_model:
            _require_approval(CLOUD)
        return server

    return find


def _require_approval(origin: str) -> None:
    if origin not in approved_origins():
        raise NoEmbedderError(
            "this repository's configuration would send text to "
            f"{origin}, which you have not approved",
            f"kbindex doctor --trust-host {origin}   (if you trust it with these documents)",
        )
