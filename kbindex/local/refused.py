"""Which commit did the hook refuse because it had too much to embed? The id of its tree, in a file.

``git commit -a`` and ``git commit PATH`` stage for that one commit: an update that is run after
the refusal finds nothing of it staged, but git keeps the tree. One is kept, the last; what is
done with it is not here.
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
    """Keep the tree of a refused commit in the local ``folder``, where it can be written."""
    with suppress(OSError):
        write_whole(folder / _NAME, tree)


def refused_tree(folder: Path) -> str | None:
    """Return the tree that was kept, ``None`` where there is none."""
    found = read_text(folder / _NAME) or ""
    return found if _TREE.fullmatch(found) else None


def forget_refused(folder: Path) -> None:
    """Keep no tree any more."""
    with suppress(OSError):
        remove(folder / _NAME)
