"""The configured server, and whether text may be sent to it.

The user's environment says first. A repository's configuration comes with a clone, possibly from
a stranger: it may only name this machine, or what the user has approved outside the repository.
A key goes to no server but one that the environment names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kbindex.configuration.config import Config
from kbindex.core.errors import NoEmbedderError
from kbindex.embed import OLLAMA, OPENAI
from kbindex.embed.servers.approvals import approved_origins
from kbindex.embed.servers.hosts import CLOUD, Server, is_cloud_model, parse_server


@dataclass(frozen=True)
class _Place:
    """Where a kind of server may be named."""

    setting: str
    variables: tuple[str, ...]
    """Of the environment, the strongest first."""
    default: str
    """The server without any, empty if there has to be one."""
    port: int | None
    """The port of an address that names neither scheme nor port."""
    path: str
    """The path of an address that names none."""


_PLACES = {
    OLLAMA: _Place(
        "ollama_host", ("KBINDEX_OLLAMA_HOST", "OLLAMA_HOST"), "127.0.0.1", 11434, path=""
    ),
    OPENAI: _Place(
        "openai_base_url", ("KBINDEX_OPENAI_BASE_URL", "OPENAI_BASE_URL"), "", port=None, path="/v1"
    ),
}


def configured_server(config: Config, environment: Mapping[str, str]) -> Server | None:
    """Return the configured server, ``None`` for an embedder without one or if none is named.

    Raises UsageError for an address that can't be parsed.
    """
    place = _PLACES.get(config.embedder.partition(":")[0])
    if place is None:
        return None
    own = next(filter(None, map(environment.get, place.variables)), "")
    configured: str = getattr(config, place.setting)
    named = own or configured or place.default
    if not named:
        return None
    server = parse_server(named, place.port)
    return replace(server, path=server.path or place.path, is_own=bool(own))


def approved_server(
    config: Config, model: str, environment: Mapping[str, str]
) -> Callable[[], Server]:
    """Return a function that returns the server, or raises NoEmbedderError if it isn't approved.

    Raises UsageError for an address that can't be parsed.
    """
    server = configured_server(config, environment)
    is_own_model = environment.get("KBINDEX_EMBEDDER") == config.embedder
    may_pass_on = config.embedder.startswith(f"{OLLAMA}:") and is_cloud_model(model)

    def find() -> Server:
        if server is None:
            raise NoEmbedderError(
                f"no server is named for '{config.embedder}'",
                "set OPENAI_BASE_URL in your environment, or openai_base_url in kbindex.toml, to "
                "its base URL, such as http://127.0.0.1:8000/v1",
            )
        if not (server.is_own or server.is_loopback):
            _require_approval(server.origin)
        if may_pass_on and not is_own_model:
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
