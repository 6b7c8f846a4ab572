"""The lexical half through the command line: words are found as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testing.repositories import Repo, Template

PROSE = "This is what the keeper of the tower has to know when there is nobody else to ask.\n"
PROSA = "Esto es lo que el farero de la torre tiene que saber cuando no hay nadie más.\n"
DOCUMENTS = {
    "config.md": f"# Settings\n\n{PROSE}\nCall parse_config() before the lamp is lit.\n",
    "camel.md": f"# Names\n\n{PROSE}\nThe parseLogbook function reads the log.\n",
    "flags.md": f"# Flags\n\n{PROSE}\nWith --no-stage nothing is put on the stage by itself.\n",
    "stage.md": f"# Theatre\n\n{PROSE}\nA stage in town, and no more than that.\n",
    "release.md": f"# Releases\n\n{PROSE}\nMended in 1.0.21; v2.3 broke it again.\n",
    "older.md": f"# Older\n\n{PROSE}\nMended in 1.0.2 and in 21 other places, 0 of them ours.\n",
    "codes.md": f"# Codes\n\n{PROSE}\nIt ends with KB-1042 or 0x80070005, never with 1041.\n",
    "paths.md": f"# Paths\n\n{PROSE}\nIt stands in shelf/reference/exit-codes.md since then.\n",
    "phrase.md": f"# Keys\n\n{PROSE}\nThe signing key is kept below the stairs.\n",
    "apart.md": f"# Signs\n\n{PROSE}\nKey words: signing, a key, key, keys, the key of signing.\n",
    "rotation.md": f"# Rotation\n\n{PROSE}\nLenses are turned, embedded ones are not.\n",
    "turno.md": f"# Turnos\n\n{PROSA}\nLas operaciones de mantenimiento llevan un día.\n",
    "papa-fruto.md": f"# Cocina\n\n{PROSA}\nLa papa se guarda en el sótano.\n",
    "papa-padre.md": f"# Familia\n\n{PROSA}\nEl papá se guarda en el sótano.\n",
    "hamlet.md": f"# Hamlet\n\n{PROSE}\nTo be or not to be.\n",
    "ja.md": "# 灯台\n\n灯台の鍵は地下室にあります。\n",
    "ja2.md": "# 地図\n\n鍵の地図と灯台。\n",
    "th.md": "# ประภาคาร\n\nกุญแจอยู่ในห้องใต้ดิน\n",
    "ko.md": "# 등대\n\n열쇠는 지하실에 있습니다.\n",
    "cpp.md": f"# Languages\n\n{PROSE}\nThe pump is driven by C++ alone.\n",
    "c.md": f"# Letters\n\n{PROSE}\nThe keys are marked A, B and C.\n",
    "short.md": "Anemometers\n",
    "declared.md": "---\ntitle: Bojen\nlang: de-AT\n---\n\nHäuser.\n",
}


@pytest.fixture
def library(template: Template) -> Repo:

    def fill(repo: Repo) -> None:
        for name, text in DOCUMENTS.items():
            repo.write(f"bundle/{name}", text)
        repo.git("add", "--all")
        done = repo.call("init", "--hooks", "none")
        assert done.code == 0, done.err

    return template("words", fill)


def hits(repo: Repo, *arguments: str, mode: str = "lexical") -> list[str]:
    done = repo.call("query", "--mode", mode, "--format", "json", "-k", "30", *arguments)
    assert done.code in (0, 1), done.err
    return [hit["id"] for hit in done.json()["hits"]]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("parse_config", "config"),
        ("parse config", "config"),
        ("parseConfig", "config"),
        ("parseconfig", "config"),
        ("parse_logbook", "camel"),
        ("parseLogbook", "camel"),
        ("logbook parse", "camel"),
        ("1.0.21", "release"),
        ("version 1.0.21", "release"),
        ("2.3", "release"),
        ("v2.3", "release"),
        ("1.0.2", "older"),
        ("KB-1042", "codes"),
        ("kb1042", "codes"),
        ("0x80070005", "codes"),
        ("reference/exit-codes.md", "paths"),
        ("exit-codes", "paths"),
        ("operación", "turno"),
        ("operacion", "turno"),
        ("OPERACIÓN", "turno"),
        ("llevar mantenimientos", "turno"),
        ("embedding lens", "rotation"),
        ("papá", "papa-padre"),
        ("papa", "papa-fruto"),
        ("to be or not to be", "hamlet"),
        ("地下室", "ja"),
        ("กุญแจ", "th"),
        ("열쇠", "ko"),
        ("열쇠가", "ko"),
        ("C++", "cpp"),
        ("anemometers", "short"),
        ("haus", "declared"),
    ],
)
def test_words_are_found_as_people_write_them(library: Repo, query: str, first: str) -> None:
    assert hits(library, query)[0] == first


def test_a_leading_dash_is_no_option_after_two_dashes(library: Repo) -> None:
    assert hits(library, "--", "--no-stage")[:2] == ["flags", "stage"]


def test_a_version_is_not_found_by_its_pieces(library: Repo) -> None:
    assert "older" not in hits(library, "1.0.21")
    assert hits(library, "9.9.9") == []


def test_both_ways_to_write_a_word_are_found_and_the_exact_one_preferred(library: Repo) -> None:
    assert hits(library, "papá")[:2] == ["papa-padre", "papa-fruto"]
    assert hits(library, "papa")[:2] == ["papa-fruto", "papa-padre"]


def test_stop_words_do_not_find_documents_unless_there_is_nothing_else(library: Repo) -> None:
    assert hits(library, "where are the anemometers and what is in there")[0] == "short"
    assert hits(library, "there is no zeppelin in here") == []
    assert len(hits(library, "there is")) > 5


@pytest.mark.parametrize("mode", ["lexical", "dense", "hybrid"])
def test_a_quoted_phrase_must_stand_in_every_hit(library: Repo, mode: str) -> None:
    assert hits(library, '"signing key"', mode=mode) == ["phrase"]
    assert hits(library, 'stairs and the "Signing Key"', mode=mode) == ["phrase"]
    assert hits(library, "“灯台の鍵”", mode=mode) == ["ja"]


def test_a_phrase_that_stands_nowhere_is_said_and_its_words_count(library: Repo) -> None:
    done = library.call("query", '"key signing stairs"', "--mode", "lexical")
    assert done.code == 0
    assert "'key signing stairs'" in done.err
    assert "bundle/phrase.md" in done.out


def test_of_two_phrases_that_never_meet_the_hits_hold_one(library: Repo) -> None:
    done = library.call("query", '"signing key" "parse_config"', "--mode", "lexical")
    assert {line.split(":")[0] for line in done.out.splitlines()} == {
        "bundle/phrase.md", "bundle/config.md"
    }  # fmt: skip
    assert "'signing key'" in done.err
    assert "'parse_config'" in done.err


def test_hits_hold_as_many_of_the_phrases_as_any_passage(library: Repo) -> None:
    assert hits(library, '"signing key" "keeper of the tower"') == ["phrase"]


def test_filters_apply_before_ranking_with_a_phrase_too(library: Repo) -> None:
    assert hits(library, '"signing key"', "--path", "phrase.md") == ["phrase"]
    assert hits(library, '"signing key"', "--path", "config.md") == []


@pytest.mark.parametrize(
    "query",
    ["x" * 100_000, "lamp " * 20_000, '"' * 1000, "\x01\x02lamp\x7f", "NEAR(lamp, 2)", "title:lamp",
     "a OR b AND NOT c", "*", "lamp*", "^lamp", "-", "'; DROP TABLE words; --", "\u202elamp", "🗼",
     "é" * 5000, "灯台" * 5000, "{x} : y", "_" * 100],
)  # fmt: skip
def test_any_string_is_a_query(library: Repo, query: str) -> None:
    for mode in ("lexical", "hybrid"):
        done = library.call("query", "--mode", mode, "--", query)
        assert done.code in (0, 1), done.err
        assert "Traceback" not in done.err


def test_when_no_word_is_found_it_is_said(library: Repo) -> None:
    assert "meaning alone" in library.call("query", "zeppelin").err
    assert "meaning alone" not in library.call("query", "anemometers").err
    assert "meaning alone" not in library.call("query", "zeppelin", "--mode", "dense").err


def test_the_language_can_be_set(make_repo: Callable[[str], Repo]) -> None:
    repo = make_repo("set")
    repo.write("bundle/a.md", "Llevando.\n")
    repo.git("add", "--all")
    assert repo.call("init", "--hooks", "none").code == 0
    found: dict[str, Any] = {}
    for language in ("auto", "es", "spanish", "none", "english"):
        found[language] = hits_with(repo, language)
    assert found == {"auto": [], "es": ["a"], "spanish": ["a"], "none": [], "english": []}


def hits_with(repo: Repo, language: str) -> list[str]:
    done = repo.call(
        "query", "--mode", "lexical", "--format", "json", "llevar", KBINDEX_LANGUAGE=language
    )
    return [hit["id"] for hit in done.json()["hits"]]


def test_a_language_that_is_unknown_is_refused(library: Repo) -> None:
    done = library.call("query", "x", KBINDEX_LANGUAGE="klingon")
    assert done.code == 2
    assert "klingon" in done.err
    assert "spanish" in done.err


def test_status_says_in_which_languages_documents_are_searched(library: Repo) -> None:
    found = library.call("status", "--format", "json").json()["languages"]
    assert found == {"english": 14, "unknown": 5, "spanish": 3, "german": 1}


def test_words_that_are_too_many_to_look_for_are_said(library: Repo) -> None:
    words = [f"w{n}" for n in range(64)]
    for mode in ("lexical", "hybrid"):
        err = library.call("query", "--mode", mode, " ".join([*words, "anemometers"])).err
        assert "the first 64 are looked for, 1 are not" in err
        assert "meaning alone" not in err
    assert "looked for" not in library.call("query", " ".join(words)).err


def test_filters_that_nothing_passes_are_said(library: Repo) -> None:
    for option in ("--path", "--type", "--tag"):
        done = library.call("query", "keeper", option, "nonesuch")
        assert (done.code, done.out) == (1, "")
        assert "no document passes the filters" in done.err


def test_a_similarity_that_is_no_number_is_refused(library: Repo) -> None:
    assert library.call("query", "keeper", "--min-similarity", "nan").code == 2


def test_a_language_in_the_frontmatter_that_is_unknown_is_named(
    make_repo: Callable[[str], Repo],
) -> None:
    repo = make_repo("odd")
    repo.write("bundle/a.md", "---\nlang: klingon\n---\nnuqneH\n")
    repo.write("bundle/b.md", "---\nlang: none\n---\nnuqneH\n")
    repo.git("add", "--all")
    assert repo.call("init", "--hooks", "none").code == 0
    done = repo.call("check")
    assert "bundle/a.md:2" in done.out
    assert "klingon" in done.out
    assert "bundle/b.md" not in done.out
