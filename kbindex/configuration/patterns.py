"""Patterns as in ``.gitignore`` → which paths do they select? Pure, and never slow.

A pattern may come from a stranger's repository, so none takes more than a few passes over a path:
what stands between two wildcards is looked for from the left and never given back (atomic groups,
which Python has from 3.11). Not here: the case of letters, and POSIX classes in brackets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

_FOLDERS = "(?:[^/]++/)*?"
_FOLDER = "folder"
"""The name of the group that matches if the pattern selects a folder above the file."""


_Pattern = tuple[bool, re.Pattern[str]]
"""(whether a match selects, expression for a whole path)"""


def composed(text: str) -> str:
    """Return a path in which each letter and its accents are one character where they can be.

    macOS stores names decomposed, keyboards give them composed.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


class Patterns:
    """Some lines of patterns; without a match a path is not selected.

    The last that matches the file itself decides, else the last that matches a folder above it:
    ``!drafts/kept.md`` brings a file back, wherever it stands.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        """Compile ``lines``. Raises ValueError naming the line at fault."""
        compiled = [_compile(line) for line in lines]
        self._last_first = [pattern for pattern in reversed(compiled) if pattern]

    def match(self, path: str) -> bool:
        """Whether a path, with ``/`` between its parts and none before, is selected."""
        by_folder = None
        for selects, expression in self._last_first:
            found = expression.match(path)
            if found and found.lastgroup != _FOLDER:
                return selects
            if found and by_folder is None:
                by_folder = selects
        return bool(by_folder)


def _compile(line: str) -> _Pattern | None:
    text = line if line.endswith("\\ ") else line.rstrip()
    if not text or text == "/" or text.startswith("#"):
        return None
    selects = not text.startswith("!")
    try:
        expression = _path(text.removeprefix("!"))
    except ValueError as error:
        raise ValueError(f"'{line}' is no pattern as in .gitignore: {error}") from None
    return selects, re.compile(expression, re.DOTALL)


def _path(text: str) -> str:
    """Return the expression for the paths that a pattern matches."""
    parts = text.split("/")
    is_folder = len(parts) > 1 and not parts[-1]
    if not any(parts):
        raise ValueError("it is empty")
    if not parts[0]:
        del parts[0]
    elif len(parts) - is_folder == 1:
        parts.insert(0, "**")  # a name without a slash counts in every folder
    if is_folder:
        parts[-1] = "**"
    # What stands before, between and after any number of folders; runs of '**' are one.
    runs = ["/".join(map(_part, run)) for many, run in groupby(parts, "**".__eq__) if not many]
    start = "" if parts[0] == "**" else runs.pop(0)
    end = "" if parts[-1] == "**" or not runs else runs.pop()
    if "**" not in parts:
        return rf"{start}(?:\Z|(?P<{_FOLDER}>/))"
    before = f"{start}/" if start else ""
    before += "".join(f"(?>{_FOLDERS}{run}/)" for run in runs)
    if end:
        return rf"{before}(?:{_FOLDERS}{end}\Z|{_FOLDERS}{end}(?P<{_FOLDER}>/))"
    if not is_folder:
        return before
    return f"{before}(?P<{_FOLDER}>)" if before else f"(?P<{_FOLDER}>[^/]+/)"


def _part(text: str) -> str:
    """Return the expression for one name between slashes."""
    first, *others = _pieces(text)
    if not others:
        return "".join(first)
    *middle, last = others
    found = "".join(first) + "".join(f"(?>[^/]*?{''.join(piece)})" for piece in middle)
    if not last:
        return f"{found}[^/]*+"
    return f"{found}(?=[^/]{{{len(last)}}})[^/]*+(?<={''.join(last)})"


def _pieces(text: str) -> list[list[str]]:
    """Return what stands between the stars: an expression for each single character."""
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        character, at = text[at], at + 1
        if character == "*":
            pieces.append([])
        elif character == "?":
            pieces[-1].append("[^/]")
        elif character == "[":
            expression, at = _bracket(text, at)
            pieces[-1].append(expression)
        else:
            if character == "\\":
                if at == len(text):
                    raise ValueError("nothing follows the last backslash")
                character, at = text[at], at + 1
            pieces[-1].append(re.escape(character))
    return pieces


def _bracket(text: str, at: int) -> tuple[str, int]:
    """Return the expression for ``[…]``, of which ``at`` is the inside, and where it ends."""
    negation = "^" if text[at : at + 1] in ("!", "^") else ""
    at += len(negation)
    end = text.find("]", at + 1)
    if end < 0:
        raise ValueError("'[' is never closed")
    found = ""
    while at < end:
        low, high = text[at], text[at]
        if text[at + 1] == "-" and at + 2 < end:
            high, at = text[at + 2], at + 2
        if low > high:
            raise ValueError(f"the range '{low}-{high}' is empty")
        found += re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
        at += 1
    return f"(?!/)[{negation}{found}]", end + 1
