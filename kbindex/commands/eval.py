"""``kbindex eval``: how well a question file's answers are found, mode by mode."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from kbindex.core.errors import ExitCode, UsageError
from kbindex.core.text import as_text
from kbindex.document.tokens import count_tokens
from kbindex.embed import HASH, Embedder
from kbindex.evaluation.metrics import (
    Gate,
    Judged,
    Ranking,
    Tuning,
    judge,
    measures,
    parse_gate,
    tune,
)
from kbindex.evaluation.questions import Question, read_questions
from kbindex.evaluation.runner import (
    DENSE,
    DOCUMENT,
    HYBRID,
    LEXICAL,
    MODES,
    RRF,
    Asked,
    Bench,
    QuestionVectors,
    embed_questions,
    rrf,
)
from kbindex.output.console import put
from kbindex.output.formats import Format
from kbindex.output.progress import progress_on
from kbindex.output.render import hit_json, to_json
from kbindex.repo.repository import Repository, open_repository
from kbindex.search.query import query_embedder, weight_of
from kbindex.view.database import View
from kbindex.view.open import uncovered_documents, use_view, view_recipe

_WEIGHTS = tuple(step / 20 for step in range(21))
_MISSED_SHOWN = 20


@dataclass(frozen=True)
class EvalOptions:
    """The options of one evaluation."""

    modes: tuple[str, ...] = (LEXICAL, DENSE, HYBRID)
    k: int = 5
    gates: tuple[str, ...] = ()
    tune: bool = False


def evaluate(directory: Path | None, file: Path, options: EvalOptions, form: Format) -> ExitCode:
    """Print the measures of the question file; exit 1 if a gate isn't kept."""
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown or not options.modes:
        raise UsageError(f"there is no mode '{', '.join(unknown)}'", f"modes: {', '.join(MODES)}")
    questions = read_questions(file)
    main_mode = HYBRID if HYBRID in options.modes else options.modes[0]
    gates = [parse_gate(text, options.modes, main_mode) for text in options.gates]
    repository = open_repository(directory)
    report = use_view(
        repository, lambda view: _report(repository, view, questions, file.name, options, main_mode)
    )
    report["gates"] = [_judged(gate, report, main_mode) for gate in gates]
    put(to_json(report) if form == Format.JSON else _text(report, main_mode))
    return (
        ExitCode.OK if all(g["verdict"] == "pass" for g in report["gates"]) else (ExitCode.NEGATIVE)
    )


def _report(
    repository: Repository,
    view: View,
    questions: Sequence[Question],
    name: str,
    options: EvalOptions,
    main_mode: str,
) -> dict[str, Any]:
    bench = Bench(repository, view)
    judged = bench.judged(questions, name)
    recipe = view_recipe(view, repository.config)
    embedder: Embedder | None = None
    vectors: QuestionVectors = {}
    if options.tune or {*options.modes} - {LEXICAL}:
        embedder = query_embedder(repository, recipe)
        vectors = embed_questions(embedder, questions)
    weight = weight_of(repository, embedder)
    asked: dict[str, Asked] = {}

    def ask(mode: str) -> Asked:
        if mode not in asked:
            asked[mode] = bench.ask(mode, questions, vectors, weight, options.k)
        return asked[mode]

    rankings: dict[str, Mapping[str, Ranking]] = {}
    for mode in options.modes:
        if mode == RRF:
            rankings[mode] = rrf(ask(LEXICAL), ask(DENSE))
        elif mode == DOCUMENT:
            assert embedder is not None
            with progress_on(sys.stderr) as show:
                rankings[mode] = bench.ask_documents(questions, embedder, vectors, show)
        else:
            rankings[mode] = ask(mode).rankings
    hits = asked[main_mode].hits if main_mode in asked else {}
    cited = [hit for found in hits.values() for hit in found]
    main = rankings[main_mode]
    report: dict[str, Any] = {
        "questions": len(judged),
        "unanswerable": sum(not question.targets for question in judged),
        "embedder": recipe.embedder.name,
        "dense_weight": weight,
        "modes": {mode: _measures(judged, mode, rankings[mode], options.k) for mode in rankings},
        "kinds": _kinds(judged, main, options.k),
        "coverage": bench.coverage(),
        "citations": len(cited),
        "round_trip": fmean(map(bench.leads_back, cited)) if cited else None,
        "tokens_per_result_set": fmean(map(_n_tokens, hits.values())) if hits else None,
        "missed": _missed(judged, main, options.k),
        "open": _open_items(view, judged, recipe.embedder.provider, main_mode),
    }
    if options.tune:
        tuning = tune(
            judged,
            lambda w: bench.ask(HYBRID, questions, vectors, w, options.k).rankings,
            weight,
            _WEIGHTS,
        )
        report["tuning"] = asdict(tuning)
    return report


def _measures(
    judged: Sequence[Judged], mode: str, rankings: Mapping[str, Ranking], k: int
) -> dict[str, float | None]:
    found = measures(judged, rankings, k)
    if mode == DOCUMENT:  # its passages are neither chunks nor sections
        found["span-ndcg@10"] = found[f"section-hit@{k}"] = None
    if mode == RRF:  # its scores are those of ranks, the same for every question
        found["separation"] = None
    return found


