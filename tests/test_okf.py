"""Frontmatter, headings and blocks: what the parser sees, and that no content makes it raise."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbindex.core.model import Frontmatter
from kbindex.document.markdown import (
    METADATA_PIECE,
    UnreadableDocument,
    decode,
    document_type,
    match_heading,
    metadata_pieces,
    parse,
    parse_frontmatter,
)

pytestmark = pytest.mark.quick

NULL = "the style of a plain scalar is '' with libyaml's loader, None only without it"

# decode


@pytest.mark.parametrize(
    "text", ["", "plain\n", "\ufeffwith a mark\r\n", "a\rb\n\rc", "\x00\x0c\u2028", "héé 漢字 🧑‍🚀"]
)
def test_decoding_keeps_every_character_newlines_and_byte_order_mark_included(text: str) -> None:
    assert decode(text.encode()) == text


@pytest.mark.parametrize(
    ("blob", "line", "words"),
    [
        (b"caf\xe9\n", 1, "not UTF-8 (byte 0xe9 at 3)"),
        (b"one\ntwo\nthr\xff\n", 3, "not UTF-8 (byte 0xff at 11)"),
        (b"\xff\xfea\x00\n\x00", 1, "not UTF-8 (byte 0xff at 0)"),
        (b"surrogate \xed\xa0\x80", 1, "not UTF-8"),
        (b"cut \xf0\x9f\xa7", 1, "not UTF-8"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", 1, "LFS pointer"),
    ],
)
def test_a_blob_that_is_no_text_is_named_with_its_line(blob: bytes, line: int, words: str) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        decode(blob)
    assert caught.value.line == line
    assert words in caught.value.reason


# Frontmatter: where it ends


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\ntitle: T\n---\nBody\n", "Body\n"),
        ("---\ntitle: T\n...\nBody\n", "Body\n"),
        ("---\ntitle: T\n---\n\n \t\n\nBody\n", "Body\n"),
        ("---  \ntitle: T\n---\t \nBody", "Body"),
        ("---\r\ntitle: T\r\n---\r\n\r\nBody\r\n", "Body\r\n"),
        ("\ufeff---\ntitle: T\n---\nBody\n", "Body\n"),
        ("\ufeff---\r\ntitle: T\r\n...\r\nBody\r\n", "Body\r\n"),
        ("---\ntitle: T\n---", ""),
        ("---\ntitle: T\n---\n", ""),
        ("---\ntitle: T\nx: |\n  ---\n---\nBody", "Body"),
        ("---\ntitle: T\n---\n---\nBody", "---\nBody"),
        pytest.param(
            "---\rtitle: T\r---\rBody",
            "Body",
        ),
    ],
)
def test_the_body_begins_after_the_closing_line_and_its_blank_lines(text: str, body: str) -> None:
    found = parse_frontmatter(text)
    assert (found.title, text[found.end :], found.problems) == ("T", body, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---",
        "---\n",
        "---\ntitle: never closed\n",
        "---\ntitle: T\n----\nBody\n",
        "---\ntitle: T\n --- \nBody\n",
        "----\ntitle: T\n----\n",
        " ---\ntitle: T\n---\n",
        "\n---\ntitle: T\n---\n",
        "--- title: T\n---\n",
        "---\njust a sentence between two rules\n---\n",
        "---\n- a\n- list\n---\n",
        "---\n\nWhat a rule, she said\n\n---\n",
        "+++\ntitle = 'T'\n+++\n",
    ],
)
def test_a_rule_or_an_unclosed_block_is_body(text: str) -> None:
    assert parse_frontmatter(text) == Frontmatter()


@pytest.mark.parametrize(
    "text", ["---\n---\nBody", "---\n\n---\nBody", "---\n# only this\n---\nBody"]
)
def test_an_empty_block_is_frontmatter_without_values(text: str) -> None:
    assert parse_frontmatter(text) == Frontmatter(end=text.index("Body"))


# Frontmatter: values


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Plain", "Plain"),
        ('"Quoted: with a colon"', "Quoted: with a colon"),
        ("'It''s'", "It's"),
        ("2024-01-02", "2024-01-02"),
        ("1.10", "1.10"),
        ("0x1F", "0x1F"),
        ("no", "no"),
        ("true", "true"),
        ("1e3", "1e3"),
        ("12:30:00", "12:30:00"),
        pytest.param(
            "~",
            None,
        ),
        pytest.param(
            "null",
            None,
        ),
        ("", None),
        ('""', None),
        ('"~"', "~"),
        ("'null'", "null"),
        (">\n  folded\n  lines", "folded lines"),
        ("|\n  kept\n  lines", "kept lines"),
        ('"漢字 🧑‍🚀"', "漢字 🧑‍🚀"),
        ("a   b\tc", "a b c"),
        ("T # a comment", "T"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_scalars_stay_the_text_that_was_written(written: str, title: str | None) -> None:
    found = parse_frontmatter(f"---\ntitle: {written}\n---\n")
    assert (found.title, found.problems) == (title, ())


@pytest.mark.parametrize(
    ("written", "tags"),
    [
        ("[a, b]", ("a", "b")),
        ("\n  - a\n  - b c", ("a", "b c")),
        ("\n- a\n- b", ("a", "b")),
        ("a, b", ("a", "b")),
        ("single", ("single",)),
        ('"x, y"', ("x", "y")),
        ("[1.10, yes, 2024-01-02]", ("1.10", "yes", "2024-01-02")),
        ("[a, '', b]", ("a", "b")),
        pytest.param(
            "[a, null, ~, b]",
            ("a", "b"),
        ),
        ("[[nested], {a: b}, c]", ("c",)),
        ("[]", ()),
        ("", ()),
        ("{a: b}", ()),
        (", ,", ()),
        ("['a, b']", ("a, b",)),
    ],
)
def test_tags_are_a_list_or_words_between_commas(written: str, tags: tuple[str, ...]) -> None:
    assert parse_frontmatter(f"---\ntags: {written}\n---\n").tags == tags


def test_every_known_key_is_read_and_unknown_ones_are_ignored() -> None:
    found = parse_frontmatter(
        "---\ntype: Note\ntitle: T\ndescription: D\ntags: [x]\nstatus: deprecated\n"
        "other: {deep: [1]}\n? [complex, key]\n: value\nTitle: no\n---\n"
    )
    assert (found.type, found.title, found.description, found.tags, found.status) == (
        "Note",
        "T",
        "D",
        ("x",),
        "deprecated",
    )
    assert found.problems == ()


@pytest.mark.parametrize(
    ("path", "declared", "kind"),
    [
        ("a/index.md", None, "Index"),
        ("log.md", None, "Log"),
        ("log.md", "Diary", "Diary"),
        ("a/note.md", None, None),
        ("a/catalog.md", None, None),
    ],
)
def test_a_reserved_file_name_is_the_type_where_none_is_declared(
    path: str, declared: str | None, kind: str | None
) -> None:
    assert document_type(path, declared) == kind


# Frontmatter: problems


@pytest.mark.parametrize(
    ("source", "line", "title", "words"),
    [
        ("type: Note\ntitle: Foo: bar\n", 3, "Foo: bar", "not valid YAML"),
        ("title: T\n\tx: y\n", 3, "T", "not valid YAML"),
        ("title: T\na: [1, 2\nb: 3\n", 4, "T", "not valid YAML"),
        ("title: T\nx: *nowhere\n", 3, "T", "undefined alias"),
        ("title: T\na: 'open\n", 4, "T", "not valid YAML"),
        ("title: T\nx: @at\n", 3, "T", "not valid YAML"),
        ("title: T\nx: {{ template }}{% if %}\n", 3, "T", "not valid YAML"),
        ('title: "quoted\nx: [\n', 4, "quoted", "not valid YAML"),
    ],
)
def test_invalid_yaml_is_salvaged_and_reported_with_its_line(
    source: str, line: int, title: str, words: str
) -> None:
    text = f"---\n{source}---\nBody\n"
    found = parse_frontmatter(text)
    assert (found.title, text[found.end :]) == (title, "Body\n")
    [(where, message)] = found.problems
    assert (where, words in message) == (line, True), message


def test_salvage_reads_all_the_known_keys() -> None:
    found = parse_frontmatter(
        "---\ntitle: A: b\ndescription: 'D: d'\ntags: [x, \"y\"]\ntype: Note\nstatus: draft\n---\n"
    )
    assert (found.title, found.description, found.tags) == ("A: b", "D: d", ("x", "y"))
    assert (found.type, found.status) == ("Note", "draft")


def test_a_control_character_in_the_frontmatter_is_not_called_nesting() -> None:
    [(line, message)] = parse_frontmatter("---\ntype: Note\ntitle: a\x07b\n---\n").problems
    assert "nested" not in message
    assert line == 3


def test_a_duplicate_key_is_reported_and_the_last_one_counts() -> None:
    found = parse_frontmatter("---\ntitle: A\ntype: N\ntitle: B\n---\n")
    assert found.title == "B"
    assert found.problems == ((4, "'title' stands twice"),)


@pytest.mark.parametrize("name", ["title", "description", "type", "status"])
def test_a_list_where_a_text_belongs_is_reported_and_not_read(name: str) -> None:
    found = parse_frontmatter(f"---\nx: y\n{name}: [a, b]\n---\n")
    assert getattr(found, name) is None
    assert found.problems == ((3, f"'{name}' is not a text"),)


@pytest.mark.parametrize(
    "source",
    [
        "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a]\n" for i in range(50)),
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60)),
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
        "a: " + "[" * 300 + "]" * 300 + "\n",
        "a: " + "[" * 100_000 + "]" * 100_000 + "\n",
        "a: " + "{b: " * 50_000 + "}" * 50_000 + "\n",
        "a:\n  " + "- " * 50_000 + "x\n",
        "".join(f"key{i}: value\n" for i in range(60_000)),
        "a: " + "y" * 1_000_000 + "\n",
        "a: !!python/object/apply:os.system [id]\n",
        "a: \x00\n",
    ],
    ids=[
        *("wide", "exponential", "cycle", "merge", "deep", "deeper"),
        *("maps", "dashes", "keys", "scalar", "tag", "nul"),
    ],
)
def test_hostile_frontmatter_is_read_in_seconds_and_runs_nothing(source: str) -> None:
    text = f"---\ntitle: T\n{source}---\nBody\n"
    started = time.monotonic()
    found = parse_frontmatter(text)
    assert time.monotonic() - started < 10
    assert (found.title, text[found.end :]) == ("T", "Body\n")


def test_aliased_tags_are_not_expanded() -> None:
    found = parse_frontmatter("---\na: &a [x, x]\nt: &t word\ntags: [*a, *t, *t]\n---\n")
    assert found.tags == ("word", "word")


# Metadata


@given(
    st.text("ab \n-é", max_size=1500),
    st.none() | st.text("xy ", max_size=900),
    st.lists(st.text("tuv", min_size=1, max_size=9), max_size=99),
)
@settings(deadline=None, max_examples=60)
def test_metadata_pieces_add_up_and_none_is_too_long(
    title: str, description: str | None, tags: list[str]
) -> None:
    pieces = metadata_pieces(Frontmatter(1, title or None, description, tuple(tags)))
    whole = "\n".join(part for part in (title, description, ", ".join(tags)) if part)
    assert "".join(pieces) == whole
    assert all(0 < len(piece) <= METADATA_PIECE for piece in pieces)


def test_metadata_is_cut_between_words() -> None:
    words = [f"word{i}" for i in range(200)]
    pieces = metadata_pieces(Frontmatter(1, " ".join(words)))
    assert len(pieces) > 2
    assert [word for piece in pieces for word in piece.split()] == words


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301",
        "🧑\u200d🚀",
        pytest.param(
            "कि",
        ),
        pytest.param(
            "❤\ufe0f",
        ),
        pytest.param(
            "👍🏽",
        ),
    ],
)
def test_metadata_without_spaces_is_not_cut_inside_a_character(cluster: str) -> None:
    for shift in range(len(cluster)):
        first, *_ = metadata_pieces(Frontmatter(1, "x" * shift + cluster * 400))
        assert (len(first) - shift) % len(cluster) == 0


# Headings


def _headings(text: str) -> list[tuple[int, str, int]]:
    return [(h.level, h.text, h.char_start) for h in parse(text).headings]


@pytest.mark.parametrize(
    ("source", "level", "heading"),
    [
        ("# One", 1, "One"),
        ("###### Six", 6, "Six"),
        ("## Two ##", 2, "Two"),
        ("## Two ########  ", 2, "Two"),
        ("# Not closed#", 1, "Not closed#"),
        ("# Escaped \\#", 1, "Escaped \\#"),
        ("# C# and F# #", 1, "C# and F#"),
        ("#\tTab\t#", 1, "Tab"),
        ("#   Many   spaces   ", 1, "Many spaces"),
        ("   ### Indented", 3, "Indented"),
        ("#", 1, ""),
        ("## ##", 2, ""),
        ("### #", 3, ""),
        ("# *em* `code` [l](u) <b>x</b>", 1, "*em* `code` [l](u) <b>x</b>"),
        ("Setext\n===", 1, "Setext"),
        ("Setext\n---", 2, "Setext"),
        ("Setext\n=", 1, "Setext"),
        ("Over\n  two lines\n=====  ", 1, "Over two lines"),
        ("Over\nthree\nlines\n   ---", 2, "Over three lines"),
        ("# form\x0cfeed", 1, "form feed"),
        ("# line\u2028separator", 1, "line separator"),
        ("# nul\x00", 1, "nul\x00"),
        ("# 漢字 🧑‍🚀", 1, "漢字 🧑‍🚀"),
        ("# \u0301combining", 1, "\u0301combining"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_headings_are_found_with_their_source_text(
    source: str, level: int, heading: str, newline: str
) -> None:
    before = f"Before.{newline}{newline}"
    text = f"{before}{source}\n\nAfter.\n".replace("\n", newline)
    if newline == "\r\n":
        before, text = "Before.\r\n\r\n", f"Before.\n\n{source}\n\nAfter.\n".replace("\n", "\r\n")
    assert _headings(text) == [(level, heading, len(before))]


@pytest.mark.parametrize(
    "text",
    [
        "#No space\n",
        "####### seven\n",
        "\\# escaped\n",
        "    # indented code\n",
        "\t# tab is code\n",
        "#\u00a0no-break space\n",
        "a\u2028# b\n",
        "a\x0c# b\n",
        "a\x0b# b\n",
        "a\x85# b\n",
        "a\x00# b\n",
        "text\n\n---\n\ntext\n",
        "***\n",
        "===\n",
        "- item\n---\n",
        "| a |\n|---|\n| # b |\n",
        "#hashtag #another\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    assert _headings(text) == []


@pytest.mark.parametrize(
    "fence",
    ["```\n{}\n```", "~~~\n{}\n~~~", "````\n```\n{}\n````", "~~~ sh\n```\n{}\n~~~", "```\n{}"],
)
@pytest.mark.parametrize("inside", ["# comment", "Title\n===", "## a\n\n## b", "---"])
def test_a_fence_is_never_a_heading(fence: str, inside: str) -> None:
    text = "# Real\n\n" + fence.format(inside) + "\n"
    assert _headings(text) == [(1, "Real", 0)]


@pytest.mark.parametrize(
    "text",
    [
        "- # in a list\n",
        "1. # in a numbered list\n",
        "- a\n\n  ## deeper in a list\n",
        "> # in a quote\n",
        "> Title\n> ===\n",
        "> > ## in a quote in a quote\n",
        "<div>\n# in html\n</div>\n",
        "<!--\n# in a comment\n\n## and on\n-->\n",
        "<pre>\n\n# in pre\n\n</pre>\n",
        "<script>\n# in a script\n</script>\n",
        "- ```\n  # in a fence in a list\n  ```\n",
        "> ```\n> # in a fence in a quote\n> ```\n",
    ],
)
def test_headings_inside_other_blocks_open_no_section(text: str) -> None:
    assert _headings(text + "\n# Real\n") == [(1, "Real", len(text) + 1)]


def test_a_hash_line_in_the_frontmatter_is_no_heading() -> None:
    text = "---\n# comment\ntitle: T\n---\n# Real\n"
    assert _headings(text) == [(1, "Real", text.index("# Real"))]


def test_a_heading_right_after_a_byte_order_mark_is_found() -> None:
    assert [(h.level, h.text) for h in parse("\ufeff# Real\n\nText\n").headings] == [(1, "Real")]


def test_a_link_definition_before_a_setext_heading_is_not_part_of_it() -> None:
    [(level, heading, start)] = _headings("[ref]: /url\nTitle\n===\n")
    assert (level, heading, start) == (1, "Title", 12)


@pytest.mark.parametrize("blank", ["\u00a0", "\x0b", "\u2003", "\x85"])
def test_a_setext_heading_may_hold_a_line_of_unusual_white_space(blank: str) -> None:
    assert _headings(f"a\n{blank}\nb\n===\n") == [(1, "a b", 0)]


@given(st.text(st.sampled_from("ab#=-\n\r \t`~>|*0.\ufeff\u00e9"), max_size=80))
@settings(deadline=None, max_examples=300)
def test_every_heading_the_parser_finds_can_be_read_again_where_it_stands(text: str) -> None:
    document = parse(text)
    starts = [*(heading.char_start for heading in document.headings), len(text)]
    for heading, end in zip(document.headings, starts[1:], strict=True):
        found = match_heading(text[heading.char_start : end], heading.level)
        assert found is not None
        assert found[0] == heading.text
        assert found[1] <= end - heading.char_start


@pytest.mark.parametrize("source", ["text\n", "## Two\n", "", "\n\n", "a\n\n===\n", "#x\n"])
def test_no_heading_of_level_one_is_read_where_none_begins(source: str) -> None:
    assert match_heading(source, 1) is None


@pytest.mark.parametrize(
    ("source", "rest"),
    [
        ("# A\nb", "b"),
        ("A\n===\nb", "b"),
        ("\n\n# A\r\nb", "b"),
        ("\ufeff# A", ""),
        ("# A #\rb", "b"),
    ],
)
def test_a_heading_ends_where_its_last_line_does(source: str, rest: str) -> None:
    found = match_heading(source, 1)
    assert found is not None
    assert (found[0], source[found[1] :]) == ("A", rest)


def test_a_heading_with_a_long_run_of_spaces_is_read_in_linear_time() -> None:
    started = time.monotonic()
    match_heading("# a" + " " * 15_000 + "b\n", 1)
    assert time.monotonic() - started < 0.3


# Blocks


def test_blocks_are_named_by_kind_and_begin_at_their_first_line() -> None:
    parts = [
        ("heading", "# H\n\n"),
        ("paragraph", "Text\nmore\n\n"),
        ("list", "- a\n- b\n\n"),
        ("code", "```\nx\n```\n\n"),
        ("list", "1. a\n2. b\n\n"),
        ("table", "| a |\n|---|\n| 1 |\n| 2 |\n\n"),
        ("other", "> quote\n\n"),
        ("other", "<div>\nx\n</div>\n\n"),
        ("code", "    indented\n\n"),
        ("other", "---\n\n"),
        ("heading", "Set\n===\n"),
    ]
    text = "".join(source for _, source in parts)
    expected, at = [], 0
    for kind, source in parts:
        expected.append((at, kind))
        at += len(source)
    assert [(block.char_start, block.kind) for block in parse(text).blocks] == expected


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("- a\n- b\n  - nested\n- c\n", ["- b", "- c"]),
        ("1. a\n\n   more\n2. b\n", ["2. b"]),
        ("| h |\n|---|\n| 1 |\n| 2 |\n| 3 |\n", ["| 1", "| 2", "| 3"]),
        ("| h |\r\n|---|\r\n| 1 |\r\n| 2 |\r\n", ["| 1", "| 2"]),
        ("| h |\n|---|\n", []),
        ("Text\n", []),
    ],
)
def test_items_begin_after_the_first_and_rows_after_the_header(
    text: str, starts: list[str]
) -> None:
    [block] = parse(text).blocks
    assert [
        text[at : at + len(begin)] for at, begin in zip(block.item_starts, starts, strict=True)
    ] == (starts)


@given(
    st.text(max_size=200)
    | st.text(st.sampled_from("-\n\r:#[]{}&*!|>'\"%@` a\x00\ufeff"), max_size=120)
)
@settings(deadline=None, max_examples=200)
def test_no_text_makes_the_parser_raise_and_starts_are_in_order(text: str) -> None:
    document = parse(text)
    assert document.text == text
    assert 0 <= document.frontmatter.end <= len(text)
    starts = [block.char_start for block in document.blocks]
    assert starts == sorted(set(starts))
    assert {h.char_start for h in document.headings} <= set(starts)
    assert all(at < len(text) for at in starts)


@pytest.mark.parametrize("ends", ["\u2028\u2028\u2028", "\u0085", "\r", ""])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("title: [a]\n", "'title' is not a text"),
        ("a: b\na: c\n", "'a' stands twice"),
        ("lang: xx\n", "language 'xx' has no stemmer: words are as written"),
        ('title: "open\n', "the frontmatter is not valid YAML"),
    ],
)
def test_a_problem_names_the_line_as_git_counts_them(ends: str, wrong: str, message: str) -> None:
    found = parse_frontmatter(f"---\n# {ends}\n{wrong}---\nBody\n")
    ((line, said),) = found.problems
    assert said.startswith(message)
    assert line == (4 if "twice" in message or "YAML" in message else 3)


@example('"' + "\u2028" * 4)
@given(st.text(st.sampled_from("-\n\r:#[]{}&*!|>'\"%@` ab\x00\x07\ufeff\u2028"), max_size=80))
@settings(deadline=None, max_examples=200)
def test_no_frontmatter_makes_the_parser_raise(source: str) -> None:
    text = f"---\ntitle: T\n{source}\n---\nBody\n"
    found = parse_frontmatter(text)
    assert 0 <= found.end <= len(text)
    assert all(1 <= line <= text.count("\n") + text.count("\r") + 2 for line, _ in found.problems)
