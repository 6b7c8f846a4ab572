"""Safe text: for terminals, for JSON, as one word of a shell. Pure.

Paths, headings and settings come from repositories. Where lines of text are made of them, they
become text by ``as_text``; ``console`` sees to the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROL = re.compile(
    r"[\x00-\x08\n\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    r"\ud800-\udc7f\udd00-\udfff]"  # half a character, but for a byte of a path
)


# The same, and what else can make JSON look otherwise than it reads; joiners of letters are none.
_HIDDEN = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]*")


def printable(line: str) -> str:
    """Return one line with control characters and line breaks replaced."""
    return _CONTROL.sub("\ufffd", line)


def as_text(lines: Iterable[str]) -> str:
    """Return the lines joined, each made ``printable``."""
    return "\n".join(map(printable, lines))


def escape_hidden(json: str) -> str:
    """Return JSON with control characters and lone surrogates as escapes."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", json)


def shell_word(path: str, *, bare: bool = False) -> str:
    """Return a path quoted as one word of a shell command; unquoted if ``bare`` and harmless.

    Bytes that can't be printed are escaped as bash, zsh and POSIX 2024 read them: ``$'…'``.
    """
    if bare and _NEEDS_NO_QUOTES.fullmatch(path):
        return path
    content = path.encode("utf-8", "surrogateescape")
    if printable(path) == path and content == path.encode("utf-8", "replace"):
        return "'" + path.replace("'", "'\"'\"'") + "'"
    plain = (chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\{b:03o}" for b in content)
    return f"$'{''.join(plain)}'"
