"""The language of a text, its stop words, and the stems of words.

py3langid (Lui and Baldwin 2012) tells the language. Where it is not sure none is assumed: the
stemmer of another language costs more than none. Stems are Snowball's (Porter 2001).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from typing import Any

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
_LEAST_PROBABILITY = 0.3
"""Of notes of 10 words in 41 languages 97% are told right and 0.4% wrong; with 0.1 it is 98% and
0.4%, but of 5 words 2.5% are wrong instead of 1.3% (``benchmarks/language.py``)."""
_loading = threading.Lock()


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
    code, probability = _identifier().classify(text)
    return _CODES.get(code) if probability >= _LEAST_PROBABILITY else None


def prepare_detection() -> None:
    """Load the model for ``detect_language`` in the background: it takes half a second."""
    threading.Thread(target=_identifier, daemon=True).start()


def _identifier() -> Any:
    with _loading:
        return _loaded_identifier()


@cache
def _loaded_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # where a document is new

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


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
