"""The lexical half: a query's words → BM25 over the view's chunks, as shares of the possible."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection

from kbindex.fuse import DEPTH

_WORD = re.compile(r"\w+")
_MOST_WORDS = 64
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]+"
)
"""Runs of scripts that put no space between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
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
    words = _terms(query)
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


def character_pairs(text: str) -> str:
    """Return the pairs of neighbouring characters in text without spaces, as words to index."""
    runs = _UNSPACED.findall(text)
    return " ".join(pair for run in runs for pair in _pairs(run))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]


def _terms(query: str) -> list[str]:
    """Return the query's words as FTS5 terms, each once."""
    query = query.lower()
    words = [f'"{word}"' for word in _WORD.findall(_UNSPACED.sub(" ", query))]
    for run in _UNSPACED.findall(query):
        # A pair is a word of its own in the index; a single character begins some.
        words += [f'"{run}" *'] if len(run) == 1 else [f'"{pair}"' for pair in _pairs(run)]
    return list(dict.fromkeys(words))[:_MOST_WORDS]


def _n_chunks_with(db: sqlite3.Connection, term: str) -> int:
    found = db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (term,))
    return int(found.fetchone()[0])


def _idf(n_chunks: int, n_with: int) -> float:
    # FTS5's own formula and floor, except that a word that is nowhere counts as the rarest.
    n_with = max(n_with, 1)
    return max(math.log((n_chunks - n_with + 0.5) / (n_with + 0.5)), 1e-6)


def _numbers(documents: Collection[int]) -> str:
    return ",".join(map(str, sorted(documents)))
