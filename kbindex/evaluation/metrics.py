"""Rankings and what was wanted → retrieval measures, gates, and the best weight of a half.

Recall, success, reciprocal rank and nDCG are ir_measures' (trec_eval's). Documents are judged as
people see them, one hit each; sections and spans by the passages that won, however many of a
document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from kbindex.core.errors import UsageError

RRF_K = 60
"""Cormack et al. 2009."""
FOLDS = 5


class CitedSpan(NamedTuple):
    """What a hit cites, or an answer holds: a span of a document, in code points."""

    path: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Target:
    """A relevant document, with the (char_start, char_end) of what answers in it, if known."""

    path: str
    section: tuple[int, int] | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A question with its targets, and the passages that hold a part of an answer."""

    id: str
    kind: str | None
    targets: tuple[Target, ...]
    answering: frozenset[CitedSpan] = frozenset()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The passages that one mode found for a question, best first, and the first one's score."""

    passages: tuple[CitedSpan, ...]
    top_score: float = 0.0

    @property
    def documents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(passage.path for passage in self.passages))


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound that a measure has to keep."""

    text: str
    mode: str
    kind: str | None
    measure: str
    is_upper: bool
    bound: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of cross-validating the dense weight."""

    measure: str
    weight: float
    """The best on all questions."""
    held_out: float
    """The measure on questions that had no part in choosing the weight, averaged over folds."""
    present_weight: float
    present: float
    by_weight: Mapping[float, float] = field(default_factory=dict)


def measures(
    questions: Sequence[Judged], rankings: Mapping[str, Ranking], k: int
) -> dict[str, float | None]:
    """Return each measure's mean over the questions that it applies to, ``None`` over none."""
    answered = [question for question in questions if question.targets]
    by_document = _standard(
        {q.id: {target.path: 1 for target in q.targets} for q in answered},
        {q.id: rankings[q.id].documents for q in answered},
        k,
    )
    spanned = [question for question in answered if question.answering]
    by_passage = _standard(
        {q.id: {_name(passage): 1 for passage in q.answering} for q in spanned},
        {q.id: [_name(passage) for passage in rankings[q.id].passages] for q in spanned},
        k,
    )
    return {
        **by_document,
        f"section-hit@{k}": _mean(_section_hit(q, rankings[q.id].passages[:k]) for q in answered),
        f"span-hit@{k}": _mean(_span_hit(q, rankings[q.id].passages[:k]) for q in answered),
        "span-ndcg@10": by_passage["ndcg@10"],
        "separation": _separation(questions, rankings),
    }


def fuse_ranks(*rankings: Sequence[CitedSpan]) -> tuple[CitedSpan, ...]:
    """Return the reciprocal rank fusion of rankings: the baseline that fusion is held against."""
    scores: dict[CitedSpan, float] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, start=1):
            scores[passage] = scores.get(passage, 0.0) + 1 / (RRF_K + rank)
    return tuple(sorted(scores, key=lambda passage: (-scores[passage], passage)))


def parse_gate(text: str, modes: Sequence[str], default_mode: str) -> Gate:
    """Read ``[MODE:][KIND/]MEASURE>=X`` or ``<=``. Raises UsageError."""
    found = re.fullmatch(r"(?:(\w+):)?(?:([^/]+)/)?([\w@-]+)\s*(>=|<=)\s*(\d*\.?\d+)", text.strip())
    if not found:
        raise UsageError(f"'{text}' is not a gate", "e.g. --gate 'ndcg@10>=0.8'")
    mode, kind, measure, relation, bound = found.groups()
    if mode is not None and mode not in modes:
        raise UsageError(f"gate '{text}': mode '{mode}' is not among {', '.join(modes)}")
    return Gate(text, mode or default_mode, kind, measure, relation == "<=", float(bound))


