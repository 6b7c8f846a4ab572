"""Asks a question file of the view: rankings in each mode, and whether citations lead back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import UsageError
from kbindex.core.model import Hit
from kbindex.document.markdown import decode
from kbindex.document.tokens import token_starts
from kbindex.embed import Embedder
from kbindex.evaluation.metrics import CitedSpan, Judged, Ranking, Target, fuse_ranks
from kbindex.evaluation.questions import Question, Wanted, locate
from kbindex.repo.repository import Repository
from kbindex.search.hybrid import search
from kbindex.search.query import embed_query
from kbindex.search.request import QueryOptions, Request
from kbindex.view.database import View
from kbindex.view.lookup import find_section, look_up
from kbindex.view.records import DocumentRecord

LEXICAL, DENSE, HYBRID, RRF, DOCUMENT = "lexical", "dense", "hybrid", "rrf", "document"
MODES = (LEXICAL, DENSE, HYBRID, RRF, DOCUMENT)
"""The last two are there to compare with: rank fusion, and a vector of each document's beginning
without chunks."""
_ALL = 1 << 30
_DEPTH = 200
"""Passages that are looked at; enough for ten documents."""
QuestionVectors = Mapping[str, NDArray[np.float32]]
"""The vectors ``(dimension,)`` of questions, by their ids."""


@dataclass(frozen=True)
class Asked:
    """The results of one mode: rankings by question id, and hits as a query would show them."""

    rankings: Mapping[str, Ranking]
    hits: Mapping[str, Sequence[Hit]]


class Bench:
    """A view, its texts, and an embedder, ready to be asked."""

    def __init__(self, repository: Repository, view: View) -> None:
        self._repository, self._view = repository, view
        self.text = cache(self._text)

    def _text(self, blob: str) -> str:
        return decode(self._repository.git.objects.read_blob(blob))

    def judged(self, questions: Sequence[Question], name: str) -> list[Judged]:
        """Return the questions with their targets found. Raises UsageError if one is not there."""
        return [
            self._judged(question, f"{name}: question '{question.id}'") for question in questions
        ]

    def _judged(self, question: Question, where: str) -> Judged:
        targets = tuple(self._target(wanted, where) for wanted in question.relevant)
        answering = frozenset(
            passage for target in targets if target.span for passage in self._overlapping(target)
        )
        return Judged(question.id, question.kind, targets, answering)

    def _target(self, wanted: Wanted, where: str) -> Target:
        document = look_up(self._view, self._repository.config, wanted.id)
        if document is None:
            raise UsageError(f"{where} names '{wanted.id}', which is not indexed")
        text = self.text(document.blob)
        try:
            span = locate(wanted, text)
        except ValueError as error:
            raise UsageError(f"{where} names '{wanted.id}', but {error}") from None
        section = None
        if wanted.section is not None:
            try:
                found = find_section(text, document, wanted.section, wanted.id)
            except UsageError as error:
                raise UsageError(f"{where}: {error.message}", error.remedy) from None
            section = (found.char_start, found.char_end)
        return Target(document.path, section, span)

    def _overlapping(self, target: Target) -> Iterator[CitedSpan]:
        assert target.span is not None
        start, end = target.span
        document = look_up(self._view, self._repository.config, target.path)
        assert document is not None
        for first, last in self._view.spans(document.path):
            if first < end and start < last:
                yield CitedSpan(document.path, first, last)

    def ask(
        self,
        mode: str,
        questions: Sequence[Question],
        vectors: QuestionVectors,
        weight: float,
        k: int,
    ) -> Asked:
        """Ask every question in ``mode``: lexical, dense or hybrid."""
        rankings, hits = {}, {}
        for question in questions:
            request = Request(
                question.query,
                None if mode == LEXICAL else vectors[question.id],
                {LEXICAL: 0.0, DENSE: 1.0}.get(mode, weight),
                with_words=mode != DENSE,
                options=QueryOptions(n_hits=_DEPTH, per_document=_ALL, with_text=True),
            )
            found = search(self._view, self._repository.config, request).hits
            rankings[question.id] = Ranking(
                tuple(CitedSpan(hit.path, hit.char_start, hit.char_end) for hit in found),
                found[0].score if found else 0.0,
            )
            hits[question.id] = _one_a_document(found)[:k]
        return Asked(rankings, hits)

    def ask_documents(
        self,
        questions: Sequence[Question],
        embedder: Embedder,
        vectors: QuestionVectors,
        show: Callable[[int, int], None],
    ) -> dict[str, Ranking]:
        """Rank whole documents by a vector of their beginning, as an index without chunks does."""
        documents = list(self._documents())
        passages, rows = [], []
        for number, document in enumerate(documents, start=1):
            end, shown = _beginning(document.title or "", self.text(document.blob), embedder)
            if end:
                passages.append(CitedSpan(document.path, 0, end))
                rows.append(embedder.embed_documents([shown])[0])
            show(number, len(documents))
        matrix = np.stack(rows)
        found = {}
        for question in questions:
            similarities = matrix @ vectors[question.id]
            order = np.argsort(-similarities, kind="stable")[:_DEPTH]
            found[question.id] = Ranking(
                tuple(passages[index] for index in order), float(similarities[order[0]])
            )
        return found

    def _documents(self) -> Iterator[DocumentRecord]:
        for path in self._view.paths():
            document = self._view.document(path)
            assert document is not None
            yield document

    def coverage(self) -> float:
        """Return the share of the documents' text inside passages with a vector, 0–1.

        A heading right above another counts: the passages below it carry its words.
        """
        seen = total = 0
        for document in self._documents():
            text, path = self.text(document.blob), document.path
            held = np.zeros(len(text), bool)
            for heading in document.headings:
                start = heading.char_start
                held[start : text.find("\n", start) % (len(text) + 1)] = True
            for first, last in self._view.spans(path):
                held[first:last] = False
            for first, last in self._view.spans(path, with_vector=True):
                held[first:last] = True
            is_text = np.array([not c.isspace() for c in text], bool)
            seen, total = seen + int((held & is_text).sum()), total + int(is_text.sum())
        return seen / total if total else 1.0

    def leads_back(self, hit: Hit) -> bool:
        """Whether the hit's span and section, read from its blob, give the text that matched."""
        text = self.text(hit.blob)
        if text[hit.char_start : hit.char_end] != hit.text:
            return False
        if hit.anchor is None:
            return True
        document = look_up(self._view, self._repository.config, hit.path)
        assert document is not None
        section = find_section(text, document, hit.anchor)
        return section.char_start <= hit.char_start and hit.char_end <= section.char_end


