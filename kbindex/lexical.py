"""The lexical half: a query's words → BM25 over the view's chunks, as shares of the possible."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection

from kbindex.fuse import DEPTH
from kbindex.words import query_terms

_WEIGHTS = (2.0, 2.0, 1.0, 1.0)
"""Of title, heading, text and pairs in BM25."""
_K1 = 1.2
"""FTS5's constant."""


def search_words(
    db: sqlite3.Connection, query: str, documents: Collection[int] | None
) -> dict[int, float]:
    """Return up to 200 chunk ids with BM25 divided by what the query's words could reach.

    ``documents`` restricts the search before ranking. Any string is a valid query.
    """
    words = query_terms(query)
    n_chunks = db.execute("SELECT count(*) FROM chunk").fetchone()[0]
    if not words or not n_chunks:
        return {}
    counts = {word: _n_chunks_with(db, word) for word in words}
    known = [word for word in words if counts[word]]
    # A word of most chunks says nothing and makes SQLite score nearly all of them.
    telling = [word for word in known if counts[word] <= n_chunks / 2] or known
    if not telling:
        return {}
    possible = (_K1 + 1) * sum(_idf(n_chunks, counts[word]) for word in words)
    match = " OR ".join(telling)
    found = db.execute(
        # Only numbers of ours are put into the text.
        "SELECT words.rowid, -bm25(words, ?, ?, ?, ?) AS score FROM words "
        + ("JOIN chunk ON chunk.id = words.rowid " if documents is not None else "")
        + "WHERE words MATCH ? "
        + (f"AND chunk.document IN ({_numbers(documents)}) " if documents is not None else "")
        + "ORDER BY score DESC LIMIT ?",
        (*_WEIGHTS, match, 2 * DEPTH),
    )
    return {chunk: max(score, 0.0) / possible for chunk, score in found}


def _n_chunks_with(db: sqlite3.Connection, term: str) -> int:
    found = db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (term,))
    return int(found.fetchone()[0])


def _idf(n_chunks: int, n_with: int) -> float:
    # FTS5's own formula and floor, except that a word that is nowhere counts as the rarest.
    n_with = max(n_with, 1)
    return max(math.log((n_chunks - n_with + 0.5) / (n_with + 0.5)), 1e-6)


def _numbers(documents: Collection[int]) -> str:
    return ",".join(map(str, sorted(documents)))
