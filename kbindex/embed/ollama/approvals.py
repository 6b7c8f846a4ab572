"""Which servers the user has approved: a text file in the user's own configuration, one a line.

A repository's configuration comes with a clone, possibly from a stranger; this file never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbindex.local.files import read_text

_HEAD = (
    "# Servers that a repository's configuration may send text to (kbindex doctor --trust-host)."
)


def approvals_file(environment: Mapping[str, str]) -> Path:
    """Return where the approvals stand."""
    configured = environment.get("XDG_CONFIG_HOME", "")
    # The standard ignores a relative path, and it could lead into a repository.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return base / "kbindex" / "trusted-hosts"


def approved_origins(environment: Mapping[str, str]) -> set[str]:
    """Return the origins approved so far."""
    lines = (read_text(approvals_file(environment)) or "").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def approve_origin(environment: Mapping[str, str], origin: str) -> Path:
    """Add an origin to the approvals; return their file."""
    file = approvals_file(environment)
    origins = sorted(approved_origins(environment) | {origin})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([_HEAD, *origins, ""]), encoding="utf-8")
    return file
