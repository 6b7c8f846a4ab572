"""A configuration file's text → the settings in it. Pure.

The file may come from a stranger's repository: what would keep the TOML parser busy, or make it
fail with something else than an answer, is refused before it. Not here: what a setting may be.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from kbindex.core.errors import UsageError

FILE_NAME = "kbindex.toml"
PYPROJECT = "pyproject.toml"
TABLE = ("tool", "kbindex")
"""The table of the settings in ``pyproject.toml``."""
MOST_BYTES = {FILE_NAME: 1 << 16, PYPROJECT: 1 << 20}

# What tomllib of Python 3.11 does with more: a dotted key takes time by the square of its length,
# brackets end in a RecursionError, and so does every number of more than 4300 digits in a
# ValueError.
_MOST_DOTS = 32
_MOST_BRACKETS = 32
# A possessive group that holds a choice goes wrong before Python 3.11.5.
_TEXT_OR_COMMENT = re.compile(
    r'"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*(?:"{3,5}|\Z)'
    r"|'''[^']*+(?:'(?!'')[^']*+)*(?:'{3,5}|\Z)"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"?|\'[^\'\n]*+\'?|\#[^\n]*+',
    re.DOTALL,
)
_WORD = re.compile(r"[^\s=,\[\]{}][^\n=,\[\]{}]*+")
_BRACKET = re.compile(r"[\[\]{}]")


def require_size(name: str, size: int) -> None:
    """Raise UsageError for a file with more bytes than its settings can need."""
    if size > MOST_BYTES[name]:
        raise UsageError(
            f"{name} has more than the {MOST_BYTES[name]} bytes that are read",
            f"put the settings into a shorter {FILE_NAME}",
        )


def read_settings(kbindex_toml: str | None, pyproject_toml: str | None) -> dict[str, Any]:
    """Return the settings of the file that counts: ``pyproject.toml`` only without the other."""
    if kbindex_toml is not None:
        return _parse(kbindex_toml, FILE_NAME)
    if pyproject_toml is None or "kbindex" not in pyproject_toml:
        return {}
    found: Any = _parse(pyproject_toml, PYPROJECT)
    for name in TABLE:
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise UsageError(f"{PYPROJECT}: '{name}' is no table of settings")
    return dict(found)


def _parse(text: str, name: str) -> dict[str, Any]:
    _refuse_excess(text, name)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not valid TOML: {str(error)[:200]}") from None


def _refuse_excess(text: str, name: str) -> None:
    bare = _TEXT_OR_COMMENT.sub("''", text)
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in "[{" else -1
        if depth > _MOST_BRACKETS:
            raise UsageError(f"{name}: brackets stand more than {_MOST_BRACKETS} deep")
    if any(word.count(".") > _MOST_DOTS for word in _WORD.findall(bare)):
        raise UsageError(f"{name}: a key has more than {_MOST_DOTS} parts")
