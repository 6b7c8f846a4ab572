"""Data on stdout, messages on stderr; the only module that prints.

Nothing from a repository reaches a terminal as it is: that is seen to here, where it is printed.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from kbindex.core.text import as_text


def put(data: str) -> None:
    """Write data, with a final newline, to stdout; nothing if it is empty."""
    if data:
        _write(sys.stdout, as_text(data.removesuffix("\n").split("\n")) + "\n")


def put_document(text: str) -> None:
    """Write a document's text to stdout: exactly as it is, but on a terminal as it can be shown."""
    if sys.stdout.isatty():
        put(as_text(text.splitlines()))
    else:
        _write(sys.stdout, text)


_said: set[str] = set()


def note_once(message: str) -> None:
    """Write a message to stderr, unless this run has said the same before."""
    if message not in _said:
        _said.add(message)
        note(message)


def begin_run() -> None:
    """Forget what was said: a process may run several commands."""
    _said.clear()


def note(message: str) -> None:
    """Write a message to stderr, marked as ours; its further lines are indented."""
    lines = as_text(message.split("\n")).replace("\n", "\n  ")
    try:
        _write(sys.stderr, f"kbindex: {lines}\n")
    except OSError:  # a full disk behind stderr ends no command
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Let what is still to be written to a stream go nowhere.

    Python would try once more at its end, and fail with exit code 120.
    """
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(stream: object, text: str) -> None:
    # Paths hold any bytes (surrogateescape) and text any character, whatever the locale says;
    # newlines stay as they are.
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        print(text, end="", file=stream)  # type: ignore[call-overload]
        return
    buffer.write(text.encode("utf-8", "surrogateescape"))
    buffer.flush()
