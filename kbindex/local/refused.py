"""The tree of the commit that the hook last refused for having too much to embed, as a file.

``git commit -a`` and ``git commit PATH`` stage for that one commit: an update after the refusal
finds nothing of it staged, but git keeps the tree.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from kbindex.local.files import read_text, remove
from kbindex.local.scratch import write_whole

_NAME = "refused"
_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def note_refused(folder: Path, tree: str) -> None:
    """Store the tree of a refused commit in the local ``folder``, if it can be written."""
    with suppress(OSError):
        write_whole(folder / _NAME, tree)


def refused_tree(folder: Path) -> str | None:
    """Return the stored tree, ``None`` without one."""
    found = read_text(folder / _NAME) or ""
    return found if _TREE.fullmatch(found) else None


def forget_refused(folder: Path) -> None:
    """Remove the stored tree."""
    with suppress(OSError):
        remove(folder / _NAME)
