"""``kbindex query`` through real processes: schema, filters, odd queries, spans, and the view."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbindex.commands.query import query as run_query
from kbindex.document.markdown import decode
from kbindex.output.formats import Format
from kbindex.repo.repository import Repository, open_repository
from kbindex.search.query import answer_query
from kbindex.search.request import Filters, QueryOptions
from kbindex.view.database import View
from kbindex.view.lookup import find_section, look_up
from kbindex.view.open import use_view
from kbindex.view.records import LocatedChunk
from kbindex.view.unstaged import StaleDocuments
from testing.commands import Done, run_program
from testing.documents import NOTE
from testing.repositories import Repo, Template, clone_own, copied, imported_modules

VIEW = ".git/kbindex"

DOCUMENTS = {
    "lamps.md": NOTE,
    "ops/rota.md": "# Rota\n\nInes takes Mondays.\n\n## Swaps\n\nAsk Jonas first.\n",
    "plain.md": "Just a paragraph, without any heading.\n",
    "es/faro.md": "---\ntype: Guía\ntitle: El faro\ntags: [luz, torre]\n---\n\n"
    "# Turnos\n\nEl farero revisa la óptica.\n",
    "old.md": "---\ntype: Procedure\nstatus: deprecated\n---\n# Winding\n\nWind the clockwork.\n",
    "bare.md": "---\ntitle: Anemometer\ntags: [wind]\n---\n",
    "twin-a.md": "# Twin\n\nA foghorn sounds twice.\n",
    "twin-b.md": "# Twin\n\nA foghorn sounds twice.\n",
    "weg.md": "# Weg\n\nDie Straße zum Leuchtturm.\n",
    "ja.md": "# 灯台\n\n灯台の鍵は地下室にあります。\n",
    "log.md": "# Log\n\nThe foghorn was mended, the mended foghorn sounds again.\n\n"
    "## Paraffin\n\nParaffin arrived. Paraffin was counted. Paraffin burns.\n\n"
    "## More paraffin\n\nParaffin again, paraffin and more paraffin.\n",
}
NASTY = {
    "doubles.md": "# Notes\n\none\n\n## Notes\n\ntwo\n\n# Notes\n\nthree\n\n## notes-1\n\nfour\n\n"
    "## Notes\n\nfive\n",
    "markup.md": "Intro.\n\n## `code()` in *a* **heading**\n\nw1\n\n## [link](https://x.invalid/#y)"
    "\n\nw2\n\n## <b>html</b> & &amp; entity\n\nw3\n\n## 🗼 tower 🗼\n\nw4\n\n## ¿Qué? — ¡así!\n\n"
    "w5\n\n## #hashtag #\n\nw6\n\n## ![image](a.png)\n\nw7\n\n## a_b __c__ \\*d\\*\n\nw8\n\n## 灯台"
    "\n\nw9\n\n## ~~gone~~\n\nw10\n",
    "setext.md": "Title\nover two lines\n===\n\nbody\n\nSub\n---\n\nbody\n\nSub\n---\n\nagain\n",
    "crlf.md": "\ufeff# Begin\r\n\r\ntext\r\n\r\n## End\r\n\r\nlast",
    "matter.md": "---\ntitle: Only matter\ndescription: nothing else\n---\n",
    "empty-heading.md": "#\n\nbelow nothing\n\n##\n\nbelow less\n\n## !!!\n\nbelow punctuation\n",
    "levels.md": "###### six\n\na\n\n# one\n\n### three\n\nb\n\n## two\n\nc\n",
    "long.md": "# Long\n\n" + "".join(f"Sentence {n} tells of lens {n * 7}. " for n in range(400)),
    "table.md": "# T\n\n| a | b |\n|---|---|\n" + "| cell of a row | another |\n" * 120,
    "fence.md": "# F\n\n```\n# no heading\n```\n\n## after\n\nyes\n",
    "o d d/ñ#b.md": "# Odd\n\nname\n",
    "\x1b[31mred.md": '---\ntitle: "T\\e[2J\\u009b1m"\n---\n# He\x1b[1mad\x07\n\n'
    "zebra \x1b]0;title\x07\u202e\n",
    "fff.md": "# a\n\nx\n\n# A\n\ny\n\n# a!\n\nz\n\n# a-1\n\nw\n",
}


def fill_with(documents: dict[str, str]) -> Callable[[Repo], None]:
    """Return what commits documents with their index and makes the view."""

    def fill(repo: Repo) -> None:
        for path, text in documents.items():
            repo.write(f"bundle/{path}", text)
        done = repo.call("init", "--hooks", "native")
        assert done.code == 0, done.err
        repo.commit("first")
        assert repo.call("query", "x", "--mode", "lexical").code in (0, 1)

    return fill


@pytest.fixture
def shared(template: Template) -> Repo:
    """The library, for tests that only read."""
    return template("library", fill_with(DOCUMENTS))


@pytest.fixture
def library(shared: Repo, tmp_path: Path) -> Repo:
    """A copy of the library, with its view, to change."""
    return copied(shared, tmp_path / "library", shared.environment)


@pytest.fixture
def nasty(template: Template) -> Repo:
    return template("nasty", fill_with(NASTY))


@pytest.fixture(scope="session")
def own_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_own(tmp_path_factory.mktemp("own") / "clone")


def index(repo: Repo) -> None:
    repo.git("add", "--all")
    done = repo.call("update")
    assert done.code == 0, done.err


def ask(repo: Repo, *arguments: str, **variables: str) -> Any:
    """Return the JSON of a query that may have no hit."""
    done = repo.call("query", "--format", "json", *arguments, **variables)
    assert done.code in (0, 1), done.err
    return done.json()


def ids(answer: Any) -> list[str]:
    return [hit["id"] for hit in answer["hits"]]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep variables of whoever runs the tests from this process."""
    for name in list(os.environ):
        if name.startswith(("KBINDEX_", "GIT_")):
            monkeypatch.delenv(name)


