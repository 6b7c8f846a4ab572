"""The text index of a view: which chunks hold which terms, and how well they match (FTS5, BM25)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence

_CHUNK_TEXT = (
    "coalesce(c.text, (SELECT f.text FROM chunk f WHERE f.document = c.document AND f.ordinal = 0))"
)
"""The text of the chunk ``c``: that of metadata in several pieces stands with the first alone."""


class WordIndex:
    """The text index in an open database. Strings are FTS5 queries of our own terms."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def n_chunks_with(self, string: str) -> int:
        """Return how many chunks match an FTS5 string."""
        found = self._db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (string,))
        return int(found.fetchone()[0])

    def bm25(
        self,
        strings: Sequence[str],
        weights: Sequence[float],
        n_most: int,
        documents: Collection[int] | None = None,
        chunks: Collection[int] | None = None,
    ) -> dict[int, float | None]:
        """Return the BM25 of the ``n_most`` best chunks that match any of ``strings``, by id.

        ``weights`` are those of title, heading, text, beside and accented. ``documents`` and
        ``chunks`` restrict the search before ranking. A score that is no number is ``None``.
        """
        found = self._db.execute(
            # Only numbers of ours are put into the text.
            "SELECT words.rowid, -bm25(words, ?, ?, ?, ?, ?) AS score FROM words "
            + ("JOIN chunk ON chunk.id = words.rowid " if documents is not None else "")
            + "WHERE words MATCH ? "
            + (f"AND chunk.document IN ({_numbers(documents)}) " if documents is not None else "")
            + (f"AND words.rowid IN ({_numbers(chunks)}) " if chunks is not None else "")
            + "ORDER BY score DESC LIMIT ?",
            (*weights, " OR ".join(strings), n_most),
        )
        return dict(found.fetchall())

    def texts_of(self, strings: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield (chunk id, title, heading and text) of every chunk that matches any string."""
        found = self._db.execute(
            f"SELECT c.id, d.title, c.heading, {_CHUNK_TEXT} FROM words w"
            " JOIN chunk c ON c.id = w.rowid"
            " JOIN document d ON d.id = c.document WHERE words MATCH ?",
            (" OR ".join(strings),),
        )
        for chunk, *texts in found:
            yield chunk, tuple(text for text in texts if text)


def _numbers(ids: Collection[int]) -> str:
    return ",".join(map(str, sorted(ids)))
