"""Files in the work tree: read, written and removed where they stand, never through a link.

A repository may come from a stranger, with a symbolic link in place of any folder or file. Each
folder is opened from the one above it, so that none can be swapped for a link between a look and
the act; Windows has no such handles, and there the look must do. Not here: which files are written,
and what git checks out itself (``require_plain`` is asked before).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from kbindex.core.errors import LINK, UnsafePlaceError
from kbindex.core.names import is_plain_path

_HAS_HANDLES = os.open in os.supports_dir_fd
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE  # a pipe must not be waited for
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_SWAPPED = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""Errors of opening a path whose folder was replaced by a link a moment ago."""


@dataclass(frozen=True)
class _Place:
    """A name in an open folder; ``name`` and ``handle`` are what functions of ``os`` take."""

    path: str
    """From the root, for messages."""
    name: bytes
    handle: int | None

    def mode(self) -> int:
        """Return the kind and permissions of what is there, 0 where nothing is."""
        try:
            return os.lstat(self.name, dir_fd=self.handle).st_mode
        except FileNotFoundError:
            return 0

    def require_file(self) -> int:
        """Return the mode of a file, 0 where nothing is. Raises UnsafePlaceError."""
        mode = self.mode()
        if mode and not stat.S_ISREG(mode):
            raise UnsafePlaceError(self.path, _kind(mode), "a file")
        return mode

    def require_folder(self) -> bool:
        """Whether a folder is there, and not nothing. Raises UnsafePlaceError."""
        mode = self.mode()
        if mode and not stat.S_ISDIR(mode):
            raise UnsafePlaceError(self.path, _kind(mode), "a folder")
        return bool(mode)

    def enter(self) -> int | None:
        """Open the folder that is there."""
        try:
            return os.open(self.name, _FOLDER, dir_fd=self.handle) if _HAS_HANDLES else None
        except OSError as error:
            if error.errno in _SWAPPED:
                raise UnsafePlaceError(self.path, "no folder any more", "a folder") from None
            raise


def read_file(root: Path, path: str, most_bytes: int | None = None) -> bytes | None:
    """Return a file's content, ``None`` where there is none, or of a longer one its beginning.

    Raises UnsafePlaceError where a link is in the way.
    """
    with ExitStack() as opened:
        place = _walk(root, path, opened)[-1]
        if place.path != path or not place.require_file():
            return None
        with open(os.open(place.name, _FILE, dir_fd=place.handle), "rb") as file:
            return file.read() if most_bytes is None else file.read(most_bytes)


def write_file(root: Path, path: str, content: bytes, *, executable: bool = False) -> None:
    """Write a file whole or not at all, with the folders that it needs.

    One that is there keeps its permissions, but to be executed. Raises UnsafePlaceError where a
    link is in the way, or a file in place of a folder.
    """
    with ExitStack() as opened:
        place = _walk(root, path, opened, make=True)[-1]
        before, here = place.require_file(), place.handle
        folder, name = os.path.split(place.name)
        scratch = os.path.join(folder, b".%s.tmp" % hashlib.sha256(name).hexdigest()[:16].encode())
        with suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=here)  # of a writer that was killed
        handle = os.open(scratch, _NEW_FILE, 0o777 if executable else 0o666, dir_fd=here)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            if before and not executable:
                os.chmod(scratch, stat.S_IMODE(before), dir_fd=here)
            os.replace(scratch, place.name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch, dir_fd=here)
            raise


def remove_file(root: Path, path: str) -> bool:
    """Remove a file, or the link in its place, and the folders that it leaves empty.

    Returns whether there was one. Raises UnsafePlaceError where a folder above it is a link; a
    folder in its place stays.
    """
    with ExitStack() as opened:
        *folders, place = _walk(root, path, opened)
        mode = place.mode()
        if place.path != path or not mode or stat.S_ISDIR(mode):
            return False
        os.unlink(place.name, dir_fd=place.handle)
        for folder in reversed(folders):
            try:
                os.rmdir(folder.name, dir_fd=folder.handle)
            except OSError:
                break
    return True


def require_plain(root: Path, paths: Collection[str], removed: Collection[str] = ()) -> None:
    """Raise UnsafePlaceError if one of ``paths`` is no file, or a folder above it is none.

    Those of ``removed`` may be anything: they go before something is written in their place.
    """
    seen: set[str] = set()
    for path in paths:
        names = path.split("/")
        for depth in range(1, len(names) + 1):
            above = "/".join(names[:depth])
            place = _Place(above, os.path.join(os.fsencode(root), _encoded(above)), None)
            if above in removed:
                break
            if depth == len(names):
                place.require_file()
            elif above not in seen and place.require_folder():
                seen.add(above)


def _walk(root: Path, path: str, opened: ExitStack, *, make: bool = False) -> list[_Place]:
    """Return the folders above a file, each open in ``opened``, and the file itself.

    Where a folder is missing, and none is to be made, the list ends with it.
    """
    if not is_plain_path(path):
        raise UnsafePlaceError(path, "no name below the repository", "a file")
    base, places = os.fsencode(root), []
    handle = os.open(base, _FOLDER & ~_SAFE) if _HAS_HANDLES else None
    names = path.split("/")
    for depth, name in enumerate(map(_encoded, names), start=1):
        if handle is not None:
            opened.callback(os.close, handle)
        base = os.path.join(base, name)
        place = _Place("/".join(names[:depth]), name if _HAS_HANDLES else base, handle)
        places.append(place)
        if depth == len(names):
            break
        if not place.require_folder():
            if not make:
                break
            with suppress(FileExistsError):
                os.mkdir(place.name, dir_fd=handle)
        handle = place.enter()
    return places


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")  # git's own bytes


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return LINK
    return "a folder" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "no file"
