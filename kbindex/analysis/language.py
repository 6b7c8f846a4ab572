"""The language of a text, its stop words, and the stems of words.

Where the language is not clear none is assumed: the stemmer of another language costs more than
none. Stems are Snowball's (Porter 2001).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from kbindex.analysis.detection import detect_code
from kbindex.analysis.stopwords import STOP_WORDS
from kbindex.analysis.tokenizer import fold

AUTO = "auto"
NONE = "none"
_CODES = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
"""ISO 639-1 codes of the languages that have a stemmer."""


def known_languages() -> list[str]:
    """Return the names of the languages that have a stemmer."""
    return sorted(set(_CODES.values()))


def named_language(name: str) -> str | None:
    """Return the language that ``es``, ``es-MX`` or ``Spanish`` means, ``None`` if unknown."""
    name = name.strip().lower()
    code = name.replace("_", "-").split("-")[0]
    return _CODES.get(code) or (name if name in _CODES.values() else None)


def detect_language(text: str) -> str | None:
    """Return the language of ``text`` if it has a stemmer, ``None`` when unsure."""
    return _CODES.get(detect_code(text) or "")


def telling_words(words: Sequence[str], languages: Collection[str]) -> list[str]:
    """Return ``words`` without stop words; perhaps nothing is left.

    The stop words are those of the language, among ``languages``, that has most of the words.
    """
    hits = {
        language: [word for word in words if word in STOP_WORDS.get(language, ())]
        for language in languages
    }
    most = max(map(len, hits.values()), default=0)
    spared = {word for found in hits.values() if len(found) == most for word in found}
    return [word for word in words if word not in spared]


@lru_cache(maxsize=1 << 17)
def stem(word: str, language: str | None) -> str:
    """Return what is left of ``word`` without ending and accents; only the latter if no language.

    ``word`` is in lower case, with its accents: stemmers know them.
    """
    if language is None:
        return fold(word)
    return fold(_stemmer(language).stemWord(word))


@lru_cache
def _stemmer(language: str) -> Any:
    import Stemmer  # only where a text has a language

    return Stemmer.Stemmer(language, 0)  # our own cache also holds the folding
