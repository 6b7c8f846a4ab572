"""Data on stdout, messages on stderr; the only module that prints."""

from __future__ import annotations

import sys

from kbindex.formats import printable


def put(data: str) -> None:
    """Write data, with a final newline, to stdout; nothing if it is empty."""
    if data:
        _write(sys.stdout, data if data.endswith("\n") else f"{data}\n")


def put_raw(data: str) -> None:
    """Write data to stdout exactly as it is."""
    _write(sys.stdout, data)


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
    """Write a message to stderr, marked as ours."""
    lines = "\n".join(map(printable, message.split("\n")))
    _write(sys.stderr, f"kbindex: {lines}\n")


def _write(stream: object, text: str) -> None:
    # Paths hold any bytes (surrogateescape) and text any character, whatever the locale says;
    # newlines stay as they are.
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        print(text, end="", file=stream)  # type: ignore[call-overload]
        return
    buffer.write(text.encode("utf-8", "surrogateescape"))
    buffer.flush()
