"""Parses the address of a server, and tells whether text sent there stays on this machine. No I/O.

A server is written as Ollama's clients take it: a host, a port, a URL, with or without a path.
Whatever could be read in two ways (user names, escapes, other characters than a host has) is
refused, so that what was judged is what is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from kbindex.core.errors import UsageError

DEFAULT_PORT = 11434
CLOUD = "https://ollama.com:443"
"""The server to which a local Ollama passes texts for a cloud model."""

_SERVER = re.compile(
    r"(?:(?P<scheme>https?)://)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])?"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[A-Za-z0-9_-]+)*)/?",
    re.ASCII,
)


@dataclass(frozen=True)
class Server:
    """The address of a server. A user approves its ``origin``: scheme, host and port."""

    origin: str
    path: str
    is_loopback: bool
    is_own: bool = False
    """Whether the user's environment names it; only then it gets the user's key."""

    @property
    def url(self) -> str:
        return self.origin + self.path


def parse_server(text: str, default_port: int | None = DEFAULT_PORT) -> Server:
    """Return the server that ``text`` means, in its one normal form.

    ``default_port`` is that of an address without scheme and port; ``None`` is HTTP's. Raises
    UsageError.
    """
    found = _SERVER.fullmatch(text.strip(" "))
    if found is None or not (found["host"] or found["port"]):
        raise _not_a_server(text)
    scheme = (found["scheme"] or "http").lower()
    usual = {"http": 80, "https": 443}[scheme]
    if not found["scheme"]:
        usual = default_port or usual
    port = int(found["port"] or usual)
    if not 0 < port < 65536:
        raise _not_a_server(text)
    host, is_loopback = _judged(found["host"] or "127.0.0.1", text)
    return Server(f"{scheme}://{host}:{port}", found["path"], is_loopback)


def _judged(host: str, text: str) -> tuple[str, bool]:
    """Return the host in its normal form, and whether it is this machine.

    Only ``localhost`` and literal loopback addresses are: another name may resolve to anything,
    and other parsers read ``127.1`` or ``0x7f000001`` in their own way.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        if host.startswith("["):
            raise _not_a_server(text) from None
        host = host.lower()
        return host, host == "localhost"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_unspecified:  # what a server listens on; a client means this machine
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    written = str(address) if address.version == 4 else f"[{address}]"
    return written, address.is_loopback


def is_cloud_model(model: str) -> bool:
    """Whether Ollama passes texts for ``model`` on to its makers' servers: ``…:cloud``."""
    tag = model.rsplit(":", 1)[-1].lower() if ":" in model else ""
    return tag == "cloud" or tag.endswith("-cloud")


def _not_a_server(text: str) -> UsageError:
    return UsageError(
        f"'{text}' does not name a server",
        "write a host, host:port, or http(s)://host:port; an IPv6 address stands in brackets",
    )
