"""A folder with an index that is no repository: an archive of one, unpacked.

Everything that reads an index reads it from git. So such a folder gets a git dir of its own, in the
user's cache, that takes its files as they are; nothing in the folder itself is written.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kbindex.configuration.config import Config
from kbindex.configuration.file import FILE_NAME, PYPROJECT
from kbindex.core.errors import GitError, NotARepositoryError, UsageError
from kbindex.core.paths import RECIPE
from kbindex.git.client import Git
from kbindex.git.worktree import read_file
from kbindex.local.files import remove
from kbindex.local.lock import LOCK, hold_lock
from kbindex.local.user_folders import cache_folder
from kbindex.repo.configured import read_worktree_config

_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"
"""Each file is what its bytes are: attributes in the folder may name programs to run."""


def open_exported(directory: Path | None) -> Git | None:
    """Return a repository over the index at or above ``directory``, ``None`` if there is none.

    Raises what is wrong with a configuration of kbindex's own where no index is found.
    """
    start = (directory or Path.cwd()).resolve()
    refusal = None
    for root in (start, *start.parents) if start.is_dir() else ():
        try:
            config = _config_of_index(root)
        except UsageError as error:
            if os.path.lexists(root / FILE_NAME):
                refusal = refusal or error
            continue
        if config is not None:
            return _adopt(root, config)
    if refusal:
        raise refusal
    return None


def _config_of_index(root: Path) -> Config | None:
    """Return the configuration of the index in a folder, ``None`` if there is no index."""
    try:
        config = read_worktree_config(root)
        return config if read_file(root, f"{config.index_dir}/{RECIPE}", 0) is not None else None
    except OSError:
        return None  # one of the folders above, which we may not read


def _adopt(root: Path, config: Config) -> Git:
    folder = _git_dir(root)
    names = [FILE_NAME, PYPROJECT, config.bundle, config.index_dir]
    with hold_lock(folder):  # other queries do the same
        try:
            return _filled(root, folder, names)
        except (GitError, NotARepositoryError):
            for place in folder.iterdir():  # damaged, and only a copy
                if place.name != LOCK:
                    remove(place)
            return _filled(root, folder, names)


def _filled(root: Path, folder: Path, names: Sequence[str]) -> Git:
    git = Git(root, made_in=folder)
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info/attributes").write_text(_ATTRIBUTES)
    git.index.add_all(*(name for name in names if os.path.lexists(root / name)), ignored=True)
    return git


def _git_dir(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    folder = cache_folder() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="kbindex-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