class Asked:
    """Queries within this process: an exception is seen as it is."""

    def __init__(self, repository: Repository, capfd: pytest.CaptureFixture[bytes]) -> None:
        self.repository = repository
        self._capfd = capfd

    def __call__(self, text: str, **options: Any) -> Any:
        run_query(self.repository.git.root, text, QueryOptions(**options), Format.JSON)
        return json.loads(self._capfd.readouterr().out)


@pytest.fixture
def asker(quiet: None, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[[Repo], Asked]:
    return lambda repo: Asked(open_repository(repo.root), capfdbinary)


@pytest.fixture
def asked(shared: Repo, asker: Callable[[Repo], Asked]) -> Asked:
    return asker(shared)


# The schema

HIT_TYPES: dict[str, Any] = {
    "rank": int,
    "id": str,
    "path": str,
    "title": str,
    "type": str,
    "status": str,
    "score": (int, float),
    "similarity": (int, float),
    "matched_by": list,
    "matched_section": dict,
    "lines": list,
    "span": list,
    "blob": str,
    "text": str,
    "explain": dict,
}
OPTIONAL = {"title", "type", "status", "similarity", "matched_section", "text", "explain"}


def assert_schema(answer: Any) -> None:
    assert list(answer) == ["query", "mode", "degraded", "index", "retrieval", "hits"]
    assert isinstance(answer["query"], str)
    assert answer["mode"] in ("hybrid", "dense", "lexical")
    assert answer["degraded"] is None or isinstance(answer["degraded"], str)
    assert list(answer["index"]) == ["embedder", "dimension", "stale_documents"]
    assert isinstance(answer["index"]["embedder"], str)
    assert type(answer["index"]["dimension"]) is type(answer["index"]["stale_documents"]) is int
    retrieval = answer["retrieval"]
    assert list(retrieval) == ["lexical", "dense", "fused", "coverage"]
    assert list(retrieval["coverage"]) == ["documents", "chunks", "lexical", "dense"]
    numbers = [*list(retrieval.values())[:3], *retrieval["coverage"].values()]
    assert all(type(number) is int and number >= 0 for number in numbers)
    assert retrieval["fused"] == len(answer["hits"])
    assert [hit["rank"] for hit in answer["hits"]] == list(range(1, len(answer["hits"]) + 1))
    for hit in answer["hits"]:
        assert_hit(hit)
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)


def assert_hit(hit: Any) -> None:
    assert hit.keys() <= HIT_TYPES.keys()
    assert HIT_TYPES.keys() - hit.keys() <= OPTIONAL
    assert None not in hit.values(), "absent, never null"
    for name, value in hit.items():
        assert isinstance(value, HIT_TYPES[name]), name
        assert not isinstance(value, bool)
    assert hit["path"] == f"bundle/{hit['id']}.md"
    assert hit["matched_by"]
    assert set(hit["matched_by"]) <= {"dense", "lexical"}
    assert len(hit["lines"]) == len(hit["span"]) == 2
    assert 1 <= hit["lines"][0] <= hit["lines"][1]
    assert 0 <= hit["span"][0] < hit["span"][1]
    assert re.fullmatch("[0-9a-f]{40}", hit["blob"])
    if "matched_section" in hit:
        assert list(hit["matched_section"]) == ["heading", "anchor"]
        assert all(isinstance(part, str) for part in hit["matched_section"]["heading"])
        assert hit["matched_section"]["heading"]
        assert isinstance(hit["matched_section"]["anchor"], str)


def test_json_of_a_query_has_the_documented_schema(shared: Repo) -> None:
    answer = ask(shared, "wipe the lenses")
    assert_schema(answer)
    first = answer["hits"][0]
    assert first["id"] == "lamps"
    assert (first["title"], first["type"]) == ("Lamps", "Note")
    assert first["matched_section"] == {"heading": ["Cleaning"], "anchor": "cleaning"}
    assert first["matched_by"] == ["dense", "lexical"]
    assert first["blob"] == shared.git("rev-parse", "HEAD:bundle/lamps.md").strip()
    assert answer["index"] == {
        "embedder": "hash/feature-hashing",
        "dimension": 256,
        "stale_documents": 0,
    }


def test_json_has_the_same_schema_when_there_is_no_hit(shared: Repo) -> None:
    done = shared.call("query", "--format", "json", "--mode", "lexical", "zeppelin")
    assert done.code == 1
    assert_schema(done.json())
    assert done.json()["hits"] == []


def test_a_filter_that_nothing_passes_is_an_empty_answer(shared: Repo) -> None:
    done = shared.call("query", "--format", "json", "--type", "Nonesuch", "lamps")
    assert done.code == 1
    assert_schema(done.json())


