"""Small files of the local state; a garbled one reads like a missing one.

Vectors and views have formats and proofs of their own. ``scratch`` writes files atomically.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20


def read_text(file: Path, most_bytes: int = _MOST_BYTES) -> str | None:
    """Return the text of a small file, ``None`` if it is missing, too large or not text."""
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes + 1)
        return None if len(content) > most_bytes or b"\0" in content else content.decode("utf-8")
    except (OSError, ValueError):
        return None


def read_strings(file: Path, most_bytes: int = _MOST_BYTES) -> dict[str, str]:
    """Return the string values of a JSON object in a file, by name; other values are left out."""
    found = parse_json(read_text(file, most_bytes) or "")
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, ``None`` for invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the latter where brackets are nested thousands deep
        return None


def remove(place: Path) -> None:
    """Remove one of our files, or a folder of its name. Raises OSError."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
