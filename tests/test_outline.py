"""Outlines: their text, and the proof that they describe a document."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kbindex.configuration.recipe import key_of
from kbindex.core.model import NOT_EMBEDDED, EmbedderIdentity, Entry, Line, Region
from kbindex.document.chunk import Limits, chunk, refine
from kbindex.document.compose import compose
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.outline.file import (
    ConflictMarkers,
    OutlineMismatch,
    make_entries,
    parse_outline,
    render_outline,
    verify_outline,
)

pytestmark = pytest.mark.quick

IDENTITY = EmbedderIdentity("hash", "features", "1", 256)

TEXT = """\
---
type: Note
title: Lamps
description: How they are kept.
tags: [tower, light]
owner: Ada
---

The lamps burn paraffin.

# Care

## Cleaning

Wipe the lenses each morning.

## Notes

Spare wicks are in the cellar.
"""
TABLE = "| Name | Value |\n|---|---|\n" + "".join(f"| row {i} | of a table |\n" for i in range(120))


def build(text: str) -> list[Entry]:
    document = parse(text)
    regions = chunk(document, Limits(384), count_tokens, token_starts)
    return make_entries(compose(text, document.frontmatter, regions), IDENTITY)


def is_accepted(text: str, entries: list[Entry]) -> bool:
    try:
        verify_outline(text, entries, IDENTITY)
    except OutlineMismatch:
        return False
    return True


def mismatch(text: str, entries: list[Entry]) -> OutlineMismatch:
    with pytest.raises(OutlineMismatch) as caught:
        verify_outline(text, entries, IDENTITY)
    return caught.value


# Documents

_words = st.lists(
    st.sampled_from(["lamp", "oil", "wick", "Glass", "kept.", "漢字", "é", "a|b", "x"]), max_size=9
).map(" ".join)
_blocks = st.one_of(
    st.tuples(st.integers(1, 6), _words, st.sampled_from(["", " #"])).map(
        lambda parts: f"{'#' * parts[0]} {parts[1]}{parts[2]}"
    ),
    st.tuples(_words, st.sampled_from("=-")).map(lambda parts: f"x {parts[0]}\n{parts[1] * 3}"),
    _words,
    st.tuples(_words, st.integers(2, 90)).map(
        lambda parts: f"{parts[0]} and so on. " * parts[1] + "\n"
    ),
    st.integers(1, 120).map(lambda n: "| a | b |\n|--|--|\n" + "| one | more row |\n" * n),
    st.integers(1, 60).map(lambda n: "\n".join(f"- item {i} of it" for i in range(n))),
    st.sampled_from(
        ["```\n# no\n```", "> quote\n> # no", "---", "\t", " ", "y\x0c", "a\x00b", "x\ufeff"]
    ),
)
_fronts = st.sampled_from(
    [
        "",
        "",
        "---\ntitle: Lamps\ntags: [a, b]\n---\n",
        "---\nowner: Ada\n---\n\n",
        "---\ntitle: A: b\n---\n",
        "---\n---\n",
        "---\ndescription: >\n  " + "many words " * 120 + "\n...\n",
        "---\ntitle: open\n",
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    joint = draw(st.sampled_from(["\n\n", "\n\n", "\n"]))
    text = (
        draw(_fronts)
        + joint.join(draw(st.lists(_blocks, max_size=9)))
        + draw(st.sampled_from(["", "\n"]))
    )
    if draw(st.integers(0, 3)) == 0:
        text = text.replace("\n", "\r\n")
    return ("\ufeff" if draw(st.integers(0, 6)) == 0 else "") + text


moderate = settings(deadline=None, max_examples=150)

# The text of an outline


@given(
    st.lists(
        st.tuples(
            st.sampled_from([NOT_EMBEDDED, "0" * 32, key_of(IDENTITY, "x")]),
            st.integers(0, 10**6),
            st.integers(0, 10**6),
            st.sampled_from("0123456t"),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30),
        ),
        max_size=20,
    )
)
@moderate
def test_an_outline_survives_writing_and_reading(
    rows: list[tuple[str, int, int, str, str]],
) -> None:
    lines, at = [], 0
    for key, length, n_tokens, opens, heading in rows:
        lines.append(Line(key, Region(at, at + length, n_tokens, opens, heading)))
        at += length
    assert parse_outline(render_outline(lines)) == lines


def test_an_outline_has_a_line_a_region_and_a_blank_line_after_each() -> None:
    text = render_outline(build("# A\n\nx\n\n## B\n\ny\n"))
    one, two = (key_of(IDENTITY, shown) for shown in ("A\n# A\n\nx", "A\n## B\n\ny"))
    n, m = count_tokens("# A\n\nx\n\n"), count_tokens("## B\n\ny\n")
    assert text == f"{one}\t8\t{n}\t1\tA\n\n{two}\t8\t{m}\t2\tB\n\n"


def test_an_empty_outline_is_that_of_an_empty_document() -> None:
    assert render_outline(build("")) == ""
    assert parse_outline("") == []
    assert verify_outline("", [], IDENTITY) == []


@given(documents())
@moderate
def test_the_outline_of_any_document_survives_writing_and_reading(text: str) -> None:
    entries = build(text)
    assert parse_outline(render_outline(entries)) == [entry.line for entry in entries]


KEY = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        f"{KEY}",
        f"{KEY}\t1\t1\t0",
        f"{KEY[:-1]}\t1\t1\t0\t",
        f"{KEY}0\t1\t1\t0\t",
        f"{KEY.upper()}\t1\t1\t0\t",
        f"{KEY}\t-1\t1\t0\t",
        f"{KEY}\t+1\t1\t0\t",
        f"{KEY}\t01\t1\t0\t",
        f"{KEY}\t1_0\t1\t0\t",
        f"{KEY}\t１\t1\t0\t",
        f"{KEY}\t1.0\t1\t0\t",
        f"{KEY}\t99999999999999999999999\t1\t0\t",
        f"{KEY}\t1\t\t0\t",
        f"{KEY}\t1\t1\t7\t",
        f"{KEY}\t1\t1\tT\t",
        f"{KEY}\t1\t1\t\t",
        f"{KEY} 1 1 0 ",
        f" {KEY}\t1\t1\t0\t",
        "\ufeff" + f"{KEY}\t1\t1\t0\t",
        "--\t1\t1\t0\t",
        " ",
        "\r",
        "# comment",
        "version https://git-lfs.github.com/spec/v1",
    ],
)
def test_a_line_that_kbindex_would_not_write_is_refused_with_its_number(line: str) -> None:
    good = f"{KEY}\t5\t1\t0\t\n\n"
    with pytest.raises(OutlineMismatch, match="line 3 ") as caught:
        parse_outline(f"{good}{line}\n\n{good}")
    assert caught.value.char_start == 5


def test_rewritten_line_endings_are_noticed() -> None:
    text = render_outline(build(TEXT)).replace("\n", "\r\n")
    try:
        entries = parse_outline(text)
    except OutlineMismatch:
        return
    assert not is_accepted(TEXT, entries)


@pytest.mark.parametrize("marker", ["<<<<<<< ours", "=======", ">>>>>>> theirs", "||||||| base"])
def test_conflict_markers_are_named_as_such(marker: str) -> None:
    text = render_outline(build(TEXT))
    with pytest.raises(ConflictMarkers):
        parse_outline(text + f"{marker}\n" + text)


@given(st.text(max_size=80) | st.text("0123456789abcdef\t\n-t", max_size=120))
@moderate
def test_any_text_is_an_outline_or_a_mismatch(text: str) -> None:
    try:
        entries = parse_outline(text)
    except OutlineMismatch:
        return
    assert [line for line in text.split("\n") if line] == [
        line for line in render_outline(entries).split("\n") if line
    ]


# What is accepted


@given(documents())
@moderate
def test_what_building_makes_is_accepted(text: str) -> None:
    entries = build(text)
    assert verify_outline(text, [entry.line for entry in entries], IDENTITY) == entries


@given(documents(), st.sampled_from([60, 120]))
@moderate
def test_a_finer_outline_is_accepted(text: str, maximum: int) -> None:
    document = parse(text)
    regions = []
    for region in chunk(document, Limits(384), count_tokens, token_starts):
        body = text[region.char_start : region.char_end]
        # Text above a table that is cut further is tried on its own below.
        mixed = body.find("|--|") > 20 or body.count("|--|") > 1
        if region.char_end <= document.frontmatter.end or region.n_tokens < maximum or mixed:
            regions.append(region)
        else:
            regions += refine(document, region, maximum, count_tokens, token_starts)
    entries = make_entries(compose(text, document.frontmatter, regions), IDENTITY)
    assert is_accepted(text, entries)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "a\n\u00a0\nb\n===\n\nx\n",
        ),
        pytest.param(
            "a\n\x0b\n---\n\nx\n",
        ),
        "".join(f"| column {i} " for i in range(60))
        + f"|\n{'|---' * 60}|\n"
        + "| v " * 999
        + "|\n",
        "A sentence of a paragraph. " * 120 + "\n---\n\nx\n",
        pytest.param(
            "---\ntitle: T\n---\n\ufeff# A\n\nx\n",
        ),
        "\ufeff# A\n\nx\n",
        "\n \n# A\n\nx\n",
        "\ufeff\n\n" + TABLE,
        "   \n\n" + TABLE.replace("\n", "\r\n"),
        "# A\n\n" + TABLE,
        "---\r\ntitle: T\r\n---\r\n" + TABLE.replace("\n", "\r"),
        "A\n===\n\nB\n---\nx\n",
        "a\rb\r===\r\rx",
        "[ref]: /url\nTitle\n===\n",
        "# a\u2028b\n\nx\n",
        "# a\tb\n\nx\n",
        "---\ntitle: T\n---",
    ],
)
def test_what_building_makes_of_an_odd_document_is_accepted(text: str) -> None:
    verify_outline(text, parse_outline(render_outline(build(text))), IDENTITY)


@pytest.mark.parametrize("maximum", [20, 40])
def test_a_finer_outline_of_text_above_a_cut_table_is_accepted(maximum: int) -> None:
    text = "A paragraph of a few words, and one more sentence. " * 6 + "\n\n" + TABLE
    document = parse(text)
    regions = chunk(document, Limits(384), count_tokens, token_starts)
    finer = refine(document, regions[0], maximum, count_tokens, token_starts)
    chunks = compose(text, document.frontmatter, [*finer, *regions[1:]])
    assert is_accepted(text, make_entries(chunks, IDENTITY))


# What is refused


def _invisible(text: str) -> str:
    """Return ``text`` without white space and heading marks."""
    return re.sub(r"[\s\ufeff#=-]+", "", text)


@given(documents(), st.data())
@settings(deadline=None, max_examples=300)
def test_any_edit_of_a_visible_character_of_the_body_is_refused(
    text: str, data: st.DataObject
) -> None:
    start = parse(text).frontmatter.end
    assume(start < len(text))
    at = data.draw(st.integers(start, len(text) - 1))
    new = data.draw(st.sampled_from("aA1|#=- \n\t\u00a0漢\u0301.`") | st.characters(codec="utf-8"))
    how = data.draw(st.sampled_from(["replace", "insert", "delete"]))
    kept = at if how == "insert" else at + 1
    edited = text[:at] + ("" if how == "delete" else new) + text[kept:]
    assume(edited != text)
    assume(parse(text).frontmatter == parse(edited).frontmatter)
    if is_accepted(edited, build(text)):
        assert how == "replace"
        assert _invisible(edited) == _invisible(text)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_any_edit_of_the_title_description_or_tags_is_refused(data: st.DataObject) -> None:
    place = data.draw(
        st.sampled_from(
            [
                i
                for word in ("Lamps\n", "How they", "are kept", "tower", "light]")
                for i in range(TEXT.index(word), TEXT.index(word) + len(word) - 1)
            ]
        )
    )
    new = data.draw(st.sampled_from("qQ7é漢"))
    assert not is_accepted(TEXT[:place] + new + TEXT[place + 1 :], build(TEXT))


@pytest.mark.parametrize(
    ("old", "new"), [("owner: Ada", "owner: Bob"), ("type: Note", "type: Memo")]
)
def test_a_frontmatter_key_that_is_not_embedded_may_change(old: str, new: str) -> None:
    assert is_accepted(TEXT.replace(old, new), build(TEXT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Lamps", "Lumps"),
        ("title: Lamps", "titel: Lamps"),
        ("tower, light", "light, tower"),
        ("kept.", "held."),
        ("# Care", "# Rare"),
        ("# Care", "## are"),
        ("# Care\n", "Care:\n\n"),
        ("## Cleaning", "# Cleaning "),
        ("## Cleaning", "###Cleaning"),
        ("## Cleaning", "## cleaning"),
        ("## Notes", "\\# Notes"),
        ("cellar", "attic!"),
        ("morning", "evening"),
        ("owner: Ada\n---", "owner: Ada\n--x"),
        ("---\ntype", "--x\ntype"),
    ],
)
def test_a_changed_document_of_the_same_length_is_refused(old: str, new: str) -> None:
    edited = TEXT.replace(old, new, 1)
    assert (edited != TEXT, len(edited)) == (True, len(TEXT))
    mismatch(edited, build(TEXT))


def test_a_mismatch_is_located_at_the_changed_passage() -> None:
    edited = TEXT.replace("cellar", "attic!")
    found = mismatch(edited, build(TEXT))
    assert edited[found.char_start :].startswith("## Notes")


@pytest.mark.parametrize("change", [-3, -1, 1, 7])
def test_another_length_is_refused(change: int) -> None:
    text = TEXT[:change] if change < 0 else TEXT + "x" * change
    assert "characters" in mismatch(text, build(TEXT)).reason


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_swapped_lines_are_refused(data: st.DataObject) -> None:
    lines = render_outline(build(TEXT)).split("\n\n")[:-1]
    i, j = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True))
    lines[i], lines[j] = lines[j], lines[i]
    assert not is_accepted(TEXT, parse_outline("\n\n".join(lines)))


@pytest.mark.parametrize("text", [TEXT, "# A\n\n" + TABLE, TABLE], ids=["note", "heading", "table"])
def test_a_missing_or_repeated_line_is_refused(text: str) -> None:
    lines = render_outline(build(text)).split("\n\n")[:-1]
    for number in range(len(lines)):
        for changed in (lines[:number] + lines[number + 1 :], lines[: number + 1] + lines[number:]):
            assert not is_accepted(text, parse_outline("\n\n".join(changed)))


def _forged(change: Callable[[Entry], Entry], number: int) -> list[Entry]:
    entries = build(TEXT)
    entries[number] = change(entries[number])
    return entries


def _with_region(**values: object) -> Callable[[Entry], Entry]:
    return lambda entry: replace(entry, region=replace(entry.region, **values))


EMBEDDED = [number for number, entry in enumerate(build(TEXT)) if entry.key != NOT_EMBEDDED]
SILENT = [number for number, entry in enumerate(build(TEXT)) if entry.key == NOT_EMBEDDED]


@pytest.mark.parametrize("number", EMBEDDED)
@pytest.mark.parametrize("key", [NOT_EMBEDDED, "0" * 32, key_of(IDENTITY, "")])
def test_no_key_can_be_forged_to_hide_text(number: int, key: str) -> None:
    assert not is_accepted(TEXT, _forged(lambda entry: replace(entry, key=key), number))


@pytest.mark.parametrize("number", SILENT)
def test_a_silent_region_has_no_key(number: int) -> None:
    assert SILENT
    assert not is_accepted(TEXT, _forged(lambda entry: replace(entry, key=KEY), number))


@pytest.mark.parametrize("number", range(1, len(build(TEXT))))
@pytest.mark.parametrize(
    "values",
    [
        {"opens": "3", "heading": "Forged"},
        {"opens": "1", "heading": ""},
        {"opens": "0", "heading": "Forged"},
        {"opens": "t", "heading": ""},
        {"heading": "Forged"},
    ],
)
def test_no_heading_can_be_forged(number: int, values: dict[str, str]) -> None:
    forged = _forged(_with_region(**values), number)
    for keys in (False, True):
        if keys:  # Not even with the keys that would follow from the forged line.
            document = parse(TEXT)
            regions = [entry.region for entry in forged]
            forged = make_entries(compose(TEXT, document.frontmatter, regions), IDENTITY)
        assert not is_accepted(TEXT, forged)


def test_a_demoted_heading_with_matching_keys_hides_no_text() -> None:
    forged = _forged(_with_region(opens="0", heading=""), 3)
    regions = [entry.region for entry in forged]
    chunks = compose(TEXT, parse(TEXT).frontmatter, regions)
    assert all(
        one.shown is not None or not re.search(r"[a-z]", TEXT[one.region.char_start :][:1])
        for one in chunks
    )


@pytest.mark.parametrize("number", EMBEDDED)
def test_two_regions_cannot_be_merged_under_one_key(number: int) -> None:
    entries = build(TEXT)
    if number + 1 == len(entries):
        return
    one, two = entries[number : number + 2]
    merged = replace(one, region=replace(one.region, char_end=two.region.char_end))
    assert not is_accepted(TEXT, [*entries[:number], merged, *entries[number + 2 :]])


def test_a_heading_renamed_above_untouched_text_is_refused_there() -> None:
    old, new = build(TEXT), build(TEXT.replace("# Care", "# Rare"))
    text = TEXT.replace("# Care", "# Rare")
    changed = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    assert len(changed) == 3
    mixed = [b if a.region.heading == "Care" else a for a, b in zip(old, new, strict=True)]
    assert text[mismatch(text, mixed).char_start :].startswith("## Cleaning")


def test_a_changed_title_makes_every_chunk_below_it_stale() -> None:
    text = TEXT.replace("title: Lamps", "title: Lumps")
    old, new = build(TEXT), build(text)
    mixed = [new[0], *old[1:]]
    assert text[mismatch(text, mixed).char_start :].startswith("The lamps")


def test_a_changed_table_header_makes_the_pieces_below_it_stale() -> None:
    text = TABLE.replace("Value", "Worth")
    old, new = build(TABLE), build(text)
    assert len(old) > 2
    assert not {a.key for a in old} & {b.key for b in new}
    assert mismatch(text, [new[0], *old[1:]]).char_start == old[1].region.char_start


def test_a_table_piece_without_a_table_above_it_is_refused() -> None:
    entries = build(TABLE)
    text = TABLE.replace("|---|---|", "|...|...|")
    assert "table" in mismatch(text, entries).reason
    assert not is_accepted(
        TABLE, [replace(entries[0], region=replace(entries[0].region, opens="t"))]
    )


def test_another_embedder_has_other_keys() -> None:
    with pytest.raises(OutlineMismatch):
        verify_outline(TEXT, build(TEXT), replace(IDENTITY, digest="2"))


def test_a_document_that_gained_a_frontmatter_is_stale() -> None:
    body = "x" * 9
    assert not is_accepted("---\n---\n" + body[:1], build(body))


@pytest.mark.parametrize("n_words", [150, 400])
def test_each_piece_of_long_metadata_is_proven(n_words: int) -> None:
    text = f"---\ntitle: {' '.join(f'word{i}' for i in range(n_words))}\n---\nBody\n"
    entries = build(text)
    assert len(entries) > 2
    verify_outline(text, entries, IDENTITY)
    for number in range(len(entries) - 1):
        assert not is_accepted(text, entries[:number] + entries[number + 1 :])


# Locality


@pytest.mark.parametrize("seed", range(6))
def test_editing_one_sentence_changes_few_lines(seed: int) -> None:
    rng = random.Random(seed)
    words = ["lamp", "oil", "wick", "glass", "tower", "keeper", "morning", "cellar", "storm"]
    sentences = [" ".join(rng.choices(words, k=12)).capitalize() + "." for _ in range(900)]
    text = "\n\n".join(" ".join(sentences[i : i + 6]) for i in range(0, 900, 6))
    at = rng.randrange(900)
    edited = text.replace(sentences[at], "A new sentence stands here.", 1)
    old, new = (render_outline(build(one)).split("\n") for one in (text, edited))
    assert len(old) > 60
    assert len(set(new) - set(old)) <= 3


def test_a_section_added_at_the_top_changes_no_line_below() -> None:
    old = render_outline(build("# A\n\nx\n\n## B\n\ny\n\n## C\n\nz\n")).split("\n")
    new = render_outline(build("# A\n\nx\n\n## New\n\nn\n\n## B\n\ny\n\n## C\n\nz\n")).split("\n")
    assert len(set(new) - set(old)) == 1
    assert not set(old) - set(new)