def test_without_a_hit_text_and_jsonl_are_empty_and_the_exit_code_is_1(shared: Repo) -> None:
    for form in ("text", "jsonl"):
        done = shared.call("query", "--format", form, "--mode", "lexical", "zeppelin")
        assert (done.code, done.out) == (1, "")


def test_what_does_not_apply_is_absent(shared: Repo) -> None:
    hit = ask(shared, "--mode", "lexical", "just a paragraph")["hits"][0]
    assert hit["id"] == "plain"
    assert not {"similarity", "matched_section", "type", "text", "status", "explain"} & hit.keys()


def test_metadata_alone_makes_a_document_findable(shared: Repo) -> None:
    for mode in ("lexical", "dense"):
        hit = ask(shared, "--mode", mode, "anemometer")["hits"][0]
        assert hit["id"] == "bare"
        assert "matched_section" not in hit
    assert ask(shared, "--mode", "lexical", "how the lamps of the tower are kept")["hits"][0][
        "id"
    ] == ("lamps")


def test_a_document_without_a_declared_type_has_that_of_its_reserved_name(shared: Repo) -> None:
    assert ask(shared, "--path", "log.md", "foghorn")["hits"][0]["type"] == "Log"


def test_jsonl_is_one_hit_a_line(shared: Repo) -> None:
    lines = shared.call("query", "--format", "jsonl", "foghorn lamps").out.splitlines()
    hits = [json.loads(line) for line in lines]
    assert hits == ask(shared, "foghorn lamps")["hits"]
    assert len(hits) > 1


def test_text_form_cites_path_line_title_heading_and_score(shared: Repo) -> None:
    done = shared.call("query", "wipe the lenses", "-k", "1")
    assert done.code == 0
    score = ask(shared, "wipe the lenses", "-k", "1")["hits"][0]["score"]
    assert done.out == f"bundle/lamps.md:10: Lamps › Cleaning  {score:.2f}\n"


def test_every_line_of_the_text_form_can_be_clicked(shared: Repo) -> None:
    done = shared.call("query", "foghorn lamps tower")
    for line in done.out.splitlines():
        path, number = re.fullmatch(r"(bundle/\S+\.md):(\d+): .+  \d\.\d\d", line).groups()
        assert len((shared.root / path).read_text().splitlines()) >= int(number)


def test_a_title_that_is_the_first_heading_is_named_once(shared: Repo) -> None:
    done = shared.call("query", "ask Jonas first", "-k", "1")
    assert done.out.startswith("bundle/ops/rota.md:5: Rota › Swaps  ")


def test_a_deprecated_document_says_so(shared: Repo) -> None:
    assert "(deprecated)" in shared.call("query", "clockwork", "-k", "1").out
    assert ask(shared, "clockwork")["hits"][0]["status"] == "deprecated"


def test_a_format_that_query_does_not_have_is_a_usage_error(shared: Repo) -> None:
    for form in ("github", "sarif"):
        assert shared.call("query", "--format", form, "lamps").code == 2


# Options


def test_mode_decides_which_half_finds(shared: Repo) -> None:
    lexical = ask(shared, "--mode", "lexical", "foghorn")
    assert lexical["mode"] == "lexical"
    assert lexical["retrieval"]["dense"] == 0
    assert all(hit["matched_by"] == ["lexical"] for hit in lexical["hits"])
    dense = ask(shared, "--mode", "dense", "foghorn")
    assert dense["mode"] == "dense"
    assert dense["retrieval"]["lexical"] == 0
    assert all(hit["matched_by"] == ["dense"] for hit in dense["hits"])
    assert all("similarity" in hit for hit in dense["hits"])
    hybrid = ask(shared, "--mode", "hybrid", "foghorn")
    assert hybrid["mode"] == "hybrid"
    assert ask(shared, "foghorn") == hybrid
    for answer in (lexical, dense, hybrid):
        assert_schema(answer)


def test_k_is_how_many_hits_there_are_at_most(shared: Repo) -> None:
    everything = ask(shared, "-k", "100", "foghorn")
    assert len(everything["hits"]) == len(DOCUMENTS)
    assert ask(shared, "-k", "2", "foghorn")["hits"] == everything["hits"][:2]
    assert len(ask(shared, "foghorn")["hits"]) == 5
    assert shared.call("query", "-k", "0", "foghorn").code == 2


def test_a_filter_applies_before_ranking(repo: Repo, asker: Callable[[Repo], Asked]) -> None:
    for number in range(110):
        repo.write(
            f"bundle/many/{number:03}.md",
            f"# The tide of day {number}\n\nThe tide, the tide and the tide.\n",
        )
    repo.write(
        "bundle/rare/last.md",
        "---\ntype: Rare\ntags: [Singular]\n---\n\n" + "Filler words stand here. " * 30 + "Tide.\n",
    )
    index(repo)
    asked = asker(repo)
    for mode in ("lexical", "dense", "hybrid"):
        assert "rare/last" not in ids(asked("tide tide", mode=mode, n_hits=100))
        for only in (
            Filters(path="rare/**"),
            Filters(path="bundle/rare/*.md"),
            Filters(type="rare"),
            Filters(tag="singular"),
        ):
            answer = asked("tide tide", mode=mode, n_hits=3, filters=only)
            assert ids(answer) == ["rare/last"], (mode, only)
    assert ids(ask(repo, "--path", "rare/*", "tide tide")) == ["rare/last"]
    assert ids(ask(repo, "--type", "Rare", "--tag", "nothing", "tide")) == []


