"""What is printed: the JSON schema, text, GitHub annotations and SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.core.model import (
    Answer,
    Coverage,
    EmbedderIdentity,
    Found,
    Hit,
    Problem,
    Rule,
)
from kbindex.core.text import printable
from kbindex.output.formats import Format
from kbindex.output.render import (
    render_answer,
    render_check,
    render_facts,
    to_json,
)

pytestmark = pytest.mark.quick

HIT = Hit(
    rank=1,
    id="procedures/rotate-keys",
    path="bundle/procedures/rotate-keys.md",
    title="Rotate the signing keys",
    type="Procedure",
    status=None,
    score=0.8312345,
    similarity=0.8712345,
    matched_by=("dense", "lexical"),
    heading=("Rotation", "On the primary"),
    anchor="on-the-primary",
    first_line=41,
    last_line=63,
    char_start=1532,
    char_end=2610,
    blob="3f1c" * 10,
)
ANSWER = Answer(
    query="how are keys rotated",
    mode="hybrid",
    degraded=None,
    embedder=EmbedderIdentity("builtin", "multilingual-e5-small-q4", "1" * 64, 384),
    stale=(),
    coverage=Coverage(31, 212, 212, 212),
    found=Found((HIT,), n_lexical=100, n_dense=100),
)


def with_hits(*hits: Hit) -> Answer:
    return replace(ANSWER, found=replace(ANSWER.found, hits=hits))


MENDED = "the heading changed (remedy: kbindex update)"
PROBLEM = Problem(Rule.STALE_DOCUMENT, "bundle/a.md", "the heading changed", 12, "kbindex update")


def hit_of(**values: object) -> dict[str, object]:
    answer = with_hits(replace(HIT, **values))
    return json.loads(render_answer(answer, Format.JSON))["hits"][0]


# JSON of query


def test_the_json_of_an_answer_is_the_documented_one() -> None:
    assert json.loads(render_answer(ANSWER, Format.JSON)) == {
        "query": "how are keys rotated",
        "mode": "hybrid",
        "degraded": None,
        "index": {
            "embedder": "builtin/multilingual-e5-small-q4",
            "dimension": 384,
            "stale_documents": 0,
        },
        "retrieval": {
            "lexical": 100,
            "dense": 100,
            "fused": 1,
            "coverage": {"documents": 31, "chunks": 212, "lexical": 212, "dense": 212},
        },
        "hits": [
            {
                "rank": 1,
                "id": "procedures/rotate-keys",
                "path": "bundle/procedures/rotate-keys.md",
                "title": "Rotate the signing keys",
                "type": "Procedure",
                "score": 0.8312,
                "similarity": 0.8712,
                "matched_by": ["dense", "lexical"],
                "matched_section": {
                    "heading": ["Rotation", "On the primary"],
                    "anchor": "on-the-primary",
                },
                "lines": [41, 63],
                "span": [1532, 2610],
                "blob": "3f1c" * 10,
            }
        ],
    }


def test_the_schema_is_the_same_without_hits() -> None:
    full = json.loads(render_answer(ANSWER, Format.JSON))
    empty = json.loads(render_answer(with_hits(), Format.JSON))
    assert empty["hits"] == []
    assert list(empty) == list(full)
    assert list(empty["retrieval"]) == list(full["retrieval"])
    assert empty["retrieval"]["fused"] == 0


def test_a_missing_half_and_stale_documents_are_said() -> None:
    answer = replace(ANSWER, degraded="no embedder: words only", stale=("bundle/a.md", "b.md"))
    found = json.loads(render_answer(answer, Format.JSON))
    assert found["degraded"] == "no embedder: words only"
    assert found["index"]["stale_documents"] == 2


@pytest.mark.parametrize(
    ("values", "absent"),
    [
        ({"heading": (), "anchor": None}, "matched_section"),
        ({"similarity": None}, "similarity"),
        ({"title": None}, "title"),
        ({"type": None}, "type"),
        ({"status": None}, "status"),
        ({"text": None}, "text"),
        ({"explanation": None}, "explain"),
    ],
)
def test_what_does_not_apply_is_absent(values: dict[str, object], absent: str) -> None:
    assert absent not in hit_of(**values)


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"similarity": 0.0}, "similarity", 0.0),
        ({"score": 0.0}, "score", 0.0),
        ({"text": "Words.\n"}, "text", "Words.\n"),
        ({"text": ""}, "text", ""),
        ({"status": "deprecated"}, "status", "deprecated"),
        (
            {"explanation": {"dense": 0.5, "lexical": 0.1}},
            "explain",
            {"dense": 0.5, "lexical": 0.1},
        ),
        ({"matched_by": ()}, "matched_by", []),
        ({"heading": ("A",), "anchor": ""}, "matched_section", {"heading": ["A"], "anchor": ""}),
    ],
)
def test_what_applies_is_kept_however_small(
    values: dict[str, object], name: str, expected: object
) -> None:
    assert hit_of(**values)[name] == expected


@given(
    st.none() | st.floats(-1, 1),
    st.none() | st.text(max_size=9),
    st.lists(st.text(max_size=9), max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_no_field_of_a_hit_is_null_or_an_unaddressable_section(
    similarity: float | None, title: str | None, heading: list[str]
) -> None:
    anchor = "anchor" if heading else None
    found = hit_of(similarity=similarity, title=title, heading=tuple(heading), anchor=anchor)
    assert None not in found.values()
    assert ("matched_section" in found) == bool(heading)
    assert ("similarity" in found) == (similarity is not None)


def test_lines_of_json_are_one_hit_each() -> None:
    answer = with_hits(HIT, replace(HIT, rank=2, text="a\nb\u2028c"))
    lines = render_answer(answer, Format.JSONL).split("\n")
    assert [json.loads(line)["rank"] for line in lines] == [1, 2]
    assert json.loads(lines[0]) == hit_of()
    assert render_answer(with_hits(), Format.JSONL) == ""


def test_undecodable_bytes_of_a_path_are_valid_json_and_utf8() -> None:
    text = render_answer(with_hits(replace(HIT, path="bundle/\udcff.md")), Format.JSON)
    text.encode("utf-8")
    assert json.loads(text)["hits"][0]["path"] == "bundle/\udcff.md"


@given(st.recursive(st.text() | st.integers() | st.none() | st.booleans(), st.lists, max_leaves=8))
@settings(deadline=None, max_examples=60)
def test_json_survives_reading(value: object) -> None:
    assert json.loads(to_json(value)) == value


def test_letters_of_all_scripts_stand_in_json_as_they_are() -> None:
    assert "漢字 é 🧑‍🚀" in render_answer(replace(ANSWER, query="漢字 é 🧑‍🚀"), Format.JSON)


# Text of query


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {},
            f"{HIT.path}:41: Rotate the signing keys › Rotation › On the primary  0.83",
        ),
        (
            {"heading": (), "anchor": None},
            "bundle/procedures/rotate-keys.md:41: Rotate the signing keys  0.83",
        ),
        ({"title": None}, "bundle/procedures/rotate-keys.md:41: Rotation › On the primary  0.83"),
        (
            {"heading": (), "status": "deprecated"},
            "bundle/procedures/rotate-keys.md:41: Rotate the signing keys (deprecated)  0.83",
        ),
        (
            {"heading": (), "text": "\nOne.\n\nTwo.\n"},
            f"{HIT.path}:41: Rotate the signing keys  0.83\n    One.\n    \n    Two.",
        ),
    ],
)
def test_a_hit_is_a_line_that_editors_can_jump_to(values: dict[str, object], line: str) -> None:
    assert render_answer(with_hits(replace(HIT, **values)), Format.TEXT) == line


def test_an_explanation_shows_the_parts_and_the_similarity() -> None:
    parts = {"dense": 0.5, "lexical": 0.3312345}
    answer = with_hits(replace(HIT, explanation=parts))
    assert render_answer(answer, Format.TEXT, explain=True).split("\n")[1] == (
        "    0.8312 = dense 0.5000 + lexical 0.3312; similarity 0.8712"
    )
    unknown = with_hits(replace(HIT, explanation=parts, similarity=None))
    assert render_answer(unknown, Format.TEXT, explain=True).endswith("similarity unknown")


# Control characters

STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\r\x00\x7f\u202egnp\u2066x\u2028y\u2029z\x85w"


@given(st.text())
@settings(deadline=None, max_examples=200)
def test_nothing_that_steers_a_terminal_is_printable(text: str) -> None:
    assert not STEERING.search(printable(text))
    assert len(printable(text)) == len(text)


@pytest.mark.parametrize("field", ["path", "title", "heading", "text"])
def test_control_characters_of_a_hit_are_never_printed(field: str) -> None:
    value = (HOSTILE,) if field == "heading" else HOSTILE
    answer = with_hits(replace(HIT, **{field: value}))
    assert not STEERING.search(render_answer(answer, Format.TEXT, explain=True))


@pytest.mark.parametrize("field", ["path", "rule", "message", "remedy"])
def test_control_characters_of_a_problem_are_never_printed(field: str) -> None:
    problem = replace(PROBLEM, **{field: HOSTILE})
    for problems, notices in ([problem], []), ([], [problem]):
        text = render_check("HEAD", 1, 1, problems, notices, Format.TEXT)
        assert not STEERING.search(text)


def test_a_hit_without_text_is_one_line() -> None:
    answer = with_hits(replace(HIT, path="bundle/a\nb.md"))
    assert "\n" not in render_answer(answer, Format.TEXT)


def test_control_characters_in_json_are_escaped() -> None:
    text = render_answer(with_hits(replace(HIT, title="a\x1b[31m\x00\n")), Format.JSON)
    assert "\\u001b[31m\\u0000\\n" in text


@pytest.mark.parametrize("field", ["path", "message", "remedy"])
def test_control_characters_are_not_printed_in_annotations(field: str) -> None:
    problem = replace(PROBLEM, **{field: "a\x1b[31mred"})
    assert "\x1b" not in render_check("HEAD", 1, 1, [problem], [], Format.GITHUB)


# check


def test_the_json_of_check_is_the_documented_one() -> None:
    bare = Problem(Rule.DAMAGED_FILE, ".kbindex/recipe.json", "is not a recipe")
    found = json.loads(render_check("4b825d", 31, 212, [PROBLEM, bare], [], Format.JSON))
    assert found == {
        "fresh": False,
        "rev": "4b825d",
        "documents": 31,
        "chunks": 212,
        "problems": [
            {
                "rule": "stale-document",
                "path": "bundle/a.md",
                "line": 12,
                "message": "the heading changed",
                "remedy": "kbindex update",
            },
            {
                "rule": "damaged-file",
                "path": ".kbindex/recipe.json",
                "message": "is not a recipe",
            },
        ],
        "notices": [],
    }


def test_notices_do_not_make_an_index_stale() -> None:
    for form in Format.TEXT, Format.JSON, Format.GITHUB:
        text = render_check("HEAD", 31, 212, [], [PROBLEM], form)
        assert '"fresh": true' in text or text.endswith("fresh: 31 documents, 212 chunks")
        assert "not fresh" not in text


def test_the_text_of_check_ends_in_the_verdict() -> None:
    assert render_check("HEAD", 31, 212, [PROBLEM], [PROBLEM], Format.TEXT).split("\n") == [
        "bundle/a.md:12: stale-document: the heading changed  →  kbindex update",
        "bundle/a.md:12: stale-document: the heading changed  →  kbindex update (notice)",
        "not fresh: 1 problems in 31 documents, 212 chunks",
    ]
    assert render_check("HEAD", 0, 0, [], [], Format.TEXT) == "fresh: 0 documents, 0 chunks"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {},
            f"::error file={PROBLEM.path},line=12,title=kbindex stale-document::{MENDED}",
        ),
        (
            {"line": None, "remedy": None},
            "::error file=bundle/a.md,title=kbindex stale-document::the heading changed",
        ),
        (
            {"path": "a,b:c%d.md", "line": None, "remedy": None, "message": "50%, a: b"},
            "::error file=a%2Cb%3Ac%25d.md,title=kbindex stale-document::50%25, a: b",
        ),
        (
            {"message": "one\r\n::error::two", "line": None, "remedy": None},
            "::error file=bundle/a.md,title=kbindex stale-document::one%0A::error::two",
        ),
        (
            {"path": "a\nb.md", "line": None, "remedy": None},
            "::error file=a%0Ab.md,title=kbindex stale-document::the heading changed",
        ),
        (
            {"path": "\udcff.md", "line": None, "remedy": None},
            "::error file=\\udcff.md,title=kbindex stale-document::the heading changed",
        ),
    ],
)
def test_an_annotation_is_one_escaped_line(values: dict[str, object], line: str) -> None:
    text = render_check("HEAD", 1, 2, [replace(PROBLEM, **values)], [], Format.GITHUB)
    assert text.split("\n") == [line, "not fresh: 1 problems in 1 documents, 2 chunks"]


@given(st.text(), st.text(), st.none() | st.text())
@settings(deadline=None, max_examples=100)
def test_no_document_can_forge_an_annotation(path: str, message: str, remedy: str | None) -> None:
    problem = replace(PROBLEM, path=path, message=message, remedy=remedy)
    text = render_check("HEAD", 1, 1, [problem], [problem], Format.GITHUB)
    error, notice, verdict = text.replace("\r", "\n").split("\n")
    assert error.startswith("::error file=")
    assert notice.startswith("::notice file=")
    assert verdict.startswith("not fresh")
    properties = error.removeprefix("::error ").split("::", 1)[0]
    assert [part.split("=")[0] for part in properties.split(",")] == ["file", "line", "title"]


def test_sarif_has_the_shape_that_scanners_read() -> None:
    other = Problem(Rule.FRONTMATTER, "bundle/ä b.md", "is odd")
    found = json.loads(render_check("HEAD", 1, 1, [PROBLEM], [other], Format.SARIF))
    assert (found["version"], found["$schema"].endswith("sarif-2.1.0.json")) == ("2.1.0", True)
    [run] = found["runs"]
    assert run["tool"]["driver"] == {
        "name": "kbindex",
        "rules": [{"id": "frontmatter"}, {"id": "stale-document"}],
    }
    one, two = run["results"]
    assert one["ruleId"] == "stale-document"
    assert one["level"] == "error"
    assert one["message"] == {"text": "the heading changed Remedy: kbindex update"}
    assert one["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "bundle/a.md"},
                "region": {"startLine": 12},
            }
        }
    ]
    place = two["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "bundle/%C3%A4%20b.md"}}


def test_a_notice_is_no_error_in_sarif() -> None:
    found = json.loads(render_check("HEAD", 1, 1, [], [PROBLEM], Format.SARIF))
    assert found["runs"][0]["results"][0]["level"] == "note"


def test_sarif_without_problems_has_an_empty_run() -> None:
    [run] = json.loads(render_check("HEAD", 1, 1, [], [], Format.SARIF))["runs"]
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


def test_sarif_of_an_undecodable_path_is_utf8() -> None:
    problem = replace(PROBLEM, path="bundle/\udcff.md")
    text = render_check("HEAD", 1, 1, [problem], [], Format.SARIF)
    assert "bundle/%FF.md" in text.encode("utf-8").decode()


# status


def test_facts_are_aligned_and_nested() -> None:
    facts = {
        "documents": 3,
        "view_state": None,
        "embedder": {"name": "hash", "dimension": 256},
        "stale": ["a.md", "b.md"],
        "problems": [],
    }
    assert render_facts(facts, Format.TEXT).split("\n") == [
        "documents:  3",
        "view state: unknown",
        "embedder:",
        "  name:      hash",
        "  dimension: 256",
        "stale:",
        "  a.md",
        "  b.md",
        "problems:   none",
    ]
    assert json.loads(render_facts(facts, Format.JSON)) == facts


def test_control_characters_of_facts_are_never_printed() -> None:
    facts = {"one": HOSTILE, "many": [HOSTILE], "inner": {"deep": HOSTILE}}
    assert not STEERING.search(render_facts(facts, Format.TEXT))