def judge(gate: Gate, value: float | None) -> str:
    """Return ``pass``, ``fail``, or ``unfalsifiable`` where no question could make it fail."""
    if value is None:
        return "unfalsifiable"
    return "pass" if (value <= gate.bound if gate.is_upper else value >= gate.bound) else "fail"


def tune(
    questions: Sequence[Judged],
    rank: Callable[[float], Mapping[str, Ranking]],
    present_weight: float,
    weights: Sequence[float],
) -> Tuning:
    """Find the dense weight by cross-validation: the folds are every fifth question."""
    answered = [question for question in questions if question.targets]
    if len(answered) < 2 * FOLDS:
        raise UsageError(f"{len(answered)} answered questions are too few to tune on")
    measure = "span-ndcg@10" if any(q.answering for q in answered) else "ndcg@10"
    rankings = {weight: rank(weight) for weight in sorted({*weights, present_weight})}

    def score(weight: float, part: Sequence[Judged]) -> float:
        return measures(part, rankings[weight], 5)[measure] or 0.0

    folds = [answered[start::FOLDS] for start in range(FOLDS)]
    held_out = []
    for fold in folds:
        rest = [question for question in answered if question not in fold]
        chosen = max(weights, key=lambda weight: score(weight, rest))
        held_out.append(score(chosen, fold))
    by_weight = {weight: score(weight, answered) for weight in weights}
    return Tuning(
        measure=measure,
        weight=max(by_weight, key=lambda weight: by_weight[weight]),
        held_out=fmean(held_out),
        present_weight=present_weight,
        present=score(present_weight, answered),
        by_weight=by_weight,
    )


def _standard(
    relevant: Mapping[str, Mapping[str, int]], found: Mapping[str, Sequence[str]], k: int
) -> dict[str, float | None]:
    import ir_measures
    from ir_measures import RR, R, Success, nDCG

    wanted = {
        f"recall@{k}": R @ k,
        f"success@{k}": Success @ k,
        "mrr@10": RR @ 10,
        "ndcg@10": nDCG @ 10,
    }
    if not relevant:
        return dict.fromkeys(wanted)
    # trec_eval orders by score; ours is the rank, so that ties stay as we broke them.
    run = {
        question: {document: -float(rank) for rank, document in enumerate(ranking)}
        for question, ranking in found.items()
    }
    means = ir_measures.calc_aggregate(
        list(wanted.values()), {q: dict(r) for q, r in relevant.items()}, run
    )
    return {name: float(means[measure]) for name, measure in wanted.items()}


def _name(passage: CitedSpan) -> str:
    return f"{passage.path}:{passage.char_start}:{passage.char_end}"


def _mean(values: Iterable[bool | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None


def _section_hit(question: Judged, passages: Sequence[CitedSpan]) -> bool | None:
    wanted = [CitedSpan(t.path, *t.section) for t in question.targets if t.section is not None]
    return _is_inside(passages, wanted) if wanted else None


def _span_hit(question: Judged, passages: Sequence[CitedSpan]) -> bool | None:
    wanted = [CitedSpan(t.path, *t.span) for t in question.targets if t.span is not None]
    if not wanted:
        return None
    return any(_is_inside([answer], passages) for answer in wanted)


def _is_inside(inner: Sequence[CitedSpan], outer: Sequence[CitedSpan]) -> bool:
    return any(
        path == other and first <= start and end <= last
        for path, start, end in inner
        for other, first, last in outer
    )


def _separation(questions: Sequence[Judged], rankings: Mapping[str, Ranking]) -> float | None:
    """Return how often an answerable question's best hit scores above an unanswerable one's."""
    answerable = [rankings[q.id].top_score for q in questions if q.targets]
    unanswerable = [rankings[q.id].top_score for q in questions if not q.targets]
    if not answerable or not unanswerable:
        return None
    return fmean(
        1.0 if high > low else 0.5 if high == low else 0.0
        for high in answerable
        for low in unanswerable
    )
