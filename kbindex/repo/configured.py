"""Reads the configuration of a git tree or of the work tree, from regular files only.

``pyproject.toml`` is read only where there is no ``kbindex.toml``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kbindex.configuration.config import Config, load_config
from kbindex.configuration.file import FILE_NAME, MOST_BYTES, PYPROJECT, require_size
from kbindex.core.errors import LINK, UnsafePlaceError, UsageError
from kbindex.core.names import is_regular
from kbindex.git.client import Git
from kbindex.git.paths import decode_path
from kbindex.git.worktree import read_file


def read_config(git: Git, tree: str | None) -> Config:
    """Return the configuration in ``tree`` (defaults for ``None``), with ``KBINDEX_*`` applied."""
    found = git.trees.files_at(tree, FILE_NAME, PYPROJECT) if tree else {}

    def read(name: str) -> str | None:
        if name not in found:
            return None
        mode, oid, size = found[name]
        if not is_regular(mode):
            raise _not_a_file(name, LINK if mode == "120000" else "a folder")
        require_size(name, size)
        return decode_path(git.run("cat-file", "blob", oid))  # whose size is known

    return _load(read)


def read_worktree_config(root: Path) -> Config:
    """Return the configuration in the folder ``root``, with ``KBINDEX_*`` applied."""
    return _load(lambda name: read_text(root, name))


def read_text(root: Path, name: str) -> str | None:
    """Return the text of a configuration file in a folder, ``None`` where there is none.

    Bytes that are no UTF-8 survive, as in a path.
    """
    try:
        content = read_file(root, name, MOST_BYTES[name] + 1)
    except UnsafePlaceError as error:
        raise _not_a_file(name, error.found) from None
    if content is None:
        return None
    require_size(name, len(content))
    return decode_path(content)


def _load(read: Callable[[str], str | None]) -> Config:
    own = read(FILE_NAME)
    return load_config(own, read(PYPROJECT) if own is None else None, os.environ)


def _not_a_file(name: str, found: str) -> UsageError:
    return UsageError(
        f"{name} is {found}, and settings are read from nothing but a file of the repository",
        f"put a file named {FILE_NAME} beside it, empty if there is nothing to set"
        if name == PYPROJECT
        else "put a file in its place",
    )