def embed_questions(embedder: Embedder | None, questions: Sequence[Question]) -> QuestionVectors:
    """Return the vectors of the questions by id, none without an embedder."""
    if embedder is None:
        return {}
    return {question.id: embed_query(embedder, question.query) for question in questions}


def rrf(lexical: Asked, dense: Asked) -> dict[str, Ranking]:
    """Return the rank fusion of two modes, 100 passages of each."""
    found = {}
    for name, ranking in lexical.rankings.items():
        other = dense.rankings[name]
        found[name] = Ranking(fuse_ranks(ranking.passages[:100], other.passages[:100]))
    return found


def _one_a_document(hits: Sequence[Hit]) -> list[Hit]:
    kept: dict[str, Hit] = {}
    for hit in hits:
        kept.setdefault(hit.path, replace(hit, rank=len(kept) + 1))
    return list(kept.values())


def _beginning(title: str, text: str, embedder: Embedder) -> tuple[int, str]:
    """Return how much of ``text`` the embedder takes at once, and that with the title."""
    starts = [*token_starts(text), len(text)]
    low, high = 0, min(len(starts) - 1, embedder.max_tokens)
    while low < high:
        middle = (low + high + 1) // 2
        shown = f"{title}\n\n{text[: starts[middle]]}"
        if embedder.count_tokens(shown) <= embedder.max_tokens:
            low = middle
        else:
            high = middle - 1
    end = int(starts[low])
    return end, f"{title}\n\n{text[:end]}"
