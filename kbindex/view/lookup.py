"""Finds what people name: a document by id or path, a section by heading or anchor."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from kbindex.configuration.config import Config
from kbindex.configuration.patterns import composed
from kbindex.core.errors import UsageError
from kbindex.document.anchors import plain_text, slugify
from kbindex.git.paths import decode_path, encode_path
from kbindex.output.console import note
from kbindex.view.database import View

_SUGGESTIONS = 8


@dataclass(frozen=True)
class FoundDocument:
    """A document in the view; ``headings`` as JSON."""

    path: str
    blob: str
    title: str
    type: str | None
    headings: str


@dataclass(frozen=True)
class Section:
    """A section of a document, its subsections included."""

    heading: tuple[str, ...]
    anchor: str
    char_start: int
    char_end: int


def look_up(view: View, config: Config, name: str) -> FoundDocument | None:
    """Return the document with this id or path, ``None`` if there is none.

    An accented letter and its parts are the same, unless two names differ in nothing else.
    """
    name = name.removeprefix("./")
    below = "" if config.bundle == "." else f"{config.bundle}/"
    paths = (name, f"{below}{name}.md", f"{below}{name}", f"{name}.md")
    for path in paths:
        found = view.document(encode_path(path))
        if found:
            columns = (found[name] for name in ("blob", "title", "type", "headings"))
            return FoundDocument(path, *columns)
    for path in () if name.isascii() else paths:
        same = [known for known in _paths(view) if composed(known) == composed(path)]
        if len(same) == 1 and same[0] != path:
            return look_up(view, config, same[0])
    return None


def _paths(view: View) -> list[str]:
    return [decode_path(path) for (path,) in view.db.execute("SELECT path FROM document")]


def find_document(view: View, config: Config, name: str) -> FoundDocument:
    """Return the document called ``name``. Raises UsageError with the nearest names."""
    found = look_up(view, config, name)
    if found:
        return found
    known = {composed(found): found for found in sorted(map(config.document_id, _paths(view)))}
    names = difflib.get_close_matches(composed(name), known, n=_SUGGESTIONS, cutoff=0.4)
    near = [known[found] for found in names]
    remedy = (
        f"nearest are: {', '.join(near)}" if near else "kbindex query finds documents by content"
    )
    raise UsageError(f"no document '{name}' is indexed", remedy)


def find_section(
    text: str, headings: list[tuple[int, str, str, int]], wanted: str, path: str
) -> Section:
    sections = list(_sections(headings, len(text)))
    for match in (
        lambda s: s.anchor == wanted,
        lambda s: s.heading[-1] == wanted,
        lambda s: s.anchor == slugify(wanted),
        lambda s: plain_text(s.heading[-1]).casefold() == plain_text(wanted).casefold(),
    ):
        found = [section for section in sections if match(section)]
        if found:
            others = ", ".join(section.anchor for section in found[1:])
            if others:
                note(f"{len(found)} sections have this heading; the others are: {others}")
            return found[0]
    if not sections:
        raise UsageError(f"{path} has no sections", "kbindex get without --section prints it whole")
    by_likeness = sorted(
        sections,
        key=lambda s: -difflib.SequenceMatcher(None, wanted.casefold(), s.anchor).ratio(),
    )
    listed = ", ".join(section.anchor for section in by_likeness[:50])
    raise UsageError(f"{path} has no section '{wanted}'", f"its sections are: {listed}")


def _sections(headings: list[tuple[int, str, str, int]], end: int) -> list[Section]:
    """Return each section with its subsections; the headings come in document order."""
    found = []
    stack: list[tuple[int, str]] = []
    for index, (level, heading, anchor, start) in enumerate(headings):
        while stack and stack[-1][0] >= level:
            stack.pop()
        stack.append((level, heading))
        following = (h[3] for h in headings[index + 1 :] if h[0] <= level)
        path = tuple(text for _, text in stack)
        found.append(Section(path, anchor, start, next(following, end)))
    return found
