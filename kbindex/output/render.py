"""Results → text, JSON, GitHub annotations and SARIF. Pure.

Control characters in documents never reach a terminal; JSON has one schema, also when empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kbindex.core.model import SEPARATOR, Answer, Audit, Finding, Hit, Problem, Status
from kbindex.core.text import as_text, escape_hidden
from kbindex.output.formats import Format

_SCORE_DIGITS = 4
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Return JSON; undecodable bytes of a path, and what steers a terminal, become escapes.

    Raises ValueError for NaN and infinities, which JSON has no words for.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return escape_hidden(text)


# query


def render_answer(answer: Answer, form: Format, explain: bool = False) -> str:
    """Return an answer as ``query`` prints it."""
    if form == Format.JSON:
        return to_json(answer_json(answer))
    if form == Format.JSONL:
        return "\n".join(to_json(hit_json(hit), indent=None) for hit in answer.hits)
    return as_text(line for hit in answer.hits for line in _hit_lines(hit, explain))


def answer_json(answer: Answer) -> dict[str, Any]:
    """Return an answer in the documented schema (bundle/reference/query-json.md)."""
    return {
        "query": answer.query,
        "mode": answer.mode,
        "degraded": answer.degraded,
        "index": {
            "embedder": answer.embedder.name,
            "dimension": answer.embedder.dimension,
            "stale_documents": len(answer.stale),
        },
        "retrieval": {
            "lexical": answer.found.n_lexical,
            "dense": answer.found.n_dense,
            "fused": len(answer.hits),
            "coverage": {
                "documents": answer.coverage.documents,
                "chunks": answer.coverage.chunks,
                "lexical": answer.coverage.lexical,
                "dense": answer.coverage.dense,
            },
        },
        "hits": [hit_json(hit) for hit in answer.hits],
    }


def hit_json(hit: Hit) -> dict[str, Any]:
    """Return a hit; what does not apply is absent."""
    found: dict[str, Any] = {
        "rank": hit.rank,
        "id": hit.id,
        "path": hit.path,
        "title": hit.title,
        "type": hit.type,
        "status": hit.status,
        "score": round(hit.score, _SCORE_DIGITS),
        "similarity": None if hit.similarity is None else round(hit.similarity, _SCORE_DIGITS),
        "matched_by": list(hit.matched_by),
        "matched_section": _section(hit),
        "lines": [hit.first_line, hit.last_line],
        "span": [hit.char_start, hit.char_end],
        "blob": hit.blob,
        "text": hit.text,
        "explain": hit.explanation and dict(hit.explanation),
    }
    return {name: value for name, value in found.items() if value is not None}


def _section(hit: Hit) -> dict[str, Any] | None:
    if not hit.heading or hit.anchor is None:
        return None
    return {"heading": list(hit.heading), "anchor": hit.anchor}


def _hit_lines(hit: Hit, explain: bool) -> Iterator[str]:
    path = hit.heading[1:] if hit.heading[:1] == (hit.title,) else hit.heading
    cited = SEPARATOR.join(part for part in (hit.title, *path) if part)
    mark = " (deprecated)" if hit.status == "deprecated" else ""
    yield f"{hit.path}:{hit.first_line}: {cited}{mark}  {hit.score:.2f}"
    if explain and hit.explanation is not None:
        parts = " + ".join(f"{name} {value:.4f}" for name, value in hit.explanation.items())
        similarity = "unknown" if hit.similarity is None else f"{hit.similarity:.4f}"
        yield f"    {hit.score:.4f} = {parts}; similarity {similarity}"
    if hit.text is not None:
        yield from (f"    {row}" for row in hit.text.strip().splitlines())


# check


def render_check(
    rev: str,
    n_documents: int,
    n_chunks: int,
    problems: Sequence[Problem],
    notices: Sequence[Problem],
    form: Format,
    audit: Audit | None = None,
) -> str:
    """Return the verdict of ``check``; ``notices`` concern documents and don't fail it."""
    verdict = _verdict(n_documents, n_chunks, problems, audit)
    if form == Format.JSON:
        content = {
            "fresh": not problems,
            "rev": rev,
            "documents": n_documents,
            "chunks": n_chunks,
            "problems": [problem_json(problem) for problem in problems],
            "notices": [problem_json(problem) for problem in notices],
        }
        if audit:
            content["audit"] = _audit_json(audit)
        return to_json(content)
    if form == Format.SARIF:
        return to_json(_sarif(problems, notices))
    if form == Format.GITHUB:
        lines = [_annotation("error", p) for p in problems] + [
            _annotation("notice", p) for p in notices
        ]
        return as_text([*lines, verdict])
    lines = [_problem_text(problem) for problem in problems]
    lines += [f"{_problem_text(notice)} (notice)" for notice in notices]
    return as_text([*lines, verdict])