def _kinds(
    judged: Sequence[Judged], rankings: Mapping[str, Ranking], k: int
) -> dict[str, dict[str, Any]]:
    parts: dict[str, list[Judged]] = {}
    for question in judged:
        if question.kind and question.targets:
            parts.setdefault(question.kind, []).append(question)
    return {
        kind: {"questions": len(part), **measures(part, rankings, k)}
        for kind, part in sorted(parts.items())
    }


def _n_tokens(hits: Sequence[Any]) -> int:
    shown = [{n: v for n, v in hit_json(hit).items() if n != "text"} for hit in hits]
    return count_tokens("\n".join(to_json(hit, indent=None) for hit in shown))


def _missed(judged: Sequence[Judged], rankings: Mapping[str, Ranking], k: int) -> list[str]:
    return [
        question.id
        for question in judged
        if question.targets
        and not {t.path for t in question.targets} & {*rankings[question.id].documents[:k]}
    ]


def _open_items(view: View, judged: Sequence[Judged], provider: str, mode: str) -> list[str]:
    """Return what this report can't tell or what its figures stand on, a sentence each."""
    answered = [question for question in judged if question.targets]
    without = Counter(
        name
        for question in answered
        for name in ("section", "span")
        if all(getattr(target, name) is None for target in question.targets)
    )
    items = [
        f"{n} answered questions name no {name}: {name}-hit leaves them out"
        for name, n in sorted(without.items())
    ]
    if len(answered) == len(judged):
        items.append("no question is unanswerable: separation can't be measured")
    if len(answered) < 50:
        items.append(
            f"{len(answered)} answered questions: one moves a mean by "
            f"{1 / max(len(answered), 1):.3f}"
        )
    stale = uncovered_documents(view)
    if stale:
        items.append(f"{len(stale)} documents are not indexed as they are staged")
    if provider == HASH:
        items.append("the 'hash' embedder carries no meaning")
    if mode in (RRF, DOCUMENT):
        items.append(f"mode {mode} has no citations: round trip and tokens are not measured")
    return items


def _judged(gate: Gate, report: Mapping[str, Any], main_mode: str) -> dict[str, Any]:
    whole = {n: report[n] for n in ("coverage", "round_trip", "tokens_per_result_set")}
    if gate.kind is None:
        known = report["modes"][gate.mode] | whole
    elif gate.mode != main_mode:
        raise UsageError(f"gate '{gate.text}': kinds are measured in mode {main_mode} only")
    else:
        known = report["kinds"].get(gate.kind, dict.fromkeys(report["modes"][gate.mode]))
    if gate.measure not in known:
        raise UsageError(
            f"gate '{gate.text}': there is no measure '{gate.measure}'", f"{', '.join(known)}"
        )
    value = known[gate.measure]
    return {"gate": gate.text, "value": value, "verdict": judge(gate, value)}


def _text(report: Mapping[str, Any], main_mode: str) -> str:
    rows = {
        **report["modes"],
        **{f"  {kind} ({found['questions']})": found for kind, found in report["kinds"].items()},
    }
    columns = list(next(iter(report["modes"].values())))
    width = max(len(name) for name in rows) + 1
    about = (
        f"{report['questions']} questions, {report['unanswerable']} of them unanswerable; "
        f"{report['embedder']}, dense weight {report['dense_weight']:.2f}"
    )
    lines = [about, "", " " * width + "  ".join(columns)]
    for name, found in rows.items():
        if name.startswith("  ") and not lines[-1].startswith("  "):
            lines.append(f"{main_mode} by kind")
        cells = (_cell(found[column], len(column)) for column in columns)
        lines.append(f"{name:<{width}}" + "  ".join(cells))
    promises = (
        f"coverage {_cell(report['coverage'])}; citations that lead back "
        f"{_cell(report['round_trip'])} of {report['citations']}; "
        f"tokens a result set {_cell(report['tokens_per_result_set'], digits=0)}"
    )
    lines += ["", promises]
    missed = report["missed"]
    if missed:
        more = f" and {len(missed) - _MISSED_SHOWN} more" if len(missed) > _MISSED_SHOWN else ""
        lines.append(f"missed by {main_mode}: {', '.join(missed[:_MISSED_SHOWN])}{more}")
    if "tuning" in report:
        lines.append(_tuning_text(report["tuning"]))
    lines += [f"open: {item}" for item in report["open"]]
    for gate in report["gates"]:
        lines.append(f"gate {gate['gate']}: {_cell(gate['value'])} {gate['verdict']}")
    return as_text(lines)


def _tuning_text(tuning: Mapping[str, Any]) -> str:
    found = Tuning(**tuning)
    gain = found.held_out - found.present
    advice = (
        f"set dense_weight = {found.weight:.2f}"
        if gain > 0 and found.weight != found.present_weight
        else f"keep {found.present_weight:.2f}"
    )
    return (
        f"tuning: {found.measure} is best at dense weight {found.weight:.2f} "
        f"({found.by_weight[found.weight]:.3f}); weights chosen on other questions give "
        f"{found.held_out:.3f}, the present {found.present_weight:.2f} gives {found.present:.3f}: "
        f"{advice}"
    )


def _cell(value: float | None, width: int = 0, digits: int = 3) -> str:
    text = "–" if value is None else f"{value:.{digits}f}"
    return f"{text:>{width}}"
