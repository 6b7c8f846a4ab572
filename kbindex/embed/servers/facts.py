"""Remembered answers of servers: one small JSON file of this clone, never committed.

It is apart from the cache, whose connection a build holds open while an embedder reads and
writes here. It can be deleted at any time: the servers are asked again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from kbindex.local.files import read_strings
from kbindex.local.scratch import write_whole

_KEPT = 64


class Facts:
    """Facts by name. A file that can't be read is empty, one that can't be written stays as is."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "servers.json"

    def recall(self, name: str) -> str | None:
        """Return the fact of that name, ``None`` without one."""
        return read_strings(self._file).get(name)

    def note(self, name: str, value: str) -> None:
        """Store a fact at once; drop the oldest beyond the limit."""
        facts = read_strings(self._file)
        facts.pop(name, None)
        facts[name] = value
        kept = dict(list(facts.items())[-_KEPT:])
        with suppress(OSError):
            write_whole(self._file, json.dumps(kept, indent=1))
