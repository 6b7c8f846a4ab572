"""``kbindex eval``: how well a question file's answers are found, mode by mode."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbindex.core.errors import ExitCode, UsageError
from kbindex.core.text import as_text
from kbindex.evaluation.metrics import Tuning, parse_gate
from kbindex.evaluation.questions import read_questions
from kbindex.evaluation.report import EvalOptions, judge_gate, make_report
from kbindex.evaluation.runner import MODES
from kbindex.output.console import put
from kbindex.output.formats import Format
from kbindex.output.progress import progress_on
from kbindex.output.render import to_json
from kbindex.repo.repository import open_repository
from kbindex.view.open import use_view

_MISSED_SHOWN = 20


def evaluate(directory: Path | None, file: Path, options: EvalOptions, form: Format) -> ExitCode:
    """Print the measures of the question file; return 1 if a gate isn't kept."""
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown or not options.modes:
        raise UsageError(f"there is no mode '{', '.join(unknown)}'", f"modes: {', '.join(MODES)}")
    questions = read_questions(file)
    main_mode = options.main_mode
    gates = [parse_gate(text, options.modes, main_mode) for text in options.gates]
    repository = open_repository(directory)
    with progress_on(sys.stderr) as show:
        report = use_view(
            repository,
            lambda view: make_report(repository, view, questions, file.name, options, show),
        )
    report["gates"] = [judge_gate(gate, report, main_mode) for gate in gates]
    put(to_json(report) if form == Format.JSON else _text(report, main_mode))
    is_kept = all(gate["verdict"] == "pass" for gate in report["gates"])
    return ExitCode.OK if is_kept else ExitCode.NEGATIVE


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
