"""What this clone has learned of servers: one small JSON file, never committed, never the truth.

Apart from the cache, whose connection a build holds open while an embedder asks and tells. Safe
to delete at any time: what is missing is asked again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

_KEPT = 64


class Facts:
    """Facts by name. A file that can't be read is empty, one that can't be written stays as is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "servers.json"

    def recall(self, name: str) -> str | None:
        """Return what was noted under ``name``."""
        return self._read().get(name)

    def note(self, name: str, value: str) -> None:
        """Keep a fact at once; the oldest are forgotten."""
        facts = self._read()
        facts.pop(name, None)
        facts[name] = value
        kept = dict(list(facts.items())[-_KEPT:])
        import tempfile  # slow to load, and rarely needed

        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self._file.parent, suffix=".tmp", delete=False, encoding="utf-8"
            ) as file:
                json.dump(kept, file, indent=1)
            os.replace(file.name, self._file)  # noqa: PTH105 - whole or not at all
        except OSError:
            return

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {str(name): value for name, value in found.items() if isinstance(value, str)}
