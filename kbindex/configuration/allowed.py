"""Which values may a setting have? Pure: what speaks against a value, in words.

Settings may come from a stranger's repository: what is refused here reaches no path, no pattern
and no library.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from kbindex.configuration.patterns import Patterns
from kbindex.core.names import as_loosest_read, is_plain_path
from kbindex.core.text import printable

# The recipe holds names and prefixes, too, and is read within these bounds.
_LONGEST_NAME = 256
_LONGEST_PREFIX = 4096
_LONGEST_PATTERN = 512
_MOST_PATTERNS = 256
_MOST_WILD = 1024
"""Characters of all patterns with a wildcard: each may be looked for at each place of a path."""
_LONGEST_FOLDER = 1024
_LONGEST_PART = 255
"""Bytes; what Linux and macOS allow for one name."""
_RANGES = {
    "ollama_timeout": (1, 86_400),
    "openai_timeout": (1, 86_400),
    "query_timeout": (1, 86_400),
    "chunk_tokens": (32, 8192),
    "chunk_max_tokens": (0, 16_384),
    "checkpoint_every": (0, 1_000_000),
    "hook_max_chunks": (0, 10_000_000),
}
"""Least and largest of each whole number."""
_FILES_OF_GIT = (".gitattributes", ".gitignore", ".gitmodules", ".mailmap")


def refusal(name: str, value: object) -> str | None:
    """Return why the setting ``name`` can't have a value of its type, ``None`` if it can."""
    if isinstance(value, tuple):
        return next(_against_patterns(value), None)
    if isinstance(value, float):
        return None if -math.inf < value <= 1 else "lies between 0 and 1"  # nor is NaN
    if isinstance(value, int):
        least, most = _RANGES[name]
        if value < least:
            return f"is at least {least}"
        return None if value <= most else f"is at most {most}"
    assert isinstance(value, str)
    is_prefix, is_folder = name.endswith("_prefix"), name in ("bundle", "index_dir")
    most = _LONGEST_PREFIX if is_prefix else _LONGEST_FOLDER if is_folder else _LONGEST_NAME
    reason = _against_text(value, most, has_lines=is_prefix)
    return next(_against_folder(value), None) if is_folder and reason is None else reason


def overlap(bundle: str, index_dir: str) -> str | None:
    """Return why documents and index can't stand in these two folders, ``None`` if they can."""
    documents, index = (
        [as_loosest_read(part) for part in path.split("/")] for path in (bundle, index_dir)
    )
    if index_dir == "." or documents[: len(index)] == index:
        return "index_dir needs a folder of its own, not the bundle nor one above it"
    return None


def _against_text(value: str, most: int, *, has_lines: bool = False) -> str | None:
    if len(value) > most:
        return f"has more than {most} characters"
    lines = value.split("\n") if has_lines else [value]
    if any(printable(line) != line for line in lines):
        return "holds a control character"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "is not valid Unicode"
    return None


def _against_folder(path: str) -> Iterator[str]:
    parts = path.split("/")
    is_drive = path[1:2] == ":" and path[:1].isascii() and path[:1].isalpha()
    if path.startswith("/") or ".." in parts or is_drive:
        yield "must lie inside the repository"
    if path != "." and ("" in parts or "." in parts):
        yield "is written without '.' and with single slashes"
    if "\\" in path:
        yield "is written with '/', not with backslashes"
    if path != "." and not is_plain_path(path):
        yield "is a name that git keeps for itself"
    if path.startswith(":"):
        yield "begins with a colon, which has a meaning for git"
    if any(as_loosest_read(part) in _FILES_OF_GIT for part in parts):
        yield "is a name that git keeps for a file"
    if any(len(part.encode()) > _LONGEST_PART for part in parts):
        yield f"has a name of more than {_LONGEST_PART} bytes"


def _against_patterns(patterns: Sequence[str]) -> Iterator[str]:
    if len(patterns) > _MOST_PATTERNS:
        yield f"has more than {_MOST_PATTERNS} patterns"
    if sum(len(pattern) for pattern in patterns if "*" in pattern) > _MOST_WILD:
        yield f"has more than {_MOST_WILD} characters in patterns with '*'"
    for pattern in patterns:
        reason = _against_text(pattern, _LONGEST_PATTERN)
        if reason:
            yield f"has a pattern that {reason}"
    try:
        Patterns(patterns)
    except ValueError as error:
        yield f"is a list of patterns, and {error}"
