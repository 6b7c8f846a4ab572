"""The lexical half: a query's words → BM25 over the view's chunks, as shares of the possible."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Collection

from kbindex.analysis.analyzer import Term, Terms
from kbindex.analysis.tokenizer import phrase_pattern
from kbindex.search.fusion import DEPTH
from kbindex.view.database import CHUNK_TEXT, DamagedView

_WEIGHTS = (2.0, 2.0, 1.0, 1.0, 0.1)
"""Of title, heading, text, beside and accented in BM25; the first two may be 1 to 3."""
_K1 = 1.2
"""FTS5's constant."""


def search_words(
    db: sqlite3.Connection,
    terms: Terms,
    n_chunks: int,
    documents: Collection[int] | None,
    chunks: Collection[int] | None,
) -> dict[int, float]:
    """Return up to 200 chunk ids with BM25 divided by what the query's words could reach.

    ``documents`` and ``chunks`` restrict the search before ranking.
    """
    counts = {
        term: [_n_chunks_with(db, string) for string in term.alternatives] for term in terms.terms
    }
    known = [term for term in terms.terms if any(counts[term])]
    # A word of most chunks says nothing and makes SQLite score nearly all of them.
    telling = [term for term in known if max(counts[term]) <= n_chunks / 2] or known
    if not telling:
        return {}
    possible = (_K1 + 1) * sum(_idf(n_chunks, max(counts[term])) for term in terms.terms)
    strings = [
        string
        for term in telling
        for string, n in zip(term.alternatives, counts[term], strict=True)
        if n
    ]
    strings += [term.accented for term in telling if term.accented]
    found = db.execute(
        # Only numbers of ours are put into the text.
        "SELECT words.rowid, -bm25(words, ?, ?, ?, ?, ?) AS score FROM words "
        + ("JOIN chunk ON chunk.id = words.rowid " if documents is not None else "")
        + "WHERE words MATCH ? "
        + (f"AND chunk.document IN ({_numbers(documents)}) " if documents is not None else "")
        + (f"AND words.rowid IN ({_numbers(chunks)}) " if chunks is not None else "")
        + "ORDER BY score DESC LIMIT ?",
        (*_WEIGHTS, " OR ".join(strings), 2 * DEPTH),
    )
    scores = dict(found)
    if not all(score is not None and math.isfinite(score) for score in scores.values()):
        raise DamagedView("a passage's words have no score")  # SQLite has NULL for NaN
    return {chunk: min(max(score, 0.0) / possible, 1.0) for chunk, score in scores.items()}


def chunks_with_phrases(db: sqlite3.Connection, terms: Terms) -> tuple[set[int], list[str]]:
    """Return the chunks with most of the phrases, and the phrases that not all of these have."""
    found = {phrase: _chunks_with_phrase(db, phrase, net) for phrase, net in terms.phrases}
    counts = Counter(chunk for chunks in found.values() for chunk in chunks)
    most = max(counts.values(), default=0)
    held = {chunk for chunk, n in counts.items() if n == most}
    return held, [phrase for phrase, chunks in found.items() if not held or not held <= chunks]


def _chunks_with_phrase(db: sqlite3.Connection, phrase: str, net: Term) -> set[int]:
    pattern = phrase_pattern(phrase)
    caught = db.execute(
        f"SELECT c.id, d.title, c.heading, {CHUNK_TEXT} FROM words w JOIN chunk c ON c.id = w.rowid"
        " JOIN document d ON d.id = c.document WHERE words MATCH ?",
        (" OR ".join(net.alternatives),),
    )
    return {
        chunk
        for chunk, *texts in caught
        if any(pattern.search(text.lower()) for text in texts if text)
    }


def _n_chunks_with(db: sqlite3.Connection, string: str) -> int:
    found = db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (string,))
    return int(found.fetchone()[0])


def _idf(n_chunks: int, n_with: int) -> float:
    # FTS5's own formula and floor, except that a word that is nowhere counts as the rarest.
    n_with = max(n_with, 1)
    return max(math.log((n_chunks - n_with + 0.5) / (n_with + 0.5)), 1e-6)


def _numbers(ids: Collection[int]) -> str:
    return ",".join(map(str, sorted(ids)))
