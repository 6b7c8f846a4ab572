"""Small files of the local state: what is garbage reads as if it were absent.

Vectors and views have formats and proofs of their own; ``scratch`` has what writes a file whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20


def read_text(file: Path, most_bytes: int = _MOST_BYTES) -> str | None:
    """Return the text of a small file, ``None`` where there is none or it can't be one of ours."""
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes + 1)
        return None if len(content) > most_bytes or b"\0" in content else content.decode("utf-8")
    except (OSError, ValueError):
        return None


def read_strings(file: Path, most_bytes: int = _MOST_BYTES) -> dict[str, str]:
    """Return the strings by name that a JSON file holds; whatever else is in it is left out."""
    found = parse_json(read_text(file, most_bytes) or "")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def parse_json(text: str) -> Any:
    """Return what JSON says, ``None`` for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the latter where brackets are nested thousands deep
        return None


def remove(place: Path) -> None:
    """Remove a file of ours, or the folder that stands in its place. Raises OSError."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
