"""The view of what is staged. One that is up to date costs the read of 20 bytes.

What it takes to bring one up to date is imported only then.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kbindex.config import Config
from kbindex.errors import NoIndexError
from kbindex.git import decode_path
from kbindex.model import Recipe, Snapshot
from kbindex.recipe import parse_recipe
from kbindex.repository import Repository, write_lock
from kbindex.snapshot import read_staged_snapshot
from kbindex.view import DamagedView, View, discard_view

T = TypeVar("T")


def use_view(repository: Repository, read: Callable[[View], T]) -> T:
    """Return what ``read`` makes of the view of what is staged.

    A view that turns out damaged is made anew, once. Raises what a missing or damaged index raises.
    """
    try:
        return _read_current(repository, View(repository.view_dir), read)
    except (DamagedView, sqlite3.DatabaseError):
        discard_view(repository.view_dir)
        return _read_current(repository, View(repository.view_dir), read)


def _read_current(repository: Repository, view: View, read: Callable[[View], T]) -> T:
    view = _brought_up_to_date(repository, view)
    try:
        view.hold()
        return read(view)
    finally:
        view.close()


def _brought_up_to_date(repository: Repository, view: View) -> View:
    checksum = index_checksum(repository.git.index_file)
    state_of_file = f"{checksum}:{_config_id(repository.config)}"
    if checksum and view.meta("checksum") == state_of_file:
        return view
    snapshot = read_staged_snapshot(repository.git, repository.config)
    if not snapshot.has_index:
        raise NoIndexError(repository.config.index_dir)
    state = _state(snapshot, repository.config)
    if view.meta("state") != state:
        from kbindex.refresh import refresh_view

        if view.is_fixed:
            view.close()
            view = View(repository.view_dir, in_memory=True)
        with write_lock(repository.git):
            if view.meta("state") != state:
                refresh_view(repository, snapshot, view, state)
    if checksum and not view.is_fixed:
        view.set_checksum(state_of_file)
    return view


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
    stale = view.db.execute("SELECT path FROM document WHERE stale IS NOT NULL")
    return [*(decode_path(path) for (path,) in stale), *unreadable_documents(view)]


def unreadable_documents(view: View) -> list[str]:
    """Return the documents that are not text and so not in the view at all."""
    found: list[str] = json.loads(view.meta("unreadable") or "[]")
    return found


def _state(snapshot: Snapshot, config: Config) -> str:
    parts = (snapshot.documents, snapshot.outlines, snapshot.wal, snapshot.table)
    content = repr(([sorted(part.items()) for part in parts], snapshot.recipe, _config_id(config)))
    return hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _config_id(config: Config) -> str:
    seen = (config.bundle, config.index_dir, config.include, config.exclude, config.language)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
