"""Words, stems and languages: how texts and queries are taken apart, and what still meets."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.analysis.analyzer import query_terms, stored_terms
from kbindex.analysis.language import (
    detect_language,
    known_languages,
    named_language,
    stem,
    telling_words,
)
from kbindex.analysis.stopwords import STOP_WORDS
from kbindex.analysis.tokenizer import fold, phrase_pattern, read_query, read_words

pytestmark = pytest.mark.quick

ENGLISH = frozenset({"english"})
BOTH = frozenset({"english", "spanish"})


# Words of a text


@pytest.mark.parametrize(
    ("text", "inline", "beside"),
    [
        ("The lamp burns.", "the lamp burns", ""),
        ("call parse_config()", "call parse config", "parseconfig"),
        ("call parseConfig()", "call parseconfig", "parse config"),
        ("HTTPServer", "httpserver", "http server"),
        ("hook --no-stage", "hook no stage", "nostage"),
        ("pre-commit", "pre commit", "precommit"),
        ("version 1.0.21 of v2.3", "version 1 0 21 of v 2 3", ""),
        ("bundle/reference/exit-codes.md", "bundle reference exit codes md", ""),
        ("std::vector<int>", "std vector int", ""),
        ("C++ and C# and F#", "c++ and c# and f#", ""),
        ("a # heading", "a heading", ""),
        ("ERR_CONN_RESET 0x80070005 KB-1042", "err conn reset 0x80070005 kb 1042",
         "errconnreset kb1042"),
        ("12a(3)", "12a 3", ""),
        ("l'eau d’été", "l eau d été", ""),
        ("2026-11-30", "2026 11 30", ""),
        ("__init__", "init", ""),
        ("ＡＢＣ", "ａｂｃ", ""),
        ("e\u0301te\u0301", "été", ""),
        ("हिन्दी में", "हिन्दी में", ""),
        ("مَكتَب", "مَكتَب", ""),
        ("_ - . / : ' \" ( )", "", ""),
    ],
)  # fmt: skip
def test_words_and_what_else_finds_them(text: str, inline: str, beside: str) -> None:
    words = read_words(text)
    assert " ".join(words.inline) == inline
    assert " ".join(words.beside) == beside


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("灯台の鍵", "灯台 台の の鍵"),
        ("灯", "灯"),
        ("ประภาคาร", "ปร ระ ะภ ภา าค คา าร"),
        ("등대지기의 열쇠", "등대 대지 지기 기의 열쇠"),
        ("lamp 灯台 lamp", "灯台"),
        ("lamp", ""),
    ],
)
def test_scripts_without_spaces_are_pairs_of_characters(text: str, pairs: str) -> None:
    assert " ".join(read_words(text).pairs) == pairs
    assert "灯台" not in read_words("lamp 灯台 lamp").inline


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("Migración", "migracion"),
        ("Straße", "strasse"),
        ("İstanbul", "istanbul"),
        ("Ελλάδα", "ελλαδα"),
        ("ﬁsh", "fish"),
        ("ガス", "ガス"),
        ("हिन्दी", "हिन्दी"),
        ("مَكتَب", "مكتب"),
    ],
)
def test_folding_takes_case_and_accents_and_no_letter(word: str, folded: str) -> None:
    assert fold(word) == folded


# Words of a query


@pytest.mark.parametrize(
    ("query", "words", "compounds"),
    [
        ("wipe the lenses", ["wipe", "the", "lenses"], []),
        ("parse_config", ["parseconfig", "parse", "config"], [("parse", "config")]),
        ("parseConfig", ["parseconfig", "parse", "config"], []),
        ("--no-stage", ["nostage", "no", "stage"], [("no", "stage")]),
        ("1.0.21", [], [("1", "0", "21")]),
        ("v2.3", [], [("2", "3")]),
        ("v2", ["v2"], [("v", "2")]),
        ("KB-1042", ["kb1042", "kb", "1042"], [("kb", "1042")]),
        ("lamps lamps LAMPS", ["lamps"], []),
        ("(*)", [], []),
    ],
)
def test_what_a_query_asks_for(
    query: str, words: list[str], compounds: list[tuple[str, ...]]
) -> None:
    asked = read_query(query)
    assert list(asked.words) == words
    assert list(asked.compounds) == compounds


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ('the "signing key" again', ["signing key"]),
        ("«dos palabras» y “otras dos”", ["dos palabras", "otras dos"]),
        ("„zwei Worte“", ["zwei Worte"]),
        ("「灯台の鍵」", ["灯台の鍵"]),
        ('"" "..." " "', []),
        ('an "open quote', []),
        ('"a" and "a"', ["a"]),
    ],
)
def test_quoted_phrases(query: str, phrases: list[str]) -> None:
    assert list(read_query(query).phrases) == phrases


@pytest.mark.parametrize(
    ("phrase", "text", "is_there"),
    [
        ("signing key", "rotate the signing\n  key now", True),
        ("signing key", "rotate the signing, key now", True),
        ("signing key", "rotate the signing of the key", False),
        ("signing key", "rotate the signing keys", False),
        ("signing key", "designing key", False),
        ("parse config", "see parse_config()", True),
        ("parse_config", "see parse config", True),
        ("papá", "el papa", False),
        ("灯台の鍵", "これは灯台の鍵です", True),
        ("1.0.2", "version 1.0.21", False),
        ("c++", "in C++ it is", True),
    ],
)
def test_a_phrase_is_its_words_in_a_row(phrase: str, text: str, is_there: bool) -> None:
    assert bool(phrase_pattern(phrase).search(text.lower())) is is_there


# Languages


SAMPLES = {
    "english": "When the keeper of the lighthouse leaves, another has to be there, and it is "
    "written in the log which of them had the keys.",
    "spanish": "Cuando el farero se va, otro tiene que estar en la torre, y en el libro se anota "
    "quién de ellos tenía las llaves y para qué.",
    "catalan": "Quan el faroner se'n va, un altre ha de ser a la torre, i al llibre s'apunta qui "
    "d'ells tenia les claus i per què les tenia.",
    "portuguese": "Quando o faroleiro sai, outro tem de estar na torre, e no livro fica escrito "
    "quem deles tinha as chaves e para que não se percam.",
    "french": "Quand le gardien du phare s'en va, un autre doit être dans la tour, et on note "
    "dans le livre qui avait les clés.",
    "italian": "Quando il guardiano del faro se ne va, un altro deve essere nella torre, e nel "
    "libro si scrive chi aveva le chiavi e perché.",
    "german": "Wenn der Wärter den Turm verlässt, muss ein anderer da sein, und im Buch steht, "
    "wer von ihnen die Schlüssel hatte.",
    "dutch": "Als de wachter de toren verlaat, moet er een ander zijn, en in het boek staat wie "
    "van hen de sleutels had en waarom.",
    "swedish": "När vakten lämnar tornet måste en annan vara där, och i boken står det vem av dem "
    "som hade nycklarna och varför.",
    "finnish": "Kun vartija lähtee tornista, toisen on oltava siellä, ja kirjassa lukee, kuka oli "
    "se jolla avaimet olivat ja miksi niitä oli.",
    "polish": "Kiedy latarnik wychodzi, ktoś inny musi być na wieży, a w książce jest zapisane, "
    "kto z nich miał klucze i dlaczego.",
    "russian": "Когда смотритель уходит, на башне должен быть другой, и в книге записано, у кого "
    "из них были ключи и почему.",
}  # fmt: skip


@pytest.mark.parametrize("language", SAMPLES)
def test_a_sentence_tells_its_language(language: str) -> None:
    assert detect_language(SAMPLES[language]) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kbindex query --format json",
        "灯台の鍵は地下室にあります",
        "lamp oil",
        "x = 1",
        "12 34 56",
        "foo bar baz",
        "0123456789abcdef0123456789abcdef\t512\t128\t2\t\n" * 20,
    ],
)
def test_no_language_is_assumed_when_unsure(text: str) -> None:
    assert detect_language(text) is None


def test_languages_without_a_stemmer_are_not_taken_for_others() -> None:
    assert (
        detect_language("Коли доглядач іде, на вежі має бути інший, і це пишуть у книзі.") is None
    )
    assert (
        detect_language("Kada čuvar ode, netko drugi mora biti u kuli, i to piše u knjizi.") is None
    )


def test_languages_have_names_and_codes() -> None:
    assert named_language("es") == named_language("es-MX") == named_language("Spanish") == "spanish"
    assert named_language("pt_BR") == "portuguese"
    assert named_language("tlh") is None
    assert set(STOP_WORDS) <= set(known_languages())
    for language in known_languages():
        assert stem("x", language) == "x"  # each has a stemmer


def test_stop_words_are_lower_case_words_of_ours() -> None:
    for language, words in STOP_WORDS.items():
        for word in words:
            assert read_words(word).inline == (word,), (language, word)


@pytest.mark.parametrize(
    ("one", "other", "language"),
    [
        ("keys", "key", "english"),
        ("embedded", "embedding", "english"),
        ("llaves", "llave", "spanish"),
        ("operación", "operaciones", "spanish"),
        ("operación", "operacion", "spanish"),
        ("Häuser".lower(), "haus", "german"),
        ("clés", "clé", "french"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str, language: str) -> None:
    assert stem(one, language) == stem(other, language)


def test_without_a_language_only_accents_are_folded() -> None:
    assert stem("lenses", None) == "lenses"
    assert stem("operación", None) == "operacion"


def test_stop_words_are_those_of_the_language_of_the_query() -> None:
    assert telling_words(["how", "is", "the", "lamp", "lit"], BOTH) == ["lamp", "lit"]
    assert telling_words(["cómo", "se", "enciende", "la", "lámpara"], BOTH) == [
        "enciende",
        "lámpara",
    ]
    # 'die' is an article in German, and not in a query that is English by its other words.
    question = ["how", "to", "tell", "die", "from", "dado"]
    assert telling_words(question, {"english", "german"}) == ["tell", "die", "dado"]
    assert telling_words(["to", "be", "or", "not", "to", "be"], ENGLISH) == []


# Terms


def strings(query: str, languages: frozenset[str] = ENGLISH) -> list[tuple[str, ...]]:
    return [term.alternatives for term in query_terms(query, languages).terms]


def test_stop_words_are_dropped_unless_nothing_is_left() -> None:
    assert strings("where are the lenses") == [('"lens"', '"lenses"')]
    assert len(strings("to be or not to be")) == 4
    assert strings("what is 1.0.21") == [('"1 0 21"',)]


def test_a_query_looks_for_the_stems_of_every_language_of_the_bundle() -> None:
    assert strings("operaciones", BOTH) == [('"operacion"', '"oper"', '"operaciones"')]


def test_what_is_stored_is_what_is_asked_for() -> None:
    """Every word of a text, asked alone, has an alternative among the stored terms."""
    for language, text in SAMPLES.items():
        stored = stored_terms(text, language)
        held = {*stored.stems.split(), *stored.beside.split()}
        for word in read_words(text).inline:
            for asked in (word, word.upper(), fold(word)):
                (term,) = query_terms(asked, {language, "english"}).terms
                assert {string.strip('"') for string in term.alternatives} & held, asked


def test_accents_are_kept_where_they_are_written() -> None:
    assert stored_terms("el papá", "spanish").accented == "papá"
    assert stored_terms("el papa", "spanish").accented == ""
    (accented,) = query_terms("papá", BOTH).terms
    (plain,) = query_terms("papa", BOTH).terms
    assert accented.accented == '"papá"'
    assert plain.accented is None
    assert set(plain.alternatives) & set(accented.alternatives)


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_text_gives_terms_that_the_text_index_can_hold(text: str) -> None:
    stored = stored_terms(text, "english")
    for part in (stored.stems, stored.beside, stored.accented):
        assert not set(part) & set("\"'*^(){}[]:\0\n\t")
    for term in query_terms(text, BOTH).terms:
        assert all(string.count('"') == 2 and string != '""' for string in term.alternatives)


def test_a_long_text_takes_time_in_proportion() -> None:
    for text in ("a" * 1_000_000, "a-" * 500_000, "é" * 500_000, "灯" * 500_000, '"' * 500_000):
        began = time.monotonic()
        read_words(text)
        read_query(text)
        assert time.monotonic() - began < 20
