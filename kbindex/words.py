"""Text → words: what the lexical half indexes beside the text, and what it asks for.

SQLite's unicode61 tokenizer finds words between spaces and folds case and accents. Scripts without
spaces get the pairs of neighbouring characters as words of their own.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
MOST_TERMS = 64
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]+"
)
"""Runs of scripts that put no space between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def character_pairs(text: str) -> str:
    """Return the pairs of neighbouring characters in text without spaces, as words to index."""
    runs = _UNSPACED.findall(text)
    return " ".join(pair for run in runs for pair in _pairs(run))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]


def query_terms(query: str) -> list[str]:
    """Return the query's words as FTS5 terms, each once."""
    query = query.lower()
    words = [f'"{word}"' for word in _WORD.findall(_UNSPACED.sub(" ", query))]
    for run in _UNSPACED.findall(query):
        # A pair is a word of its own in the index; a single character begins some.
        words += [f'"{run}" *'] if len(run) == 1 else [f'"{pair}"' for pair in _pairs(run)]
    return list(dict.fromkeys(words))[:MOST_TERMS]
