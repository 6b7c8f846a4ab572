"""Words → terms of the text index: what is stored for a passage, and what a query looks up. Pure.

A passage is stored as stems in its document's language; a query doesn't know in which language its
answer is written and looks for the stems in every language of the bundle.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbindex.analysis.language import stem, telling_words
from kbindex.analysis.tokenizer import Words, fold, read_query, read_words

MOST_TERMS = 64
"""Most terms of one query that are looked up; more cost more than they tell."""


@dataclass(frozen=True, slots=True)
class StoredTerms:
    """The terms of one text, ready for a tokenizer that only splits at spaces."""

    stems: str
    beside: str
    """Parts of names and names in one piece, pairs of characters, stems without the accents."""
    accented: str
    """The words that have accents, with them: to prefer what was written exactly so."""


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a query asks for, as FTS5 strings of which any will do."""

    alternatives: tuple[str, ...]
    accented: str | None = None
    """The FTS5 string of the word with its accents, which counts a bit more, or None."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms and phrases that a query looks up."""

    terms: tuple[Term, ...]
    phrases: tuple[tuple[str, Term], ...]
    """Quoted phrases, each with the term that catches every passage that may hold it."""
    n_left_out: int = 0
    """The number of terms beyond ``MOST_TERMS``, which are not looked up."""


def stored_terms(text: str, language: str | None) -> StoredTerms:
    """Return the terms to store for ``text`` in ``language``."""
    words = read_words(text)
    accented = [word for word in words.inline if not word.isascii() and word != fold(word)]
    beside = [stem(word, language) for word in words.beside]
    beside += (
        bare for word in accented if (bare := stem(fold(word), language)) != stem(word, language)
    )
    return StoredTerms(
        " ".join(stem(word, language) for word in words.inline),
        " ".join([*beside, *words.pairs]),
        " ".join(accented),
    )


def query_terms(query: str, languages: Collection[str]) -> Terms:
    """Return the terms of ``query`` against documents in ``languages`` and in unknown ones."""
    asked = read_query(query)
    words = telling_words(asked.words, languages)
    if not (words or asked.compounds or asked.pairs):
        words = list(asked.words)
    terms = [_term((word,), languages) for word in words]
    terms += [_term(parts, languages) for parts in asked.compounds]
    terms += [Term((f'"{pair}" *' if len(pair) == 1 else f'"{pair}"',)) for pair in asked.pairs]
    phrases = [(phrase, _net(read_words(phrase), languages)) for phrase in asked.phrases]
    n_left_out = max(len(terms) - MOST_TERMS, 0)
    return Terms(tuple(terms[:MOST_TERMS]), tuple(phrases), n_left_out)


def _term(words: Sequence[str], languages: Collection[str]) -> Term:
    stems = [[stem(word, language) for word in words] for language in (*sorted(languages), None)]
    accented = words[0] if len(words) == 1 and words[0] != fold(words[0]) else None
    return Term(_strings(stems), None if accented is None else f'"{accented}"')


def _net(words: Words, languages: Collection[str]) -> Term:
    stems = [
        [stem(word, language) for word in words.inline] for language in (*sorted(languages), None)
    ]
    strings = _strings(stems) if words.inline else ()
    return Term(strings or tuple(f'"{pair}" *' for pair in words.pairs[:1]))


def _strings(stems: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f'"{" ".join(words)}"' for words in stems))
