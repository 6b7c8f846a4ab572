"""Which commit did the hook refuse because it had too much to embed? The id of its tree, in a file.

``git commit -a`` and ``git commit PATH`` stage for that one commit: an update that is run after
the refusal finds nothing of it staged, but git keeps the tree. One is kept, the last; what is
done with it is not here.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = "refused"
_TREE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def note_refused(folder: Path, tree: str) -> None:
    """Keep the tree of a refused commit in the local ``folder``, where it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _NAME).write_text(tree, encoding="ascii")
    except OSError:
        return


def refused_tree(folder: Path) -> str | None:
    """Return the tree that was kept, ``None`` where there is none."""
    try:
        found = (folder / _NAME).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return found if _TREE.fullmatch(found) else None


def forget_refused(folder: Path) -> None:
    """Keep no tree any more."""
    try:
        (folder / _NAME).unlink(missing_ok=True)
    except OSError:
        return  # it is forgotten when its tree is gone
