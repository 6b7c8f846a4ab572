"""Finds what people name: a document by id or path, a section by heading or anchor."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from kbindex.configuration.config import Config
from kbindex.configuration.patterns import composed
from kbindex.core.errors import UsageError
from kbindex.document.anchors import plain_text, slugify
from kbindex.output.console import note
from kbindex.view.database import View
from kbindex.view.records import DocumentRecord, Opening

_SUGGESTIONS = 8


@dataclass(frozen=True)
class Section:
    """A section of a document, its subsections included."""

    heading: tuple[str, ...]
    anchor: str
    char_start: int
    char_end: int


def look_up(view: View, config: Config, name: str) -> DocumentRecord | None:
    """Return the document with this id or path, ``None`` if there is none.

    An accented letter and its parts are the same, unless two names differ in nothing else.
    """
    name = name.removeprefix("./")
    below = "" if config.bundle == "." else f"{config.bundle}/"
    paths = (name, f"{below}{name}.md", f"{below}{name}", f"{name}.md")
    for path in paths:
        found = view.document(path)
        if found:
            return found
    for path in () if name.isascii() else paths:
        same = [known for known in view.paths() if composed(known) == composed(path)]
        if len(same) == 1 and same[0] != path:
            return look_up(view, config, same[0])
    return None


def find_document(view: View, config: Config, name: str) -> DocumentRecord:
    """Return the document called ``name``. Raises UsageError with the nearest names."""
    found = look_up(view, config, name)
    if found:
        return found
    known = {composed(found): found for found in sorted(map(config.document_id, view.paths()))}
    names = difflib.get_close_matches(composed(name), known, n=_SUGGESTIONS, cutoff=0.4)
    near = [known[found] for found in names]
    remedy = (
        f"nearest are: {', '.join(near)}" if near else "kbindex query finds documents by content"
    )
    raise UsageError(f"no document '{name}' is indexed", remedy)


def find_section(text: str, document: DocumentRecord, wanted: str, name: str = "") -> Section:
    """Return the section of a document with this anchor or heading.

    ``text`` is the document's; messages call it ``name``, or by its path. Raises UsageError with
    the sections that there are.
    """
    name = name or document.path
    sections = list(_sections(document.headings, len(text)))
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
        raise UsageError(f"{name} has no sections", "kbindex get without --section prints it whole")
    by_likeness = sorted(
        sections,
        key=lambda s: -difflib.SequenceMatcher(None, wanted.casefold(), s.anchor).ratio(),
    )
    listed = ", ".join(section.anchor for section in by_likeness[:50])
    raise UsageError(f"{name} has no section '{wanted}'", f"its sections are: {listed}")


def _sections(headings: Sequence[Opening], end: int) -> list[Section]:
    """Return each section, its subsections included, in document order."""
    found = []
    stack: list[Opening] = []
    for index, heading in enumerate(headings):
        while stack and stack[-1].level >= heading.level:
            stack.pop()
        stack.append(heading)
        following = (h.char_start for h in headings[index + 1 :] if h.level <= heading.level)
        path = tuple(above.text for above in stack)
        found.append(Section(path, heading.anchor, heading.char_start, next(following, end)))
    return found
