"""A folder with an index that is no repository: an archive of one, unpacked.

Everything that reads an index reads it from git. So such a folder gets a git dir of its own, in the
user's cache, that takes its files as they are; nothing in the folder itself is written.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kbindex.config import FILE_NAME, PYPROJECT, Config, load_config
from kbindex.errors import KbindexError
from kbindex.git import Git
from kbindex.layout import RECIPE
from kbindex.lock import hold_lock

_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"
"""Each file is what its bytes are: attributes in the folder may name programs to run."""


def open_exported(directory: Path | None) -> Git | None:
    """Return a repository over the index at or above ``directory``, ``None`` if there is none."""
    start = (directory or Path.cwd()).resolve()
    if not start.is_dir():
        return None
    for root in (start, *start.parents):
        config = _config(root)
        if config is not None and (root / config.index_dir / RECIPE).is_file():
            return _adopt(root, config)
    return None


def _config(root: Path) -> Config | None:
    try:
        return load_config(_text(root / FILE_NAME), _text(root / PYPROJECT), os.environ)
    except KbindexError:
        return None


def _adopt(root: Path, config: Config) -> Git:
    folder = _git_dir(root)
    names = [FILE_NAME, PYPROJECT, config.bundle, config.index_dir]
    with hold_lock(folder):  # other queries do the same
        git = Git(root, made_in=folder)
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info/attributes").write_text(_ATTRIBUTES)
        git.run("add", "--force", "--all", "--", *(n for n in names if (root / n).exists()))
    return git


def _git_dir(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    folder = _cache_dir(os.environ) / "kbindex" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="kbindex-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _cache_dir(environment: Mapping[str, str]) -> Path:
    configured = environment.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):
        return Path(configured)
    home = Path.home()
    if sys.platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData/Local")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
