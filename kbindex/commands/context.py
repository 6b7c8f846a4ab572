"""``kbindex context``: passages for a model, within a token budget, each cited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbindex.core.errors import ExitCode, UsageError
from kbindex.core.model import Answer, Hit
from kbindex.document.tokens import count_tokens
from kbindex.output.console import note, put, put_document
from kbindex.output.formats import Format
from kbindex.output.render import hit_json, to_json
from kbindex.repo.repository import open_repository
from kbindex.search.context import Context, Excerpt, fit_budget, render_excerpt
from kbindex.search.query import answer_notices, answer_query, readable
from kbindex.search.request import QueryOptions
from kbindex.view.unstaged import StaleDocuments

_CANDIDATES = QueryOptions(n_hits=40, per_document=8, with_text=True)


def context(directory: Path | None, text: str, budget: int, form: Format) -> ExitCode:
    """Print the best passages that fit ``budget`` cl100k tokens."""
    if budget < 1:
        raise UsageError("--budget is at least 1 token")
    repository = open_repository(directory)
    with StaleDocuments(repository) as stale:
        answer = answer_query(repository, readable(text), _CANDIDATES, stale)
    for notice in answer_notices(answer):
        note(notice)
    found = fit_budget(answer.hits, budget, count_tokens)
    if form == Format.JSON:
        put(to_json(_context_json(answer, found, budget)))
    else:
        put_document("".join(render_excerpt(e.hit, e.text) for e in found.excerpts))
        _mention_cuts(found)
    return ExitCode.OK if found.excerpts else ExitCode.NEGATIVE


def _mention_cuts(found: Context) -> None:
    for excerpt in found.excerpts:
        if excerpt.partial:
            note(f"partial: {excerpt.hit.path}:{excerpt.hit.first_line}")
    if found.omitted:
        named = ", ".join(f"{hit.path}:{hit.first_line}" for hit in found.omitted[:5])
        more = f" and {len(found.omitted) - 5} more" if len(found.omitted) > 5 else ""
        note(f"omitted, they don't fit: {named}{more}")


def _context_json(answer: Answer, found: Context, budget: int) -> dict[str, Any]:
    return {
        "query": answer.query,
        "mode": answer.mode,
        "degraded": answer.degraded,
        "budget": budget,
        "tokens": found.n_tokens,
        "excerpts": [_excerpt_json(excerpt) for excerpt in found.excerpts],
        "omitted": [_citation_json(hit) for hit in found.omitted],
    }


def _excerpt_json(excerpt: Excerpt) -> dict[str, Any]:
    hit = excerpt.hit
    last_line = hit.first_line + max(excerpt.text.rstrip("\n").count("\n"), 0)
    return _citation_json(hit) | {
        "span": [hit.char_start, excerpt.char_end],
        "lines": [hit.first_line, last_line if excerpt.partial else hit.last_line],
        "text": excerpt.text,
        "tokens": excerpt.n_tokens,
        "partial": excerpt.partial,
    }


def _citation_json(hit: Hit) -> dict[str, Any]:
    left_out = ("score", "similarity", "matched_by", "text", "explain")
    return {name: value for name, value in hit_json(hit).items() if name not in left_out}
