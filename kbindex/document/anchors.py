"""Heading source → the anchor that GitHub gives it, and the plain text that people read.

The algorithm is that of github-slugger, which reproduces GitHub's: the rendered text in lower
case, without punctuation, spaces as hyphens, ``-1``, ``-2`` … for repetitions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DROPPED_ASCII = re.compile(r"[^A-Za-z0-9_\- ]")
_KEPT_CATEGORIES = frozenset({"Nd", "Nl", "Pc"})
"""Unicode categories that an anchor keeps, besides letters (L) and marks (M)."""


class Anchors:
    """Gives each heading of one document its anchor, in document order."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        base = anchor = slugify(plain_text(heading))
        while anchor in self._counts:
            self._counts[base] += 1
            anchor = f"{base}-{self._counts[base]}"
        self._counts[anchor] = 0
        return anchor


def slugify(text: str) -> str:
    """Return the anchor of a heading's rendered text, repetitions aside."""
    text = text.lower()
    if text.isascii():
        return _DROPPED_ASCII.sub("", text).replace(" ", "-")
    return "".join(filter(_is_kept, text)).replace(" ", "-")


def _is_kept(character: str) -> bool:
    category = unicodedata.category(character)
    return character in "- " or category[0] in "LM" or category in _KEPT_CATEGORIES


def plain_text(heading: str) -> str:
    """Return a heading's text as rendered: without emphasis, links, code marks and HTML."""
    if heading.isascii() and heading.replace(" ", "").isalnum():
        return heading  # most headings, and parsing is slow
    return "".join(_texts(_inline().parseInline(heading)[0].children or []))


@cache
def _inline() -> MarkdownIt:
    from markdown_it import MarkdownIt  # 20 ms that a query need not pay

    return MarkdownIt("commonmark").enable("strikethrough")


def _texts(tokens: Iterable[Token]) -> Iterable[str]:
    for token in tokens:
        if token.type == "image":
            continue  # GitHub ignores images, their alternative text included
        if token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type in ("text", "code_inline", "text_special"):
            yield token.content