def test_filters_by_path_type_and_tag(shared: Repo) -> None:
    assert ids(ask(shared, "--path", "ops/*", "Ines")) == ["ops/rota"]
    assert set(ids(ask(shared, "--path", "twin-?.md", "foghorn"))) == {"twin-a", "twin-b"}
    assert ids(ask(shared, "--type", "guía", "farero")) == ["es/faro"]
    assert ids(ask(shared, "--tag", "tower", "lamps")) == ["lamps"]


def test_one_hit_per_document_unless_more_are_asked_for(shared: Repo) -> None:
    assert ids(ask(shared, "paraffin")).count("log") == 1
    answer = ask(shared, "paraffin", "--per-doc", "2")
    assert_schema(answer)
    assert ids(answer).count("log") == 2
    spans = [tuple(hit["span"]) for hit in answer["hits"] if hit["id"] == "log"]
    assert len(set(spans)) == 2


def test_the_hit_of_a_document_is_its_best_passage(shared: Repo) -> None:
    one = ask(shared, "paraffin", "-k", "100")["hits"]
    all_of_them = ask(shared, "paraffin", "-k", "100", "--per-doc", "100")["hits"]
    for hit in one:
        best = next(other for other in all_of_them if other["id"] == hit["id"])
        assert best["span"] == hit["span"]


def test_min_similarity_leaves_out_what_is_less_similar(shared: Repo) -> None:
    everything = ask(shared, "foghorn sounds", "-k", "100", "--per-doc", "100")["hits"]
    limit = sorted({hit["similarity"] for hit in everything})[-2]
    kept = ask(
        shared,
        *("foghorn sounds", "-k", "100", "--per-doc", "100"),
        *("--min-similarity", str(limit - 0.00005)),
    )["hits"]
    assert 0 < len(kept) < len(everything)
    assert all(hit["similarity"] >= limit - 0.0001 for hit in kept)
    assert shared.call("query", "foghorn", "--min-similarity", "1.5").code == 1


def test_text_is_the_passage_and_changes_nothing_else(shared: Repo) -> None:
    bare = ask(shared, "wipe the lenses", "-k", "100", "--per-doc", "9")
    answer = ask(shared, "wipe the lenses", "-k", "100", "--per-doc", "9", "--text", "--explain")
    assert_schema(answer)
    for hit in answer["hits"]:
        text = decode(shared.blob(hit["path"]))[slice(*hit["span"])]
        assert hit["text"] == text or text.startswith("---")
        del hit["text"], hit["explain"]
    assert answer == bare


def test_explain_adds_up_to_the_score(shared: Repo, asked: Asked) -> None:
    for mode in ("lexical", "dense", "hybrid"):
        for hit in asked("foghorn tower lamps", n_hits=9, mode=mode, explain=True)["hits"]:
            assert hit["explain"].keys() <= {"dense", "lexical"}
            assert sum(hit["explain"].values()) == pytest.approx(hit["score"], abs=1e-4)
    told = shared.call("query", "wipe the lenses", "-k", "1", "--explain").out.splitlines()[1]
    total, parts = re.match(r"    (\S+) = (.+); similarity", told).groups()
    assert sum(float(part.split()[1]) for part in parts.split(" + ")) == pytest.approx(
        float(total), abs=2e-4
    )


# Odd queries


