"""The pre-commit framework's stash, which must not be restored over files that we write.

The framework hides unstaged changes while hooks run: it saves them as a patch, checks the staged
files out, and applies the patch afterwards. Where a hook has changed a file of the patch, applying
fails, and the framework restores neither that file nor any other: unstaged edits vanish from the
work tree (pre-commit 4.7, staged_files_only.py; a test pins what is relied on here).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kbindex.git.paths import encode_path


def stashed_paths_below(folder: str) -> bool:
    """Whether the framework that runs us has hidden unstaged changes below ``folder``."""
    if not os.environ.get("PRE_COMMIT"):
        return False
    store = os.environ.get("PRE_COMMIT_HOME") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pre-commit"
    )
    wanted = b"\ndiff --git a/" + encode_path(folder) + b"/"
    return any(
        wanted in b"\n" + patch.read_bytes()
        for pid in _ancestors()
        for patch in Path(store).glob(f"patch*-{pid}")
    )


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 1:
        yield pid
        done = subprocess.run(
            ["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=False, text=True
        )
        pid = int(done.stdout.strip() or 0)
