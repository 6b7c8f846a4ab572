"""The lock of whoever writes into a folder of ours; a dead process holds none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbindex.errors import RefusedError

_LOCK_SECONDS = 600


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``. Raises RefusedError if another holds it for ten minutes."""
    from filelock import FileLock, Timeout  # writers alone need it

    lock = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        raise RefusedError(
            f"another kbindex has been writing for {_LOCK_SECONDS} seconds",
            "wait for it or stop it, then run this again",
        ) from None
    except OSError:
        lock = None  # read-only: nobody else can write either
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
