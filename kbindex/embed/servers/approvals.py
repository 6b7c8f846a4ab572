"""Which servers the user has approved: a text file in the user's own configuration, one a line.

A repository's configuration comes with a clone, possibly from a stranger; this file never does.
"""

from __future__ import annotations

from pathlib import Path

from kbindex.local.files import read_text
from kbindex.local.user_folders import config_file

_HEAD = (
    "# Servers that a repository's configuration may send text to (kbindex doctor --trust-host)."
)


def approvals_file() -> Path:
    """Return the path of the approvals, whether there are any or not."""
    return config_file("trusted-hosts")


def approved_origins() -> set[str]:
    """Return the origins approved so far."""
    lines = (read_text(approvals_file()) or "").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def approve_origin(origin: str) -> Path:
    """Add an origin to the approvals; return their file. Raises OSError."""
    file = approvals_file()
    origins = sorted(approved_origins() | {origin})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([_HEAD, *origins, ""]), encoding="utf-8")
    return file
