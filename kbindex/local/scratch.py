"""Scratch folders and files, all in one folder, so that those of killed processes don't pile up.

That folder is ``tmp`` of the local state, or the system's where it can't be written. Each use
first removes leftovers of dead processes from ours; the system cleans its own.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbindex.local.files import remove
from kbindex.local.lock import hold_lock, is_held

_FOLDER = "tmp"
_GRACE_SECONDS = 60
"""Seconds that a folder may exist before the process that makes it has locked it."""
_FILE_SECONDS = 3600
"""Age in seconds after which a scratch file is a leftover; it is normally renamed at once."""


@contextmanager
def scratch_folder(local: Path | None) -> Iterator[Path]:
    """Yield a folder that is empty but for a lock; it is removed afterwards, also if we are killed.

    ``local`` is a folder of the local state. Raises OSError where nothing can be written at all.
    """
    place = _place(local) if local else None
    try:
        folder = Path(tempfile.mkdtemp(prefix="kbindex-", dir=place))
    except FileNotFoundError as error:  # so says tempfile where it can't write anywhere
        raise OSError(errno.ENOSPC, "scratch files can be written nowhere") from error
    try:
        with hold_lock(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_whole(file: Path, content: str) -> None:
    """Replace a small file of the local state atomically. Raises OSError."""
    place = _place(file.parent) or file.parent
    scratch = place / f"{file.name}.{os.getpid()}-{os.urandom(4).hex()}"
    try:
        scratch.write_text(content, encoding="utf-8")
        if file.is_dir():
            remove(file)
        os.replace(scratch, file)  # noqa: PTH105 - whole or not at all
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise


def _place(local: Path) -> Path | None:
    place = local / _FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(place, os.W_OK | os.X_OK):
        return None
    _sweep(place)
    return place


def _sweep(place: Path) -> None:
    for entry in place.iterdir():
        try:
            age = time.time() - entry.lstat().st_mtime
            if entry.is_dir() and age > _GRACE_SECONDS and not is_held(entry):
                shutil.rmtree(entry)
            elif not entry.is_dir() and age > _FILE_SECONDS:
                entry.unlink()
        except OSError:
            continue  # another process was faster, or may not
