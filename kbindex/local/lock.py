"""The lock of writers to a folder of local state; the system releases it with the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbindex.core.errors import RefusedError
from kbindex.local.files import remove

_LOCK_SECONDS = 600
LOCK = "lock"


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``. Raises RefusedError if another holds it for ten minutes."""
    from filelock import FileLock, Timeout  # writers alone need it

    lock = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_impostor(folder / LOCK)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        raise RefusedError(
            f"another kbindex has been writing for {_LOCK_SECONDS} seconds",
            "wait for it or stop it, then run this again",
        ) from None
    except (OSError, NotImplementedError):
        lock = None  # read-only, full or without locks: nobody else could hold one either
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def is_held(folder: Path) -> bool:
    """Whether a living process holds the lock of ``folder``; true if that can't be told."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError, NotImplementedError):
        return True
    lock.release()
    return False


def _remove_impostor(file: Path) -> None:
    """Remove a folder or link of the lock file's name: neither can be locked."""
    if file.is_symlink() or file.is_dir():
        remove(file)
