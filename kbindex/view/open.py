"""The view of what is staged. One that is up to date costs a look at its files' times.

What it takes to bring one up to date is imported only then; ``upkeep`` does it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kbindex.configuration.config import Config
from kbindex.configuration.recipe import parse_recipe
from kbindex.core.errors import KbindexError, NoIndexError
from kbindex.core.model import Recipe, Snapshot
from kbindex.local.sqlite_errors import SQLITE_ERRORS, is_damage
from kbindex.repo.repository import Repository, write_lock
from kbindex.repo.snapshot import read_staged_snapshot
from kbindex.view.database import DamagedView, View
from kbindex.view.files import DATABASE, LOG, SEAL, open_to_read
from kbindex.view.seal import Seal, is_intact, is_settled, read_seal, write_seal

T = TypeVar("T")


def use_view(repository: Repository, read: Callable[[View], T]) -> T:
    """Return what ``read`` makes of the view of what is staged.

    A view that turns out damaged is made anew, and if need be in memory. Raises what a missing or
    damaged index raises.
    """
    for in_memory in (False, False, True):
        seal = None if in_memory else read_seal(repository.view_dir / SEAL)
        try:
            view = _current(repository, seal, in_memory=in_memory)
            try:
                return read(view)
            finally:
                view.close()
        except KbindexError:
            raise
        except Exception as error:
            if in_memory or not _is_at_fault(repository, seal, error):
                raise
    raise AssertionError("the last round returns or raises")


def _current(repository: Repository, seal: Seal | None, *, in_memory: bool) -> View:
    """Return the view of what is staged, held in its present state."""
    index = _index_state(repository)
    if seal and index and seal.index == index:
        view = _sealed(repository.view_dir, seal)
        if view:
            if seal.boot and is_settled(seal):
                write_seal(repository.view_dir / SEAL, replace(seal, boot=""))
            return view
    return _compared(repository, seal, index, in_memory=in_memory)


def _sealed(folder: Path, seal: Seal) -> View | None:
    """Return the view if it is the one that was sealed."""
    if not is_intact(seal, folder, (DATABASE, LOG)):
        return None
    try:
        view = open_to_read(folder)
        if view.meta("revision") == seal.revision:
            return view
        view.close()
    except (DamagedView, *SQLITE_ERRORS):
        pass  # a writer will look into it
    return None


def _compared(repository: Repository, seal: Seal | None, index: str, *, in_memory: bool) -> View:
    """Return the view after a look at what is staged, brought up to date where it is another."""
    from kbindex.view.upkeep import Staged, view_apart, view_on_disk

    snapshot = read_staged_snapshot(repository.git, repository.config)
    if not snapshot.has_index:
        raise NoIndexError(repository.config.index_dir, is_bare=repository.git.is_bare)
    if _index_state(repository) != index:
        index = ""  # it has changed meanwhile
    staged = Staged(repository, snapshot, _state(snapshot, repository.config), index)
    view = _sealed(staged.folder, seal) if seal else None
    if view and seal:
        if view.meta("state") == staged.state:
            if index:
                write_seal(staged.folder / SEAL, replace(seal, index=index))
            return view
        view.close()
    return view_apart(staged) if in_memory else view_on_disk(staged)


def _is_at_fault(repository: Repository, seal: Seal | None, error: Exception) -> bool:
    """Whether an error is the view's fault; a damaged view is discarded unless it was replaced.

    Raw errors of any kind may: of damage that leaves the files' times as they are.
    """
    from kbindex.view.upkeep import discard_damaged, find_flaw, mention_lack

    folder = repository.view_dir
    if isinstance(error, sqlite3.Error) and not is_damage(error):
        mention_lack(error)
        return True
    with write_lock(repository.git):
        if read_seal(folder / SEAL) != seal:
            return True
        is_known = isinstance(error, DamagedView) or is_damage(error)
        flaw = error if is_known else find_flaw(folder)
        if flaw:
            discard_damaged(folder, flaw)
    return flaw is not None


def _index_state(repository: Repository) -> str:
    """Name the state of git's index (bare: of HEAD) and the configuration, empty if git doesn't."""
    git = repository.git
    checksum = git.trees.head() if git.is_bare else index_checksum(git.index.file)
    return f"{checksum}:{_config_id(repository.config)}" if checksum else ""


def index_checksum(file: Path) -> str:
    """Return git's own checksum of its index file, empty where it writes none."""
    try:
        with file.open("rb") as stream:
            stream.seek(-20, 2)
            trailer = stream.read()
    except OSError:
        return ""
    return trailer.hex() if any(trailer) else ""  # index.skipHash leaves zeros


def view_recipe(view: View, config: Config) -> Recipe:
    """Return the recipe of what the view shows."""
    return parse_recipe(view.meta("recipe") or "", f"{config.index_dir}/recipe.json")


def uncovered_documents(view: View) -> list[str]:
    """Return the documents that the committed index does not cover as they are staged."""
    return [*view.stale_paths(), *view.unreadable()]


def _state(snapshot: Snapshot, config: Config) -> str:
    parts = (snapshot.documents, snapshot.outlines, snapshot.wal, snapshot.table)
    files = [sorted(part.items()) for part in parts]
    content = repr((files, snapshot.recipe, snapshot.refused[:1], _config_id(config)))
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _config_id(config: Config) -> str:
    seen = (config.bundle, config.index_dir, config.include, config.exclude, config.language)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
