"""Progress of long work: one line that rewrites itself on a terminal, some lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_SECONDS_BETWEEN_LINES = 30.0
"""Where there is no terminal: of a hook in an editor, or a job. Short work stays silent."""


@contextmanager
def progress_on(
    stream: TextIO, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that shows embedded chunks on ``stream``."""
    began = clock()

    def words(done: int, total: int) -> str:
        rest = (clock() - began) / done * (total - done)
        return f"embedding chunk {done} of {total}, {rest:.0f} s left"

    if not stream.isatty():
        yield _lines(stream, clock, words)
        return

    def show(done: int, total: int) -> None:
        stream.write(f"\r\x1b[K{words(done, total)}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _lines(
    stream: TextIO, clock: Callable[[], float], words: Callable[[int, int], str]
) -> Callable[[int, int], None]:
    said = clock()

    def show(done: int, total: int) -> None:
        nonlocal said
        if done < total and clock() - said >= _SECONDS_BETWEEN_LINES:
            said = clock()
            with suppress(OSError):  # nobody reads it: no reason to stop
                stream.write(f"kbindex: {words(done, total)} (what is done is kept)\n")
                stream.flush()

    return show
