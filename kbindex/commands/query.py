"""``kbindex query``: search, with section-cited hits."""

from __future__ import annotations

from pathlib import Path

from kbindex.core.errors import ExitCode
from kbindex.output.console import note, put
from kbindex.output.formats import Format
from kbindex.output.render import render_answer
from kbindex.repo.repository import open_repository
from kbindex.search.query import answer_notices, answer_query, readable
from kbindex.search.request import QueryOptions
from kbindex.view.unstaged import StaleDocuments


def query(directory: Path | None, text: str, options: QueryOptions, form: Format) -> ExitCode:
    """Print the answer to ``text``; return 0 with a hit, 1 without."""
    text = readable(text)
    repository = open_repository(directory)
    with StaleDocuments(repository) as stale:  # git looks while we search
        answer = answer_query(repository, text, options, stale)
    for notice in answer_notices(answer):
        note(notice)
    put(render_answer(answer, form, options.explain))
    return ExitCode.OK if answer.hits else ExitCode.NEGATIVE
