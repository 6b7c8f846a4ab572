"""``kbindex get``: a document, a section or a passage, exactly as it is indexed."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbindex.anchors import plain_text, slugify
from kbindex.config import Config
from kbindex.console import note, put, put_raw
from kbindex.current import use_view
from kbindex.errors import ExitCode, UsageError
from kbindex.formats import Format, printable
from kbindex.git import decode_path, encode_path
from kbindex.okf import decode
from kbindex.render import to_json
from kbindex.repository import Repository, open_repository
from kbindex.view import View

_SUGGESTIONS = 8


@dataclass(frozen=True)
class Passage:
    """What to print: at most one of the three is set."""

    section: str | None = None
    span: str | None = None
    lines: str | None = None


@dataclass(frozen=True)
class FoundDocument:
    """A document in the view; ``headings`` as JSON."""

    path: str
    blob: str
    title: str
    type: str | None
    headings: str


@dataclass(frozen=True)
class _Section:
    heading: tuple[str, ...]
    anchor: str
    char_start: int
    char_end: int


def get(directory: Path | None, name: str, passage: Passage, form: Format) -> ExitCode:
    """Print the text that ``name`` and ``passage`` address. Raises UsageError if there is none."""
    repository = open_repository(directory)
    if sum(value is not None for value in (passage.section, passage.span, passage.lines)) > 1:
        raise UsageError("only one of --section, --span and --lines can be given")
    found = use_view(repository, lambda view: _find(repository, view, name, passage))
    _mention_newer_text(repository, str(found["path"]))
    if form == Format.JSON:
        put(to_json({key: value for key, value in found.items() if value is not None}))
    else:
        _put_text(str(found["text"]))
    return ExitCode.OK


def _find(repository: Repository, view: View, name: str, passage: Passage) -> dict[str, Any]:
    """Return what is addressed, in the schema of ``--format json``."""
    name, anchor = _split_anchor(view, repository.config, name, passage)
    document = find_document(view, repository.config, name)
    path = document.path
    text = decode(repository.git.read_blob(document.blob))
    section = None
    if anchor is not None:
        section = _find_section(text, json.loads(document.headings), anchor, path)
        start, end = section.char_start, section.char_end
    elif passage.span is not None:
        start, end = _range(passage.span, "--span", len(text))
    elif passage.lines is not None:
        start, end = _line_span(text, *_range(passage.lines, "--lines", None))
    else:
        start, end = 0, len(text)
    return {
        "id": repository.config.document_id(path),
        "path": path,
        "title": document.title,
        "type": document.type,
        "section": section and {"heading": list(section.heading), "anchor": section.anchor},
        "lines": [text.count("\n", 0, start) + 1, text.count("\n", 0, max(end - 1, start)) + 1],
        "span": [start, end],
        "blob": document.blob,
        "text": text[start:end],
    }


def _split_anchor(
    view: View, config: Config, name: str, passage: Passage
) -> tuple[str, str | None]:
    """Read ``ID#anchor``, unless a document is called that."""
    if passage.section is not None:
        return name, passage.section.removeprefix("#")
    base, separator, anchor = name.rpartition("#")
    if not separator or passage.span or passage.lines or _lookup(view, config, name):
        return name, None
    return base, anchor


def _lookup(view: View, config: Config, name: str) -> tuple[Any, ...] | None:
    name = name.removeprefix("./")
    below = "" if config.bundle == "." else f"{config.bundle}/"
    for path in (name, f"{below}{name}.md", f"{below}{name}", f"{name}.md"):
        found = view.db.execute(
            "SELECT path, blob, title, type, headings FROM document WHERE path = ?",
            (encode_path(path),),
        ).fetchone()
        if found:
            return tuple(found)
    return None


def find_document(view: View, config: Config, name: str) -> FoundDocument:
    """Return the document called ``name``. Raises UsageError with the nearest names."""
    found = _lookup(view, config, name)
    if found:
        return FoundDocument(decode_path(found[0]), *found[1:])
    paths = [decode_path(path) for (path,) in view.db.execute("SELECT path FROM document")]
    known = sorted(map(config.document_id, paths))
    near = difflib.get_close_matches(name, known, n=_SUGGESTIONS, cutoff=0.4)
    remedy = (
        f"nearest are: {', '.join(near)}" if near else "kbindex query finds documents by content"
    )
    raise UsageError(f"no document '{name}' is indexed", printable(remedy))


def _find_section(
    text: str, headings: list[tuple[int, str, str, int]], wanted: str, path: str
) -> _Section:
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
    raise UsageError(f"{path} has no section '{wanted}'", printable(f"its sections are: {listed}"))


def _sections(headings: list[tuple[int, str, str, int]], end: int) -> list[_Section]:
    """Return each section with its subsections; the headings come in document order."""
    found = []
    stack: list[tuple[int, str]] = []
    for index, (level, heading, anchor, start) in enumerate(headings):
        while stack and stack[-1][0] >= level:
            stack.pop()
        stack.append((level, heading))
        following = (h[3] for h in headings[index + 1 :] if h[0] <= level)
        path = tuple(text for _, text in stack)
        found.append(_Section(path, anchor, start, next(following, end)))
    return found


def _range(value: str, option: str, limit: int | None) -> tuple[int, int]:
    first, separator, last = value.replace(",", ":").partition(":")
    if not (first.isdecimal() and (last.isdecimal() or not separator)):
        raise UsageError(f"{option} takes two numbers, A:B, not '{value}'")
    start, end = int(first), int(last if separator else first)
    if start > end or (limit is not None and end > limit):
        size = "" if limit is None else f" ({limit} characters)"
        raise UsageError(f"{option} {value} lies outside the document{size}")
    return start, end


def _line_span(text: str, first: int, last: int) -> tuple[int, int]:
    starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]
    if starts[-1] == len(text):
        starts.pop()  # what follows the last newline is no line
    if not 1 <= first <= last or first > len(starts):
        raise UsageError(f"--lines {first}:{last} lies outside the document ({len(starts)} lines)")
    return starts[first - 1], [*starts, len(text)][min(last, len(starts))]


def _mention_newer_text(repository: Repository, path: str) -> None:
    if not repository.git.is_bare and path in repository.git.changed_in_worktree(path):
        note(f"{path} in the work tree differs from this, the indexed text")


def _put_text(text: str) -> None:
    if sys.stdout.isatty():
        put("\n".join(map(printable, text.splitlines())))
    else:
        put_raw(text)
