"""Text → words, as the lexical half counts them. Pure.

A word is a run of letters and digits, in lower case, its accents kept. What is written in one piece
but read in parts gets both: ``parse_config``, ``--no-stage``, ``1.0.21`` and ``a/b.md`` are their
parts in order, which a phrase finds again, and the first two also ``parseconfig`` and ``nostage``;
``parseConfig`` is one word and also its parts. Scripts that put no space between words (and Korean,
which joins particles) are the pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0711\u0730-\u074a\u0900-\u0963\u0966-\u0dff"
)
"""What Python's ``\\w`` leaves out of words: combining marks, and the vowels of Indic scripts."""
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese, Korean."""
_RUN = re.compile(f"[{_UNSPACED}]+")
_ENDING = r"(?:\+\+|\#(?!\w))?"
"""The signs at the end of C++ and C#."""
_PIECE = rf"[\w{_MARKS}]+{_ENDING}"
_COMPOUND = re.compile(rf"{_PIECE}(?:[-./:@\\]+{_PIECE})*")
_JOINT = re.compile(r"[-_./:@\\]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"(?<![^\W\d_])[vV](?=\d)")
_PHRASE = re.compile('"([^"]+)"|“([^”]+)”|«([^»]+)»|„([^“”]+)[“”]|「([^」]+)」')
_LONGEST_JOINED = 64
"""Characters of ``parse-config`` beyond which it is no name that anyone types in one word."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text: ``inline`` in their order, ``beside`` what else finds them."""

    inline: tuple[str, ...]
    beside: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryWords:
    """The words of a query by kind, each kind in order of first occurrence."""

    words: tuple[str, ...]
    compounds: tuple[tuple[str, ...], ...] = ()
    """Runs of words that belong together in this order: ``1.0.21`` is 1, 0, 21."""
    pairs: tuple[str, ...] = ()
    """Pairs of characters; a single character, where it stands alone."""
    phrases: tuple[str, ...] = ()
    """The texts in quotation marks, as they are written."""


def read_words(text: str) -> Words:
    """Return the words to index for ``text``."""
    text = unicodedata.normalize("NFC", text)
    inline: list[str] = []
    beside: list[str] = []
    for found in _COMPOUND.finditer(_RUN.sub(" ", text)):
        compound = found[0]
        if compound.islower() and compound.isalpha():  # nearly all: one plain word
            inline.append(compound)
            continue
        pieces = _pieces(compound)
        for piece in pieces:
            inline.append(piece.lower())
            beside += _humps(piece)
        beside += _joined(compound, pieces)
    pairs = [pair for run in _RUN.findall(text) for pair in _pairs(run)]
    return Words(tuple(inline), tuple(beside), tuple(pairs))


def read_query(query: str) -> QueryWords:
    """Return what ``query`` asks for; any string is a query, and may ask for nothing."""
    query = unicodedata.normalize("NFC", query)
    words: dict[str, None] = {}
    compounds: dict[tuple[str, ...], None] = {}
    for found in _COMPOUND.finditer(_RUN.sub(" ", query)):
        pieces = _pieces(found[0])
        parts = tuple(piece.lower() for piece in pieces)
        if len(parts) < 2:
            words |= dict.fromkeys([*parts, *(hump for piece in pieces for hump in _humps(piece))])
            continue
        is_version = parts[0] == "v" and parts[1].isdigit()
        compounds[parts[1:] if is_version and len(parts) > 2 else parts] = None
        words |= dict.fromkeys(_joined(found[0], pieces))
        words |= dict.fromkeys(part for part in parts if _says_something(part))
    pairs = dict.fromkeys(
        pair for run in _RUN.findall(query) for pair in ([run] if len(run) == 1 else _pairs(run))
    )
    phrases = ("".join(groups).strip() for groups in _PHRASE.findall(query))
    return QueryWords(
        tuple(words),
        tuple(compounds),
        tuple(pairs),
        tuple(dict.fromkeys(phrase for phrase in phrases if has_words(phrase))),
    )


def has_words(text: str) -> bool:
    """Whether there is anything in ``text`` that can be looked for."""
    return bool(re.search(r"[^\W_]", text))


def phrase_pattern(phrase: str) -> re.Pattern[str]:
    """Return a pattern of the words of ``phrase`` in this order, with any signs between them."""
    piece = rf"[{_UNSPACED}]+|(?:(?![_{_UNSPACED}])[\w{_MARKS}])+{_ENDING}"
    pieces = re.findall(piece, unicodedata.normalize("NFC", phrase).lower())
    gap = rf"[^\w{_MARKS}]*_*[^\w{_MARKS}]*"
    letter = rf"[^\W_{_UNSPACED}]"  # a phrase doesn't begin or end within a word
    before = "" if _RUN.match(pieces[0]) else f"(?<!{letter})"
    after = "" if _RUN.match(pieces[-1]) else f"(?!{letter})"
    return re.compile(f"{before}{gap.join(map(re.escape, pieces))}{after}")


def fold(word: str) -> str:
    """Return ``word`` without case, accents and other marks that people leave out."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    # Signs that make another letter (nukta, dakuten, virama: classes 7 to 9) are no accents.
    return unicodedata.normalize(
        "NFC", "".join(c for c in decomposed if unicodedata.combining(c) in (0, 7, 8, 9))
    )


def _pieces(compound: str) -> list[str]:
    found = []
    for piece in filter(None, _JOINT.split(compound)):
        is_version = _VERSION.match(piece)
        found += [piece[:1], piece[1:]] if is_version else [piece]
    return found


def _humps(piece: str) -> list[str]:
    if piece[1:].islower():
        return []
    parts = _HUMP.split(piece)
    return [part.lower() for part in parts if len(part) > 1] if len(parts) > 1 else []


def _joined(compound: str, pieces: list[str]) -> list[str]:
    joined = "".join(pieces).lower()
    is_name = len(pieces) > 1 and not set(compound) & set("./:@\\") and not joined.isdigit()
    return [joined] if is_name and len(joined) <= _LONGEST_JOINED else []


def _says_something(part: str) -> bool:
    return len(part) > 2 if part.isdigit() else len(part) > 1


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
