"""The lexical half: a query's words → BM25 over the view's chunks, as shares of the possible."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from kbindex.analysis.analyzer import Term, Terms
from kbindex.analysis.tokenizer import phrase_pattern
from kbindex.search.fusion import DEPTH
from kbindex.view.database import DamagedView
from kbindex.view.words import WordIndex

_WEIGHTS = (2.0, 2.0, 1.0, 1.0, 0.1)
"""The BM25 weights of title, heading, text, beside and accented; the first two may be 1 to 3."""
_K1 = 1.2
"""FTS5's constant."""


def search_words(
    words: WordIndex,
    terms: Terms,
    n_chunks: int,
    documents: Collection[int] | None,
    chunks: Collection[int] | None,
) -> dict[int, float]:
    """Return chunk id → BM25 / attainable BM25, 0–1, for at most 2·DEPTH chunks.

    ``documents`` and ``chunks`` restrict the search before ranking. Raises DamagedView.
    """
    counts = {
        term: [words.n_chunks_with(string) for string in term.alternatives] for term in terms.terms
    }
    known = [term for term in terms.terms if any(counts[term])]
    # A word of most chunks says nothing and makes SQLite score nearly all of them.
    telling = [term for term in known if max(counts[term]) <= n_chunks / 2] or known
    if not telling:
        return {}
    attainable = (_K1 + 1) * sum(_idf(n_chunks, max(counts[term])) for term in terms.terms)
    strings = [
        string
        for term in telling
        for string, n in zip(term.alternatives, counts[term], strict=True)
        if n
    ]
    strings += [term.accented for term in telling if term.accented]
    shares = {}
    for chunk, score in words.bm25(strings, _WEIGHTS, 2 * DEPTH, documents, chunks).items():
        if score is None or not math.isfinite(score):
            raise DamagedView("a passage's words have no score")  # SQLite has NULL for NaN
        shares[chunk] = min(max(score, 0.0) / attainable, 1.0)
    return shares


def chunks_with_phrases(words: WordIndex, terms: Terms) -> tuple[set[int], list[str]]:
    """Return the chunks with most of the phrases, and the phrases that not all of these have."""
    found = {phrase: _chunks_with_phrase(words, phrase, net) for phrase, net in terms.phrases}
    counts = Counter(chunk for chunks in found.values() for chunk in chunks)
    most = max(counts.values(), default=0)
    held = {chunk for chunk, n in counts.items() if n == most}
    return held, [phrase for phrase, chunks in found.items() if not held or not held <= chunks]


def _chunks_with_phrase(words: WordIndex, phrase: str, net: Term) -> set[int]:
    pattern = phrase_pattern(phrase)
    return {
        chunk
        for chunk, texts in words.texts_of(net.alternatives)
        if any(pattern.search(text.lower()) for text in texts)
    }


def _idf(n_chunks: int, n_with: int) -> float:
    # FTS5's own formula and floor, except that a word that is nowhere counts as the rarest.
    n_with = max(n_with, 1)
    return max(math.log((n_chunks - n_with + 0.5) / (n_with + 0.5)), 1e-6)
