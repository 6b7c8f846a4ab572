"""Keeps a view: finds whether it may be believed, brings it up to date, makes it anew.

A view is believed as long as its files are those that were sealed; otherwise it is proven under
the lock. Where it can't be written, it is copied or made in memory for the length of the command.
What is staged is decided by ``current``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kbindex.core.model import Snapshot
from kbindex.local.sqlite_errors import SQLITE_ERRORS, describe, is_damage, lacks_room
from kbindex.output.console import note_once
from kbindex.repo.repository import Repository, write_lock
from kbindex.view.database import DamagedView, View
from kbindex.view.files import (
    DATABASE,
    LOG,
    SEAL,
    copy_to_memory,
    discard_view,
    fold_log,
    open_to_read,
    open_to_write,
    view_in_memory,
)
from kbindex.view.proof import prove
from kbindex.view.seal import is_intact, make_seal, read_seal, write_seal


@dataclass(frozen=True)
class Staged:
    """The staged index, and the names of its state."""

    repository: Repository
    snapshot: Snapshot
    state: str
    """Names all that the view shows."""
    index: str
    """Names the state of git's index with the configuration, empty where it changed meanwhile."""

    @property
    def folder(self) -> Path:
        return self.repository.view_dir


def view_on_disk(staged: Staged) -> View:
    """Bring the view up to date and seal it; in memory where that can't be done on disk."""
    folder = staged.folder
    with write_lock(staged.repository.git):
        try:
            view = _proven(folder)
            try:
                _refresh(staged, view)
                fold_log(view)
                revision, names = view.meta("revision"), (DATABASE, LOG, view.meta("matrix"))
            finally:
                view.close()
            seal = replace(make_seal(folder, names, revision), index=staged.index)
            write_seal(folder / SEAL, seal)
            return open_to_read(folder)
        except (OSError, *SQLITE_ERRORS) as error:
            if is_damage(error):
                raise
            mention_lack(error)
    return view_apart(staged)


def _proven(folder: Path) -> View:
    """Return the view, ready for writing: one that may be believed, or a new one."""
    if not (folder / DATABASE).is_file():
        discard_view(folder)
        return open_to_write(folder)
    seal = read_seal(folder / SEAL)
    is_sealed = seal is not None and is_intact(seal, folder, (DATABASE, LOG))
    try:
        view = open_to_write(folder)
        try:
            if not (is_sealed and seal and view.meta("revision") == seal.revision):
                prove(view)
                if seal and view.meta("revision") is None:
                    raise DamagedView("it is empty")
        except BaseException:
            view.close()
            raise
        return view
    except (DamagedView, *SQLITE_ERRORS) as error:
        if not _is_flaw(error):
            raise
        discard_damaged(folder, error)
    return open_to_write(folder)


def view_apart(staged: Staged) -> View:
    """Return a view that leaves no file: a copy of the one there is, if that is sound."""
    view = _copied(staged.folder) or view_in_memory()
    _refresh(staged, view)
    view.hold()
    return view


def _copied(folder: Path) -> View | None:
    try:
        view = open_to_read(folder)
        try:
            copy = copy_to_memory(view)
        finally:
            view.close()
        prove(copy)
    except (DamagedView, *SQLITE_ERRORS, OSError, ValueError):
        return None
    return copy


def _refresh(staged: Staged, view: View) -> None:
    if view.meta("state") != staged.state:
        from kbindex.storage.tree import IndexTree
        from kbindex.view.refresh import refresh_view

        refresh_view(IndexTree(staged.repository, staged.snapshot), view, staged.state)


def find_flaw(folder: Path) -> Exception | None:
    """Return what is wrong with the view, ``None`` if nothing is found; the lock is held."""
    try:
        view = open_to_write(folder)
        try:
            prove(view)
        finally:
            view.close()
    except (DamagedView, *SQLITE_ERRORS) as error:
        return error if _is_flaw(error) else None
    except OSError:
        pass
    return None


def discard_damaged(folder: Path, flaw: Exception) -> None:
    """Delete the view, and say why; the lock is held."""
    note_once(f"the local view was damaged ({describe(flaw)}) and is made again")
    with suppress(OSError):  # where nothing can be written, the next one is in memory
        discard_view(folder)


def mention_lack(error: Exception) -> None:
    """Note that the disk has no room for the view, if the error means that."""
    if lacks_room(error):
        note_once(f"the local view can't be written ({describe(error)}): this run has its own")


def _is_flaw(error: Exception) -> bool:
    return isinstance(error, DamagedView) or is_damage(error)
