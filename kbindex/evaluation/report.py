"""The report of an evaluation: measures by mode and kind, promises, gates, and what stays open.

Not here: how it is printed, and which exit code it gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from kbindex.core.errors import UsageError
from kbindex.document.tokens import count_tokens
from kbindex.embed import HASH, Embedder
from kbindex.evaluation.metrics import Gate, Judged, Ranking, judge, measures, tune
from kbindex.evaluation.questions import Question
from kbindex.evaluation.runner import (
    DENSE,
    DOCUMENT,
    HYBRID,
    LEXICAL,
    RRF,
    Asked,
    Bench,
    QuestionVectors,
    embed_questions,
    rrf,
)
from kbindex.output.render import hit_json, to_json
from kbindex.repo.repository import Repository
from kbindex.search.query import query_embedder, weight_of
from kbindex.view.database import View
from kbindex.view.open import uncovered_documents, view_recipe

_WEIGHTS = tuple(step / 20 for step in range(21))

Show = Callable[[int, int], None]
"""Shows progress: (done, total)."""


@dataclass(frozen=True)
class EvalOptions:
    """The options of one evaluation."""

    modes: tuple[str, ...] = (LEXICAL, DENSE, HYBRID)
    k: int = 5
    """The hits that recall, section and span are measured on."""
    gates: tuple[str, ...] = ()
    tune: bool = False

    @property
    def main_mode(self) -> str:
        """The mode whose kinds, citations and misses are reported."""
        return HYBRID if HYBRID in self.modes else self.modes[0]


class _Questioning:
    """Asks every question in each mode once."""

    def __init__(
        self,
        bench: Bench,
        questions: Sequence[Question],
        embedder: Embedder | None,
        weight: float,
        k: int,
    ) -> None:
        self._bench, self._questions, self._embedder = bench, questions, embedder
        self._vectors: QuestionVectors = embed_questions(embedder, questions)
        self.weight, self._k = weight, k
        self.asked: dict[str, Asked] = {}

    def rankings(self, mode: str, show: Show) -> Mapping[str, Ranking]:
        """Return the ranking of each question in ``mode``, by question id."""
        if mode == RRF:
            return rrf(self._ask(LEXICAL), self._ask(DENSE))
        if mode == DOCUMENT:
            assert self._embedder is not None
            return self._bench.ask_documents(self._questions, self._embedder, self._vectors, show)
        return self._ask(mode).rankings

    def rankings_at(self, weight: float) -> Mapping[str, Ranking]:
        """Return the hybrid rankings with another weight of the dense half."""
        asked = self._bench.ask(HYBRID, self._questions, self._vectors, weight, self._k)
        return asked.rankings

    def _ask(self, mode: str) -> Asked:
        if mode not in self.asked:
            vectors, weight = self._vectors, self.weight
            self.asked[mode] = self._bench.ask(mode, self._questions, vectors, weight, self._k)
        return self.asked[mode]


def make_report(
    repository: Repository,
    view: View,
    questions: Sequence[Question],
    name: str,
    options: EvalOptions,
    show: Show,
) -> dict[str, Any]:
    """Return the report in the schema of ``--format json``, without gates.

    ``name`` is that of the question file, for messages. Raises UsageError for a question whose
    target is not there, RecipeError and NoEmbedderError.
    """
    bench = Bench(repository, view)
    judged = bench.judged(questions, name)
    recipe = view_recipe(view, repository.config)
    needs_meaning = options.tune or {*options.modes} - {LEXICAL}
    embedder = query_embedder(repository, recipe) if needs_meaning else None
    weight = weight_of(repository, embedder)
    asking = _Questioning(bench, questions, embedder, weight, options.k)
    rankings = {mode: asking.rankings(mode, show) for mode in options.modes}
    main = rankings[options.main_mode]
    report: dict[str, Any] = {
        "questions": len(judged),
        "unanswerable": sum(not question.targets for question in judged),
        "embedder": recipe.embedder.name,
        "dense_weight": weight,
        "modes": {mode: _measures(judged, mode, rankings[mode], options.k) for mode in rankings},
        "kinds": _kinds(judged, main, options.k),
        "coverage": bench.coverage(),
        **_citations(bench, asking.asked.get(options.main_mode)),
        "missed": _missed(judged, main, options.k),
        "open": _open_items(view, judged, recipe.embedder.provider, options.main_mode),
    }
    if options.tune:
        report["tuning"] = asdict(tune(judged, asking.rankings_at, weight, _WEIGHTS))
    return report


def _citations(bench: Bench, asked: Asked | None) -> dict[str, Any]:
    """Return how many hits are cited, how many lead back to their text, and their tokens."""
    hits = asked.hits if asked else {}
    cited = [hit for found in hits.values() for hit in found]
    return {
        "citations": len(cited),
        "round_trip": fmean(map(bench.leads_back, cited)) if cited else None,
        "tokens_per_result_set": fmean(map(_n_tokens, hits.values())) if hits else None,
    }


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


def judge_gate(gate: Gate, report: Mapping[str, Any], main_mode: str) -> dict[str, Any]:
    """Return a gate with its value and verdict. Raises UsageError if nothing is measured so."""
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
