"""Progress of long work: a line that rewrites itself on a terminal, nothing when piped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Callable[[int, int], None]]:
    """Yield a function (done, total) that shows embedded chunks on ``stream``."""
    if not stream.isatty():
        yield lambda _done, _total: None
        return
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        rest = (time.monotonic() - began) / done * (total - done)
        stream.write(f"\r\x1b[Kembedding chunk {done} of {total}, {rest:.0f} s left")
        stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()
