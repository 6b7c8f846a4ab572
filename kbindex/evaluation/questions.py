"""The question file of ``eval`` and ``diff --queries``: JSON lines → questions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbindex.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place that answers a question: a document, if known its section, and where in its text."""

    id: str
    section: str | None = None
    """A heading or an anchor."""
    span: tuple[int, int] | None = None
    quote: str | None = None
    """The text of the answer; unlike a span it survives edits elsewhere."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question and all that answers it; nothing does where ``relevant`` is empty."""

    id: str
    query: str
    relevant: tuple[Wanted, ...]
    kind: str | None = None


def read_questions(file: Path) -> tuple[Question, ...]:
    """Read a question file from disk. Raises UsageError if it can't be read."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{file} can't be read: {reason}") from None
    return parse_questions(text, file.name)


def parse_questions(text: str, name: str) -> tuple[Question, ...]:
    """Read a question file. Raises UsageError naming the line that can't be read."""
    questions = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            questions.append(_question(line, f"{name}:{number}"))
    ids = [question.id for question in questions]
    twice = next((one for index, one in enumerate(ids) if one in ids[:index]), None)
    if twice is not None:
        raise UsageError(f"{name}: two questions are called '{twice}'")
    if not questions:
        raise UsageError(f"{name} holds no question", 'one a line: {"id", "query", "relevant"}')
    return tuple(questions)


def locate(wanted: Wanted, text: str) -> tuple[int, int] | None:
    """Return the span of the answer in ``text``, ``None`` if the question names none.

    Raises ValueError with the reason if it is not there, or a quote is there twice.
    """
    if wanted.span is not None:
        start, end = wanted.span
        if end > len(text):
            raise ValueError(f"its span ends behind the end of the text ({len(text)} characters)")
        if wanted.quote is not None and text[start:end] != wanted.quote:
            raise ValueError("its quote is not what stands at its span")
        return start, end
    if wanted.quote is None:
        return None
    n_places = text.count(wanted.quote)
    if n_places == 0:
        raise ValueError("its quote does not stand there")
    if n_places > 1:
        raise ValueError(f"its quote stands there {n_places} times, not once")
    start = text.index(wanted.quote)
    return start, start + len(wanted.quote)


def _question(line: str, place: str) -> Question:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{place} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{place} is not a JSON object")
    relevant = found.get("relevant")
    if not isinstance(relevant, list):
        raise UsageError(f"{place} has no list 'relevant'", "an empty one says: nothing answers it")
    query = _text(found, "query", place)
    if not query.strip():
        raise UsageError(f"{place} asks nothing")
    return Question(
        id=_text(found, "id", place),
        query=query,
        relevant=tuple(_wanted(entry, place) for entry in relevant),
        kind=_text(found, "kind", place) if "kind" in found else None,
    )


def _wanted(entry: Any, place: str) -> Wanted:
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: an entry of 'relevant' is not a JSON object")
    unknown = entry.keys() - {"id", "section", "span", "quote"}
    if unknown:
        raise UsageError(f"{place}: an entry of 'relevant' has no field '{min(unknown)}'")
    return Wanted(
        id=_text(entry, "id", place),
        section=_text(entry, "section", place) if "section" in entry else None,
        span=_span(entry["span"], place) if "span" in entry else None,
        quote=_text(entry, "quote", place) if "quote" in entry else None,
    )


def _text(found: dict[str, Any], name: str, place: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{place} has no text '{name}'")
    return value


def _span(value: Any, place: str) -> tuple[int, int]:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value)
    if not is_pair or not 0 <= value[0] < value[1]:
        raise UsageError(f"{place}: a span is [start, end] in code points, end exclusive")
    return value[0], value[1]