ODD = {
    "quotation mark": '"',
    "quoted": '"lamps" "',
    "apostrophe": "'; DROP TABLE words; --",
    "star": "*",
    "prefix star": "lam*",
    "and": "AND",
    "operators": "lamps AND OR NOT lenses",
    "near": "NEAR(",
    "near with number": "NEAR(lamps lenses, 3)",
    "column": "title:lamps",
    "column group": "{title text} : lamps",
    "caret": "^lamps",
    "plus": "lamps + lenses",
    "parentheses": ")))(((",
    "backslash": "\\",
    "percent": "%s %d {} {0}",
    "dash": "-x",
    "NUL": "lam\0ps",
    "controls": "\x01\x02\x1b[31m\x7f\x9b",
    "newlines": "lamps\r\n\tlenses\u2028",
    "emoji": "🗼👩‍🚀",
    "CJK": "灯台の鍵",
    "right to left": "منارة \u202e",
    "combining": "e\u0301" * 50,
    "punctuation": "?!… — ¿¡",
    "underscores": "_ __ ___",
    "superscript": "² ½ Ⅷ",
    "sharp s": "STRASSE Straße",
    "dotted I": "İI",
    "long": "lamps " * 17_000,
    "one long word": "a" * 100_000,
    "many words": " ".join(f"w{n}" for n in range(20_000)),
    "version": "1.0.21",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_any_text_is_a_valid_query(asked: Asked, text: str, mode: str) -> None:
    answer = asked(text, mode=mode, with_text=True, explain=True)
    assert_schema(answer)
    assert answer["query"] == text


def test_operators_of_the_text_index_are_plain_words(asked: Asked) -> None:
    plain = asked("lamps", mode="lexical")["hits"]
    for text in ('"lamps"', "lamps*", "^lamps", "(lamps)", "-lamps", "lamps!"):
        assert asked(text, mode="lexical")["hits"] == plain
    # "NOT" is a word that stands nowhere, not an operator that excludes.
    assert "lamps" in ids(asked("lamps NOT lenses", mode="lexical"))
    assert ids(asked("title:winding", mode="lexical"))[0] == "old"


def test_random_texts_never_crash(asked: Asked) -> None:
    chance = random.Random(7)
    alphabet = "aé灯🗼\"'*()^:+-,{}[]\\/NEARANDORNOT \t\n\0\x1b_²߀"
    for _ in range(60):
        text = "".join(chance.choices(alphabet, k=chance.randint(1, 40)))
        if text.strip():
            assert_schema(asked(text, mode="lexical", per_document=3))


def test_odd_queries_work_through_the_command_line(shared: Repo) -> None:
    for arguments in (("--", "-x"), ("--", "--mode"), ("x" * 100_000,), ("\x1b]0;t\x07🗼",)):
        done = shared.call("query", "--format", "json", *arguments)
        assert done.code in (0, 1), done.err
        assert_schema(done.json())
        assert done.json()["query"] == arguments[-1]
        assert "\x1b" not in done.out


def test_an_empty_query_is_a_usage_error(shared: Repo) -> None:
    for text in ("", " \t\n"):
        done = shared.call("query", text)
        assert (done.code, done.out) == (2, "")
        assert "the query is empty" in done.err


def test_a_query_that_is_not_utf8_does_not_crash(shared: Repo) -> None:
    done = shared.call("query", "\udcff\udcfe")
    assert done.code in (0, 1, 2), done.err


def test_words_are_found_whatever_their_case(asked: Asked) -> None:
    for word in ("leuchtturm", "LEUCHTTURM", "Straße", "straße"):
        assert ids(asked(word, mode="lexical")) == ["weg"], word


def test_a_word_inside_japanese_text_is_found(asked: Asked) -> None:
    assert ids(asked("地下室", mode="lexical")) == ["ja"]


# Ranking


def test_ties_break_by_path_in_a_new_view(shared: Repo) -> None:
    answers = [ids(ask(shared, "a foghorn sounds twice", "-k", "2")) for _ in range(2)]
    assert answers == [["twin-a", "twin-b"]] * 2


def test_ties_do_not_depend_on_what_the_view_has_seen(library: Repo) -> None:
    before = ask(library, "a foghorn sounds twice", "-k", "2")
    text = DOCUMENTS["twin-a.md"]
    library.write("bundle/twin-a.md", text + "\nMore.\n")
    library.git("add", "bundle")
    ask(library, "foghorn")
    library.write("bundle/twin-a.md", text)
    library.git("add", "bundle")
    assert ask(library, "a foghorn sounds twice", "-k", "2")["hits"] == before["hits"]


# Citations


def test_spans_slice_the_blob_to_text_with_the_words(shared: Repo, asked: Asked) -> None:
    for words in ("cellar key hangs", "jonas", "óptica", "foghorn", "paragraph"):
        for hit in asked(words, mode="lexical")["hits"]:
            text = decode(shared.blob(hit["path"]))
            passage = text[slice(*hit["span"])].casefold()
            assert any(word in passage for word in words.split()), (words, hit)
            lines = text.split("\n")[hit["lines"][0] - 1 : hit["lines"][1]]
            assert passage.strip("\n") in "\n".join(lines).casefold()


def _passages(view: View) -> Iterator[LocatedChunk]:
    chunks, _, _ = view.chunk_arrays()
    yield from map(view.chunk, chunks.tolist())


def assert_round_trip(root: Path) -> int:
    """Follow the citation of every chunk back to its text; return how many there are."""
    repository = open_repository(root)
    return use_view(repository, lambda view: _follow_all(repository, view))


def _follow_all(repository: Repository, view: View) -> int:
    texts: dict[str, str] = {}
    n_chunks = 0
    for passage in _passages(view):
        chunk, document = passage.chunk, passage.document
        start, end, anchor, name = chunk.char_start, chunk.char_end, chunk.anchor, document.path
        n_chunks += 1
        if document.blob not in texts:
            texts[document.blob] = decode(repository.git.objects.read_blob(document.blob))
        text = texts[document.blob]
        where = (name, start, end)
        assert 0 <= start < end <= len(text), where
        assert passage.text == text[start:end], where
        assert chunk.first_line == text.count("\n", 0, start) + 1, where
        assert chunk.last_line == text.count("\n", 0, end - 1) + 1, where
        assert (anchor is None) == (chunk.heading == ()), where
        assert look_up(view, repository.config, repository.config.document_id(name)), where
        if anchor is not None:
            section = find_section(text, document, anchor)
            assert section.char_start <= start, where
            assert end <= section.char_end, where
            assert section.heading == chunk.heading, where
    return n_chunks


@pytest.mark.usefixtures("quiet")
def test_every_citation_of_the_nasty_bundle_leads_to_its_text(nasty: Repo) -> None:
    assert assert_round_trip(nasty.root) > 50


@pytest.mark.usefixtures("quiet")
def test_every_citation_of_our_own_bundle_leads_to_its_text(own_clone: Path) -> None:
    assert assert_round_trip(own_clone) > 200


@pytest.mark.usefixtures("quiet")
def test_anchors_are_those_of_github(nasty: Repo) -> None:
    repository = open_repository(nasty.root)

    def anchors(name: str) -> list[str]:
        found = use_view(repository, lambda view: view.document(f"bundle/{name}"))
        assert found is not None
        return [heading.anchor for heading in found.headings]

    assert anchors("doubles.md") == ["notes", "notes-1", "notes-2", "notes-1-1", "notes-3"]
    assert anchors("setext.md") == ["title-over-two-lines", "sub", "sub-1"]
    assert anchors("markup.md")[:5] == [
        "code-in-a-heading",
        "link",
        "html---entity",
        "-tower-",
        "qué--así",
    ]


@pytest.mark.usefixtures("quiet")
def test_a_matched_section_never_holds_an_empty_heading_or_anchor(nasty: Repo) -> None:
    repository = open_repository(nasty.root)
    with StaleDocuments(repository) as stale:
        options = QueryOptions("lexical", 50, 50, filters=Filters(path="empty-heading.md"))
        answer = answer_query(repository, "below nothing less punctuation", options, stale)
    assert len(answer.hits) == 3
    for hit in answer.hits:
        assert hit.anchor != ""
        assert hit.heading == () or hit.heading[-1] != ""


def test_citations_lead_back_through_the_command_line(nasty: Repo) -> None:
    for words, name in (("five", "doubles"), ("w4", "markup"), ("again", "setext"), ("last", None)):
        hit = ask(nasty, "--mode", "lexical", words, "-k", "1", "--text")["hits"][0]
        assert name is None or hit["id"] == name
        got = nasty.call("get", hit["id"], "--section", hit["matched_section"]["anchor"])
        assert got.code == 0
        assert hit["text"] in got.out
        span = nasty.call("get", hit["id"], "--span", "{}:{}".format(*hit["span"]))
        assert span.out == hit["text"]


# What is stale


def test_documents_that_differ_from_the_index_are_counted_and_named(library: Repo) -> None:
    library.write("bundle/lamps.md", NOTE + "\nNew.\n")
    library.write("bundle/new.md", "Untracked.\n")
    library.write("bundle/not-a-document.txt", "Not Markdown.\n")
    (library.root / "bundle/plain.md").unlink()
    done = library.call("query", "--format", "json", "lamps")
    assert done.json()["index"]["stale_documents"] == 3
    assert (
        "3 documents differ from what is indexed: bundle/lamps.md, bundle/new.md, bundle/plain.md"
        in done.err
    )
    library.write("bundle/twin-a.md", "Another.\n")
    done = library.call("query", "--format", "json", "lamps")
    assert done.json()["index"]["stale_documents"] == 4
    assert "bundle/lamps.md, bundle/new.md, bundle/plain.md, …" in done.err
    assert "twin-a" not in done.err


def test_a_commit_that_skipped_the_hook_is_counted_and_still_found_by_words(library: Repo) -> None:
    library.write("bundle/ops/rota.md", DOCUMENTS["ops/rota.md"] + "\nThe heliograph is Priya's.\n")
    library.commit("behind the hook's back", "--no-verify")
    done = library.call("query", "--format", "json", "--text", "heliograph")
    answer = done.json()
    assert answer["index"]["stale_documents"] == 1
    assert "bundle/ops/rota.md" in done.err
    hit = answer["hits"][0]
    assert hit["id"] == "ops/rota"
    assert "heliograph" in hit["text"]
    assert "similarity" not in hit
    assert hit["blob"] == library.git("rev-parse", "HEAD:bundle/ops/rota.md").strip()
    coverage = answer["retrieval"]["coverage"]
    assert coverage["lexical"] == coverage["chunks"] == coverage["dense"] + 1
    assert "the dense half covers" in done.err
    assert library.call("update").code == 0
    answer = ask(library, "heliograph")
    assert answer["index"]["stale_documents"] == 0
    assert answer["hits"][0]["similarity"] > 0


def test_a_staged_document_that_is_not_indexed_is_counted_and_found(library: Repo) -> None:
    library.write("bundle/new.md", "# Barometer\n\nTap the barometer.\n")
    library.git("add", "bundle/new.md")
    answer = ask(library, "barometer")
    assert answer["index"]["stale_documents"] == 1
    assert answer["hits"][0]["id"] == "new"


def test_a_document_that_is_not_text_is_counted(library: Repo) -> None:
    library.write("bundle/binary.md", b"\xff\xfe\x00lamps")
    library.commit("not text", "--no-verify")
    done = library.call("query", "--format", "json", "lamps")
    assert done.json()["index"]["stale_documents"] == 1
    assert "bundle/binary.md" in done.err


def test_a_file_that_was_only_touched_is_not_stale(library: Repo) -> None:
    os.utime(library.root / "bundle/lamps.md", (1_000_000_000, 1_000_000_000))
    assert ask(library, "lamps")["index"]["stale_documents"] == 0


def test_control_characters_in_a_file_name_do_not_reach_the_messages(library: Repo) -> None:
    library.write("bundle/\x1b[2Jclear.md", "Untracked.\n")
    done = library.call("query", "lamps")
    assert "1 documents differ" in done.err
    assert "\x1b" not in done.err


def test_control_characters_in_documents_do_not_reach_the_text_form(nasty: Repo) -> None:
    done = nasty.call("query", "zebra", "-k", "1", "--text", "--explain")
    assert done.code == 0
    assert "zebra" in done.out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.out)


