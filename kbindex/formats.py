"""The output formats, and what may reach a terminal: apart from ``render`` to be cheap."""

from __future__ import annotations

import re
from enum import StrEnum


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JSONL = "jsonl"
    GITHUB = "github"
    SARIF = "sarif"


_CONTROL = re.compile(r"[\x00-\x08\n\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]*")


def printable(line: str) -> str:
    """Return one line without anything that could steer a terminal or begin another line."""
    return _CONTROL.sub("\ufffd", line)


def shell_word(path: str, *, bare: bool = False) -> str:
    """Return a path as one word of a shell command that is printed; a ``bare`` one if it can be.

    Bytes that can't be printed are escaped as bash, zsh and POSIX 2024 read them: ``$'…'``.
    """
    if bare and _NEEDS_NO_QUOTES.fullmatch(path):
        return path
    content = path.encode("utf-8", "surrogateescape")
    if printable(path) == path and content == path.encode("utf-8", "replace"):
        return "'" + path.replace("'", "'\"'\"'") + "'"
    plain = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\{b:03o}" for b in content)
    return f"$'{''.join(plain)}'"
