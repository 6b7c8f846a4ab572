"""What every verb starts from: the repository, its configuration, its local folders and lock."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kbindex import __version__
from kbindex.configuration.config import Config
from kbindex.configuration.recipe import versions
from kbindex.core.errors import NotARepositoryError
from kbindex.git.client import Git
from kbindex.local.cache import Cache
from kbindex.local.lock import hold_lock
from kbindex.output.console import note_once
from kbindex.repo.configured import read_config, read_worktree_config

_LOCAL = "kbindex"


@dataclass(frozen=True)
class Repository:
    """A repository and its configuration."""

    git: Git
    config: Config

    @property
    def cache_dir(self) -> Path:
        """Local state shared by all work trees: the embedding cache and the lock."""
        return self.git.local_dir

    @property
    def view_dir(self) -> Path:
        """Local state of this work tree: the view."""
        return self.git.git_dir / _LOCAL

    def cache(self) -> Cache:
        return Cache(self.cache_dir, note_once)

    def state_id(self, tree: str) -> str:
        """Return a hash of everything that decides whether the index in ``tree`` is fresh.

        Only object ids are read.
        """
        git, config = self.git, self.config
        ids = git.trees.object_ids(tree, config.bundle, config.index_dir)
        content = repr((__version__, versions(), config, ids))
        return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def write_lock(git: Git) -> AbstractContextManager[None]:
    """Hold the lock that writers of a repository share."""
    return hold_lock(git.local_dir)


def open_repository(directory: Path | None) -> Repository:
    """Return the repository with the configuration of its work tree; a bare one as HEAD has it.

    A folder with an index that is no repository is read as if it were one.
    """
    try:
        git = Git(directory)
    except NotARepositoryError:
        from kbindex.repo.archive import open_exported

        exported = open_exported(directory)
        if exported is None:
            raise
        git = exported
    return repository_at(git, git.trees.head()) if git.is_bare else worktree_repository(git)


def worktree_repository(git: Git) -> Repository:
    """Return the repository with the configuration of its work tree."""
    return Repository(git, read_worktree_config(git.root))


def repository_at(git: Git, tree: str | None) -> Repository:
    """Return the repository with the configuration that stands in ``tree``."""
    return Repository(git, read_config(git, tree))