def test_coverage_counts_what_each_half_sees(shared: Repo) -> None:
    answer = ask(shared, "lamps")
    coverage = answer["retrieval"]["coverage"]
    assert coverage["documents"] == len(DOCUMENTS)
    outlines = shared.root.glob(".kbindex/outline/**/*.tsv")
    keys = [line for file in outlines for line in file.read_text().splitlines() if line]
    n_chunks = sum(not line.startswith("-") for line in keys)
    assert (coverage["chunks"], coverage["lexical"], coverage["dense"]) == (n_chunks,) * 3


def test_rows_that_come_back_are_used_again(library: Repo) -> None:
    library.write("bundle/plain.md", "Just a paragraph about gannets.\n")
    library.commit("gannets")
    wal = [path for path in library.files(".kbindex/wal") if path.endswith(".arrow")]
    shutil.rmtree(library.root / VIEW)
    library.git("rm", "--quiet", "--cached", *wal)
    assert ask(library, "gannets")["hits"][0]["id"] == "plain"
    library.git("reset", "--quiet")
    answer = ask(library, "gannets")
    assert answer["retrieval"]["coverage"]["dense"] == answer["retrieval"]["coverage"]["chunks"]
    assert "similarity" in answer["hits"][0]


# Moves of HEAD and of the index


