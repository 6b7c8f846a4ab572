"""``kbindex get``: a document, a section or a passage, exactly as it is indexed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbindex.configuration.config import Config
from kbindex.core.errors import ExitCode, UsageError
from kbindex.document.markdown import decode
from kbindex.output.console import note, put, put_document
from kbindex.output.formats import Format
from kbindex.output.render import to_json
from kbindex.repo.repository import Repository, open_repository
from kbindex.view.database import View
from kbindex.view.lookup import find_document, find_section, look_up
from kbindex.view.open import use_view


@dataclass(frozen=True)
class Part:
    """The part of a document to print: at most one of the three is set."""

    section: str | None = None
    span: str | None = None
    lines: str | None = None


def get(directory: Path | None, name: str, part: Part, form: Format) -> ExitCode:
    """Print the text that ``name`` and ``part`` address. Raises UsageError if there is none."""
    repository = open_repository(directory)
    if sum(value is not None for value in (part.section, part.span, part.lines)) > 1:
        raise UsageError("only one of --section, --span and --lines can be given")
    found = use_view(repository, lambda view: _find(repository, view, name, part))
    _mention_newer_text(repository, str(found["path"]))
    if form == Format.JSON:
        put(to_json({key: value for key, value in found.items() if value is not None}))
    else:
        put_document(str(found["text"]))
    return ExitCode.OK


def _find(repository: Repository, view: View, name: str, part: Part) -> dict[str, Any]:
    """Return what is addressed, in the schema of ``--format json``."""
    name = _from_root(repository, name)
    name, anchor = _split_anchor(view, repository.config, name, part)
    document = find_document(view, repository.config, name)
    path = document.path
    text = decode(repository.git.objects.read_blob(document.blob))
    section = None
    if anchor is not None:
        section = find_section(text, document, anchor)
        start, end = section.char_start, section.char_end
    elif part.span is not None:
        start, end = _range(part.span, "--span", len(text))
    elif part.lines is not None:
        start, end = _line_span(text, *_range(part.lines, "--lines", None))
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


def _from_root(repository: Repository, name: str) -> str:
    """Return the path of a file that is named from where we are as git names it."""
    file, root = Path(name).absolute(), repository.git.root.resolve()
    try:
        is_file = file.is_file() and file.resolve().is_relative_to(root)
    except OSError:  # longer than a file name may be
        return name
    return os.path.relpath(file.resolve(), root) if is_file else name


def _split_anchor(view: View, config: Config, name: str, part: Part) -> tuple[str, str | None]:
    """Read ``ID#anchor``, unless a document is called that."""
    if part.section is not None:
        return name, part.section.removeprefix("#")
    base, separator, anchor = name.rpartition("#")
    if not separator or part.span or part.lines or look_up(view, config, name):
        return name, None
    return base, anchor


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
    if not repository.git.is_bare and path in repository.git.index.changed_in_worktree(path):
        note(f"{path} in the work tree differs from this, the indexed text")