def _audit_json(audit: Audit) -> dict[str, Any]:
    if audit.least_cosine is None:
        return {"chunks": audit.n_chunks}
    return {
        "chunks": audit.n_chunks,
        "least_cosine": round(audit.least_cosine, _SCORE_DIGITS),
    }


def problem_json(problem: Problem) -> dict[str, Any]:
    found = {
        "rule": problem.rule,
        "path": problem.path,
        "line": problem.line,
        "message": problem.message,
        "remedy": problem.remedy,
    }
    return {name: value for name, value in found.items() if value is not None}


def _problem_text(problem: Problem) -> str:
    place = f"{problem.path}:{problem.line}" if problem.line else problem.path
    remedy = f"  →  {problem.remedy}" if problem.remedy else ""
    return f"{place}: {problem.rule}: {problem.message}{remedy}"


def _verdict(
    n_documents: int, n_chunks: int, problems: Sequence[Problem], audit: Audit | None
) -> str:
    covered = f"{n_documents} documents, {n_chunks} chunks"
    if audit:
        least = audit.least_cosine
        covered += f"; {audit.n_chunks} audited"
        covered += "" if least is None else f", least cosine {least:.4f}"
    if not problems:
        return f"fresh: {covered}"
    return f"not fresh: {len(problems)} problems in {covered}"


def _annotation(level: str, problem: Problem) -> str:
    place = f"file={_escaped(problem.path, ',:')}"
    if problem.line:
        place += f",line={problem.line}"
    remedy = f" (remedy: {problem.remedy})" if problem.remedy else ""
    return f"::{level} {place},title=kbindex {problem.rule}::{_escaped(problem.message + remedy)}"


def _escaped(text: str, more: str = "") -> str:
    text = as_text(text.replace("\r\n", "\n").split("\n"))
    for character in "%\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text.encode("utf-8", "backslashreplace").decode()


def _sarif(problems: Sequence[Problem], notices: Sequence[Problem]) -> dict[str, Any]:
    rules = sorted({problem.rule for problem in (*problems, *notices)})
    results = [_sarif_result(problem, "error") for problem in problems]
    results += [_sarif_result(notice, "note") for notice in notices]
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "kbindex", "rules": [{"id": rule} for rule in rules]}},
                "results": results,
            }
        ],
    }


def _sarif_result(problem: Problem, level: str) -> dict[str, Any]:
    from urllib.parse import quote

    uri = quote(problem.path.encode("utf-8", "surrogateescape"))
    location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if problem.line:
        location["region"] = {"startLine": problem.line}
    remedy = f" Remedy: {problem.remedy}" if problem.remedy else ""
    return {
        "ruleId": problem.rule,
        "level": level,
        "message": {"text": problem.message + remedy},
        "locations": [{"physicalLocation": location}],
    }


# status


def render_facts(facts: Mapping[str, Any], form: Format) -> str:
    """Return nested facts as aligned text or as JSON."""
    if form == Format.JSON:
        return to_json(facts)
    return as_text(_fact_lines(facts, ""))


def _fact_lines(facts: Mapping[str, Any], indent: str) -> Iterable[str]:
    width = max((len(name) for name in facts), default=0) + 1
    for name, value in facts.items():
        label = f"{indent}{name.replace('_', ' ') + ':':<{width}}"
        if isinstance(value, Mapping):
            yield label.rstrip()
            yield from _fact_lines(value, indent + "  ")
        elif isinstance(value, list):
            yield f"{label} {'none' if not value else ''}".rstrip()
            yield from (f"{indent}  {item}" for item in value)
        else:
            yield f"{label} {'unknown' if value is None else value}"


# doctor


def render_findings(findings: Sequence[Finding], form: Format) -> str:
    """Return what ``doctor`` found as text or as JSON."""
    if form == Format.JSON:
        is_healthy = all(finding.status != Status.ERROR for finding in findings)
        listed = [
            {k: v for k, v in asdict(finding).items() if v is not None} for finding in findings
        ]
        return to_json({"healthy": is_healthy, "findings": listed})
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:<8} {finding.check}: {finding.message}")
        if finding.remedy:
            lines.append(f"         remedy: {finding.remedy}")
    return as_text(lines)