def test_a_query_answers_from_the_tree_that_is_checked_out(library: Repo) -> None:
    def found(word: str) -> list[str]:
        return ids(ask(library, "--mode", "lexical", word))

    library.git("switch", "--quiet", "--create", "branch")
    library.write("bundle/plain.md", "A paragraph about puffins.\n")
    library.commit("puffins")
    assert found("puffins") == ["plain"]
    library.git("checkout", "--quiet", "main")
    assert found("puffins") == []
    library.git("checkout", "--quiet", "branch")
    assert found("puffins") == ["plain"]
    library.write("bundle/plain.md", "A paragraph about cormorants.\n")
    library.commit("cormorants", "--amend")
    assert (found("puffins"), found("cormorants")) == ([], ["plain"])
    library.git("reset", "--quiet", "--hard", "main")
    assert found("cormorants") == []
    library.write("bundle/plain.md", "A paragraph about terns.\n")
    library.git("add", "bundle")
    assert found("terns") == ["plain"]
    library.git("stash", "--quiet")
    assert found("terns") == []
    library.git("stash", "pop", "--quiet", "--index")
    assert found("terns") == ["plain"]


def test_a_deleted_document_is_not_found(library: Repo) -> None:
    library.git("rm", "--quiet", "bundle/lamps.md")
    library.commit("no lamps")
    answer = ask(library, "-k", "100", "lamps paraffin lenses")
    assert "lamps" not in ids(answer)
    assert answer["retrieval"]["coverage"]["documents"] == len(DOCUMENTS) - 1


# Where it is run


def test_a_query_works_in_a_subfolder_with_repo_and_in_a_work_tree(
    library: Repo, tmp_path: Path
) -> None:
    wanted = ask(library, "wipe the lenses")["hits"]
    inside = library.call(
        "query", "--format", "json", "wipe the lenses", cwd=library.root / "bundle/ops"
    )
    assert inside.json()["hits"] == wanted
    away = tmp_path / "away"
    away.mkdir()
    for directory in (library.root, library.root / "bundle/ops", Path("../library")):
        outside = library.call(
            "--repo", str(directory), "query", "--format", "json", "wipe the lenses", cwd=away
        )
        assert outside.json()["hits"] == wanted
    tree = tmp_path / "tree"
    library.git("worktree", "add", "--quiet", "-b", "other", str(tree))
    other = Repo(tree, library.environment)
    assert ask(other, "wipe the lenses")["hits"] == wanted
    other.write("bundle/plain.md", "A paragraph about shearwaters.\n")
    other.commit("shearwaters")
    assert ids(ask(other, "--mode", "lexical", "shearwaters")) == ["plain"]
    assert ids(ask(library, "--mode", "lexical", "shearwaters")) == []


# The view


def query_lamps(repo: Repo) -> Done:
    return repo.call("query", "--format", "json", "wipe the lenses")


def test_a_deleted_view_is_made_again_and_answers_the_same(library: Repo) -> None:
    before = query_lamps(library)
    shutil.rmtree(library.root / VIEW)
    assert query_lamps(library) == before
    (library.root / VIEW / "view-4.sqlite").unlink()
    assert query_lamps(library) == before


def overwrite(file: Path) -> None:
    file.write_bytes(b"garbage " * 4000)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def delete(file: Path) -> None:
    file.unlink()


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def scramble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:] = random.Random(1).randbytes(len(content) - 4096)
    file.write_bytes(content)


def assert_said_once(done: Done, before: Done, sentence: str) -> None:
    first, rest = done.err.split("\n", 1)
    assert sentence in first
    assert Done(done.code, done.out, rest) == before


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("view-4.sqlite", overwrite),
        ("view-4.sqlite", empty),
        ("view-4.sqlite", halve),
        pytest.param("view-4.sqlite", scramble),
        pytest.param("matrix-*.f32", delete),
        pytest.param("matrix-*.f32", halve),
        ("cache-2.sqlite", overwrite),
        ("cache-2.sqlite", halve),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_damaged_view_is_made_again(
    library: Repo, name: str, damage: Callable[[Path], None]
) -> None:
    before = query_lamps(library)
    (file,) = (library.root / VIEW).glob(name)
    damage(file)
    if name.startswith("cache"):  # a query whose view is current doesn't read it
        assert query_lamps(library) == before
    else:
        assert_said_once(query_lamps(library), before, "the local view was damaged")
    assert query_lamps(library) == before


def test_two_queries_at_once_make_a_missing_view(library: Repo) -> None:
    before = query_lamps(library)
    shutil.rmtree(library.root / VIEW)
    query = ("query", "--format", "json", "wipe the lenses")
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: library.kbindex(*query), range(3)))
    assert answers == [before] * 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="threads are counted on Linux")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a single core needs no threads")
def test_a_query_starts_no_threads(shared: Repo) -> None:
    code = (
        "import pathlib, sys; from kbindex.cli import app; "
        "app(['query', 'lenses'], standalone_mode=False); "
        "print('numpy' in sys.modules, pathlib.Path('/proc/self/status').read_text())"
    )
    environment = {k: v for k, v in shared.environment.items() if k != "OPENBLAS_NUM_THREADS"}
    done = run_program(sys.executable, "-c", code, cwd=shared.root, environment=environment)
    assert "True Name:" in done.out
    assert "Threads:\t1\n" in done.out


def test_a_query_with_a_current_view_imports_nothing_heavy(shared: Repo) -> None:
    assert query_lamps(shared).code == 0
    loaded = {name.split(".")[0] for name in imported_modules(shared, "query", "wipe the lenses")}
    assert "kbindex" in loaded
    assert "numpy" in loaded
    servers = {"ollama", "httpx", "pydantic"}  # and nothing of a server it does not ask
    assert not loaded & servers
    assert not loaded & {"lancedb", "pyarrow", "markdown_it", "tiktoken", "yaml"}


def _as_unprivileged(repo: Repo, *arguments: str) -> Done:
    """Run kbindex so that file permissions count, also for root."""
    command = [sys.executable, "-m", "kbindex", *arguments]
    if os.geteuid() == 0:
        dropped = "-dac_override,-dac_read_search,-fowner"
        command = ["setpriv", "--bounding-set", dropped, "--inh-caps", dropped, *command]
    return run_program(*command, cwd=repo.root, environment=repo.environment)


@pytest.fixture
def read_only(library: Repo) -> Iterator[Callable[[], Repo]]:
    """Take every permission to write from the library, once a test is ready for it."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root can't be restricted here")
    changed = []

    def restrict() -> Repo:
        for place in [library.root, *library.root.rglob("*")]:
            if not place.is_symlink():
                changed.append((place, place.stat().st_mode))
                place.chmod(place.stat().st_mode & ~0o222)
        return library

    yield restrict
    for place, mode in changed:
        place.chmod(mode)


_READ_ONLY = "the lock is taken where nothing can be written: PermissionError, exit 70"


@pytest.mark.parametrize(
    "has_view",
    [True, pytest.param(False, id="False")],
)
def test_a_repository_that_cannot_be_written_can_be_searched(
    library: Repo, read_only: Callable[[], Repo], has_view: bool
) -> None:
    before = query_lamps(library)
    if not has_view:
        shutil.rmtree(library.root / VIEW)
    read_only()
    done = _as_unprivileged(library, "query", "--format", "json", "wipe the lenses")
    assert done.code == 0, done.err
    assert done.json() == before.json()


def test_a_matrix_that_holds_no_numbers_is_made_again(library: Repo) -> None:
    before = query_lamps(library)
    (matrix,) = (library.root / VIEW).glob("matrix-*.f32")
    content = bytearray(matrix.read_bytes())
    content[100:2000] = b"\xff" * 1900
    matrix.write_bytes(content)
    assert_said_once(query_lamps(library), before, "the local view was damaged")
    assert query_lamps(library) == before


def test_a_document_in_an_unresolved_merge_is_searched_as_it_was(library: Repo) -> None:
    library.git("checkout", "--quiet", "-b", "other")
    library.write("bundle/plain.md", "Just a wolverine, without any heading.\n")
    library.commit("theirs")
    library.git("checkout", "--quiet", "-")
    library.write("bundle/plain.md", "Just an otter, without any heading.\n")
    library.commit("ours")
    library.git("merge", "other", check=False)
    assert library.git("diff", "--name-only", "--diff-filter=U").split()
    done = library.call("query", "--format", "json", "--mode", "lexical", "otter")
    assert ids(done.json()) == ["plain"]
    assert "bundle/plain.md" in done.err, "that it is not settled is said"
    assert library.call("get", "plain").out == "Just an otter, without any heading.\n"
    assert library.call("status", "--format", "json").json()["documents"] == len(DOCUMENTS)


def test_a_name_that_no_file_can_have_is_an_ordinary_one(library: Repo) -> None:
    long = "long-" * 80 + "long"
    library.write("bundle/long.md", f"# t\n\n## {long.replace('-', ' ')}\n\nferret\n")
    index(library)
    hit = ask(library, "ferret")["hits"][0]
    assert hit["matched_section"]["anchor"] == long
    assert "ferret" in library.call("get", f"long#{long}").out
    for name in ("x" * 300, f"long#{'x' * 300}"):
        done = library.call("get", name)
        assert done.code == 2, done.err
