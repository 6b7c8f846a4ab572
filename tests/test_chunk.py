"""Where chunks begin: tiling, limits, kinds of places, locality and speed."""

from __future__ import annotations

import random
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kbindex.core.model import Document, Heading, Region
from kbindex.document.chunk import Limits, chunk, refine
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts

pytestmark = pytest.mark.quick

MAXIMUM = 384
WORDS = tuple(
    word
    for line in (
        "lamp tower keeper paraffin wick lens morning cellar key door rota storm signal glass",
        "brass polish supply harbour ledger weather north chain boat anchor oil",
        "internationalisation",
    )
    for word in line.split()
)


def regions_of(text: str, maximum: int = MAXIMUM) -> list[Region]:
    return chunk(parse(text), Limits(maximum), count_tokens, token_starts)


def refined(document: Document, region: Region, maximum: int) -> list[Region]:
    return refine(document, region, maximum, count_tokens, token_starts)


def source(text: str, region: Region) -> str:
    return text[region.char_start : region.char_end]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(5, 22))).capitalize() + ". "


def prose(seed: int, n_characters: int) -> str:
    """Return paragraphs of sentences, without headings."""
    rng = random.Random(seed)
    text = ""
    while len(text) < n_characters:
        text += "".join(sentence(rng) for _ in range(rng.randint(2, 9))).rstrip() + "\n\n"
    return text


def table(rows: list[str], header: str = "| Name | Value |\n|------|-------|\n") -> str:
    return header + "".join(f"{row}\n" for row in rows)


# Generated Markdown


def _repeated(unit: str, low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda n: unit * n)


_sentences = st.lists(st.sampled_from(WORDS), min_size=2, max_size=14).map(
    lambda words: " ".join(words).capitalize() + ". "
)
_paragraphs = st.lists(_sentences, min_size=1, max_size=5).flatmap(
    lambda parts: st.integers(1, 12).map(lambda n: "".join(parts) * n)
)
_headings = st.tuples(st.integers(1, 6), st.sampled_from(["One", "Two three", "`code`", ""])).map(
    lambda pair: f"{'#' * pair[0]} {pair[1]}"
)
_blocks = st.one_of(
    _headings,
    st.sampled_from(
        ["Setext\n===", "Over\ntwo lines\n---", "---", "> a quote", "<div>\nx\n</div>"]
    ),
    _paragraphs,
    st.integers(1, 60).map(lambda n: "\n".join(f"- item {i} of a list" for i in range(n))),
    st.integers(1, 80).map(lambda n: table([f"| row {i} | value |" for i in range(n)]).rstrip()),
    st.tuples(st.sampled_from(["```", "~~~"]), st.integers(1, 120)).map(
        lambda pair: f"{pair[0]}\n" + "x = compute(y)  # one\n" * pair[1] + pair[0]
    ),
    _repeated("internationalisation", 1, 150),
    _repeated("漢字とかなの文。", 1, 60),
    _repeated("灯台守は毎朝レンズを磨く", 1, 60),
    _repeated("🧑\u200d🚀", 1, 90),
    _repeated("👍🏽 ❤\ufe0f ", 1, 60),
    _repeated("e\u0301a\u0308\u0304", 1, 150),
    _repeated("한국어 문장입니다. ", 1, 60),
    st.sampled_from(["", " ", "\t", "\x0c", "\u2028", "\x00", "[ref]: /url"]),
)
_front = st.sampled_from(
    ["", "", "---\ntitle: T\ntags: [a, b]\n---\n", "---\nx: y\n---\n\n", "---\n---\n", "---\n: [\n"]
)


@st.composite
def markdown(draw: Callable[[st.SearchStrategy], object]) -> str:
    parts = draw(st.lists(_blocks, max_size=14))
    joint = draw(st.sampled_from(["\n\n", "\n\n", "\n\n", "\n", "\n\n\n \n"]))
    text = str(draw(_front)) + joint.join(parts) + draw(st.sampled_from(["", "\n", "\n\n"]))
    if draw(st.integers(0, 3)) == 0:
        text = text.replace("\n", "\r\n")
    return ("\ufeff" if draw(st.integers(0, 5)) == 0 else "") + text


anything = st.one_of(
    markdown(),
    st.text(max_size=60),
    st.text(st.sampled_from(" \t\r\n\ufeff"), max_size=30),
    st.text(st.sampled_from("#=-|`~> \n\rab1.*\ufeff"), max_size=120),
)
lots = settings(deadline=None, max_examples=120)


# Invariants


@given(anything, st.sampled_from([32, 100, MAXIMUM]))
@lots
def test_regions_tile_the_text_exactly(text: str, maximum: int) -> None:
    regions = regions_of(text, maximum)
    assert "".join(source(text, region) for region in regions) == text
    assert all(before.char_end == after.char_start for before, after in pairwise(regions))
    assert all(region.n_tokens >= 0 for region in regions)


@pytest.mark.parametrize("between", ["\ufeff", "\ufeff\n\n", "\n\ufeff\r\n"])
def test_a_byte_order_mark_after_the_frontmatter_is_in_a_region(between: str) -> None:
    text = f"---\ntitle: T\n---\n{between}# A\n\nx\n"
    assert "".join(source(text, region) for region in regions_of(text)) == text


@given(anything)
@lots
def test_only_metadata_may_be_an_empty_region(text: str) -> None:
    document = parse(text)
    for region in regions_of(text):
        assert region.char_start < region.char_end or region.char_end == document.frontmatter.end


def short_headings(document: Document) -> list[Heading]:
    """Return the headings that open a section: longer ones are cut like any text."""
    counts = [count_tokens(document.text[h.char_start : h.char_end]) for h in document.headings]
    longest = Limits(MAXIMUM).clearance
    # A heading counts a little otherwise in its document than alone.
    assume(not any(abs(n_tokens - longest) < 9 for n_tokens in counts))
    return [h for h, n in zip(document.headings, counts, strict=True) if n <= longest]


@given(anything)
@lots
def test_a_region_never_crosses_a_heading(text: str) -> None:
    starts = [heading.char_start for heading in short_headings(parse(text))]
    for region in regions_of(text):
        inside = [at for at in starts if region.char_start < at < region.char_end]
        assert all(not text[region.char_start : at].strip("\ufeff \t\r\n") for at in inside)


@given(anything)
@lots
def test_each_heading_opens_exactly_one_region(text: str) -> None:
    headings = [(str(h.level), h.text) for h in short_headings(parse(text))]
    opening = [region for region in regions_of(text) if region.opens in "123456"]
    assert [(region.opens, region.heading) for region in opening] == headings
    for region in opening:
        first = source(text, region).lstrip("\ufeff \t\r\n").splitlines()[0]
        assert (
            first.startswith("#") or first.split() == region.heading.split()[: len(first.split())]
        )


@given(anything)
@lots
def test_the_token_counts_are_those_of_the_regions_text(text: str) -> None:
    document = parse(text)
    for region in regions_of(text):
        if region.char_start >= document.frontmatter.end:
            assert region.n_tokens == count_tokens(source(text, region))


@given(markdown())
@lots
def test_no_region_of_ordinary_markdown_is_over_the_limit(text: str) -> None:
    start = parse(text).frontmatter.end
    for region in regions_of(text):
        if region.char_start >= start:
            assert region.n_tokens <= MAXIMUM or region.char_end - region.char_start == 1


@given(markdown())
@lots
def test_no_character_of_ordinary_markdown_is_cut(text: str) -> None:
    boundaries = {match.end() for match in regex.finditer(r"\X", text)} | {0}
    assert {region.char_end for region in regions_of(text)} <= boundaries


@pytest.mark.parametrize(
    "unit",
    [
        "e\u0301",
        "🧑\u200d🚀",
        "👩🏽\u200d🔬",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "🇫🇷",
        "ก็",
        "\u1112\u1161\u11ab",
        "कि",
        "क्षि",
        "a\r\n",
        pytest.param(
            "ｶﾞ",
        ),
        pytest.param(
            "ab \u0301",
        ),
        pytest.param(
            "字。\ufe0f",
        ),
    ],
)
def test_a_long_run_of_one_character_is_cut_between_its_repetitions(unit: str) -> None:
    text = unit * 3000
    boundaries = {match.end() for match in regex.finditer(r"\X", text)}
    regions = regions_of(text)
    assert len(regions) > 1
    assert {region.char_end for region in regions} <= boundaries


@pytest.mark.parametrize(("letters", "seed"), [("🚀🧑🏽 ", 0), ("ab\u0301", 1)])
def test_no_region_is_over_the_limit_where_a_cut_makes_a_token_more(
    letters: str, seed: int
) -> None:
    text = "".join(random.Random(seed).choices(letters, k=12_000))
    assert max(region.n_tokens for region in regions_of(text)) <= MAXIMUM


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "letters",
    [
        "ab",
        "ab c.\n",
        "漢字かな",
        "héß¢€",
        "{}[]();=<>\n\t ",
        "0123456789",
        "\U0001f680\U0001f9d1\U0001f3fb",
        "qxzjkvw-_/",
        "AaBbCc",
    ],
)
def test_no_region_of_random_characters_is_over_the_limit(letters: str, seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices(letters, k=9000))
    assert max(region.n_tokens for region in regions_of(text)) <= MAXIMUM


def test_a_character_longer_than_the_limit_is_cut_into_code_points() -> None:
    text = "a" + "\u0301" * 5000
    regions = regions_of(text)
    assert "".join(source(text, region) for region in regions) == text
    assert max(region.n_tokens for region in regions) <= MAXIMUM


@given(anything)
@lots
def test_chunking_the_same_text_again_gives_the_same_regions(text: str) -> None:
    assert regions_of(text) == regions_of(text)


@pytest.mark.parametrize("text", ["", "\ufeff"])
def test_an_empty_document_has_no_words_to_embed(text: str) -> None:
    assert sum(region.char_end - region.char_start for region in regions_of(text)) == len(text)


@pytest.mark.parametrize("text", [" ", "\n", "\r\n\r\n", "\t\n ", "\ufeff\n", " \n" * 2000])
def test_white_space_alone_is_one_region_that_continues_nothing(text: str) -> None:
    assert {region.opens for region in regions_of(text)} == {"0"}


def test_short_sibling_sections_are_not_merged() -> None:
    text = "# A\n\nx\n\n## B\n\ny\n\n## C\n\nz\n"
    assert [region.heading for region in regions_of(text)] == ["A", "B", "C"]


def test_a_section_within_the_limit_is_one_region() -> None:
    text = "# A\n\n" + "One two. " * 60 + "\n\n- a\n- b\n\n```\ncode\n```\n"
    assert len(regions_of(text)) == 1


# Blocks


def _rows(n: int, n_words: int = 2) -> list[str]:
    rng = random.Random(n)
    return [f"| row {i} | {' '.join(rng.choices(WORDS, k=n_words))} |" for i in range(n)]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("n", "n_words"), [(60, 2), (400, 2), (60, 30), (40, 60), (12, 80)])
def test_a_table_that_must_be_cut_is_cut_between_rows_only(
    n: int, n_words: int, newline: str
) -> None:
    before = "# Values\n\nAn introduction.\n\n"
    after = "\nAfter the table.\n"
    text = (before + table(_rows(n, n_words)) + after).replace("\n", newline)
    regions = regions_of(text)
    pieces = [r for r in regions if "| row" in source(text, r)]
    assert [r.opens == "t" for r in pieces] == [False] + [True] * (len(pieces) - 1)
    assert len(pieces) > 1
    first, *rest = (source(text, r) for r in pieces)
    assert first.index("| Name") < first.index("|---") < first.index("| row 0")
    assert all(piece.startswith("| row") for piece in rest)
    assert max(r.n_tokens for r in regions) <= MAXIMUM


def test_a_table_with_one_large_row_is_cut_between_rows() -> None:
    rows = [f"| {'lamp ' * n} | b |" for n in (95, 300, 60)]
    text = table(rows)
    assert max(count_tokens(row) for row in rows) < MAXIMUM
    assert all(source(text, r).endswith("\n") for r in regions_of(text))


@pytest.mark.parametrize("columns", [3, 12, 17])
def test_the_header_of_a_cut_table_stays_with_its_delimiter_row(columns: int) -> None:
    header = "".join(f"| column name {i} " for i in range(columns)) + "|\n"
    delimiter = "|---" * columns + "|\n"
    text = table(["| v " * columns + "|"] * (600 // columns), header + delimiter)
    assert len(regions_of(text)) > 1
    assert any(header + delimiter in source(text, region) for region in regions_of(text))


def test_a_table_with_a_header_too_long_to_repeat_is_cut_like_any_text() -> None:
    header = "".join(f"| column name {i} " for i in range(60)) + f"|\n{'|---' * 60}|\n"
    regions = regions_of(table(["| v " * 60 + "|"] * 10, header))
    assert len(regions) > 2
    assert {region.opens for region in regions} == {"0"}


def test_a_row_over_the_limit_is_cut_further() -> None:
    text = table(["| a | " + "lamp " * 900 + "|", "| b | c |"])
    regions = regions_of(text)
    assert max(region.n_tokens for region in regions) <= MAXIMUM
    assert {region.opens for region in regions[1:]} == {"t"}


def test_a_table_that_fits_is_not_opened_as_a_continuation() -> None:
    text = "# A\n\n" + prose(3, 1500) + table(_rows(8)) + "\n" + prose(4, 1500)
    regions = regions_of(text)
    assert len(regions) > 2
    assert "t" not in {region.opens for region in regions}
    assert any(table(_rows(8)) in source(text, region) for region in regions)


def test_two_tables_in_one_section_are_told_apart() -> None:
    one, two = table(_rows(120)), table(_rows(120), "| Other | Header |\n|---|---|\n")
    text = one + "\n" + two
    regions = regions_of(text)
    fresh = [region for region in regions if region.opens != "t"]
    assert [source(text, region)[:7] for region in fresh] == ["| Name ", "| Other"]


@pytest.mark.parametrize("fence", ["```", "~~~~"])
@pytest.mark.parametrize("seed", range(8))
def test_a_fence_that_fits_stays_whole(fence: str, seed: int) -> None:
    rng = random.Random(seed)
    lines = rng.randint(5, 24)
    code = f"{fence} python\n" + "value = compute(x)  # Ends. Here. \n\n" * lines + f"{fence}\n"
    assert count_tokens(code) <= MAXIMUM
    text = prose(seed, rng.randint(500, 3000)) + code + "\n" + prose(seed + 50, 2500)
    assert any(code in source(text, region) for region in regions_of(text))


def test_a_fence_that_does_not_fit_is_cut_between_lines() -> None:
    text = "```\n" + "value = compute(x, y)\n" * 400 + "```\n"
    regions = regions_of(text)
    assert len(regions) > 3
    assert all(source(text, region).endswith("\n") for region in regions)


def test_a_list_is_cut_between_items() -> None:
    text = "".join(f"- {'a longer item of the list ' * 5}{i}\n" for i in range(60))
    regions = regions_of(text)
    assert len(regions) > 3
    assert all(source(text, region).startswith("- ") for region in regions)


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    rng = random.Random(7)
    text = "".join(sentence(rng) for _ in range(200))
    regions = regions_of(text)
    assert len(regions) > 5
    assert all(source(text, region).rstrip().endswith(".") for region in regions)


def test_chinese_and_japanese_are_cut_between_sentences() -> None:
    text = "灯台守は毎朝レンズを磨く。芯は地下室にある。" * 80
    regions = regions_of(text)
    assert len(regions) > 3
    assert all(source(text, region).endswith("。") for region in regions)


@pytest.mark.parametrize("seed", range(3))
def test_chunks_of_a_long_section_are_of_a_useful_size(seed: int) -> None:
    sizes = [region.n_tokens for region in regions_of(prose(seed, 60_000))]
    assert 180 <= statistics.median(sizes) <= 280
    assert min(sizes) >= 64


@pytest.mark.parametrize("heading", ["# {}\n", "{}\n===\n"])
def test_a_heading_too_long_to_repeat_opens_no_section(heading: str) -> None:
    text = "Before.\n\n" + heading.format("A sentence of a paragraph. " * 200) + "\nAfter.\n"
    regions = regions_of(text)
    assert len(regions) > 2
    assert {(region.opens, region.heading) for region in regions} == {("0", "")}


# Metadata


@pytest.mark.parametrize("n_words", [0, 3, 200, 500])
def test_long_metadata_gets_empty_regions_after_its_own(n_words: int) -> None:
    front = f"---\nx: y\ntitle: {' '.join(['word'] * n_words)}\n---\n"
    regions = regions_of(front + "Body\n")
    spans = [(region.char_start, region.char_end) for region in regions]
    end = len(front)
    n_extra = len(spans) - 2
    assert spans == [(0, end), *[(end, end)] * n_extra, (end, end + 5)]
    assert n_extra == max(-(-(5 * n_words - 1) // 480) - 1, 0)


# Locality


def _keys(text: str) -> Counter[str]:
    return Counter(source(text, region) for region in regions_of(text))


def _sentence_starts(text: str) -> list[int]:
    return [0] + [match.end() for match in regex.finditer(r"\.\s+(?=\w)", text)]


@pytest.mark.parametrize("seed", [11, 12])
def test_an_edit_of_one_sentence_changes_few_chunks(seed: int) -> None:
    text = prose(seed, 50_000)
    before = _keys(text)
    starts = _sentence_starts(text)
    rng = random.Random(seed)
    changed = []
    for number in range(75):
        at = rng.choice(starts[:-1])
        following = starts[bisect_right(starts, at)]
        kept = following if number % 3 == 0 else at
        new = "" if number % 3 == 1 else sentence(rng)
        if number % 3 == 1:
            kept = following
        edited = text[:at] + new + text[kept:]
        after = _keys(edited)
        changed.append((after - before).total())
    assert max(changed) <= 3, changed
    assert statistics.mean(changed) <= 1.3, changed


def test_text_put_before_a_long_document_changes_only_its_beginning() -> None:
    text = prose(5, 30_000)
    before = _keys(text)
    after = _keys("A new first sentence. " + text)
    assert (after - before).total() <= 3


def test_a_section_does_not_depend_on_the_others() -> None:
    one, two = "# One\n\n" + prose(6, 9000), "# Two\n\n" + prose(7, 9000)
    assert _keys(one + two) == _keys(one) + _keys(two)


# Refining


@given(markdown(), st.sampled_from([20, 64, 200]))
@lots
def test_refining_keeps_the_tiling_and_what_the_region_opens(text: str, maximum: int) -> None:
    document = parse(text)
    for region in regions_of(text):
        if region.char_start == region.char_end:
            continue
        pieces = refined(document, region, maximum)
        assert "".join(source(text, piece) for piece in pieces) == source(text, region)
        assert (pieces[0].opens, pieces[0].heading) == (region.opens, region.heading)
        assert pieces[0].char_start == region.char_start
        assert all(piece.opens in ("0", "t") and not piece.heading for piece in pieces[1:])
        if region.opens == "t":
            assert {piece.opens for piece in pieces} == {"t"}


def test_a_region_within_the_smaller_limit_is_left_alone() -> None:
    text = "# A\n\nshort\n"
    [region] = regions_of(text)
    assert refined(parse(text), region, 100) == [region]


def test_refining_makes_pieces_of_at_most_the_smaller_limit() -> None:
    text = prose(8, 6000)
    document = parse(text)
    for region in regions_of(text):
        assert max(piece.n_tokens for piece in refined(document, region, 90)) <= 90


def test_refining_a_cut_table_cuts_between_rows() -> None:
    text = table(_rows(120))
    document = parse(text)
    for region in regions_of(text):
        pieces = refined(document, region, 120)
        assert len(pieces) > 1
        assert all(source(text, piece).endswith("\n") for piece in pieces)


def test_refining_does_not_take_text_after_a_table_for_its_rows() -> None:
    text = table(["| 1 | 2 |"]) + "\n" + "A sentence of a few words here. " * 40
    [region] = regions_of(text)
    pieces = refined(parse(text), region, 100)
    assert {piece.opens for piece in pieces} == {"0"}


def test_refining_cuts_a_table_in_the_middle_of_a_region_between_rows() -> None:
    text = "Before.\n\n" + table(["| One. Two three. | Four five. Six. |"] * 20)
    [region] = regions_of(text)
    pieces = refined(parse(text), region, 100)
    assert all(source(text, piece).endswith("\n") for piece in pieces)


@pytest.mark.parametrize(
    "text", ["Just a paragraph, without any heading.\n", "灯台の鍵 é 🇫🇷\n", "a  b\n\n- c\n"]
)
def test_cutting_ends_at_single_code_points(text: str) -> None:
    """An embedder may refuse whatever it is sent: each round cuts again what the last one left."""
    document = parse(text)
    pieces = regions_of(text)
    for _ in range(12):
        pieces = [part for piece in pieces for part in refined(document, piece, 2)]
        assert "".join(source(text, piece) for piece in pieces) == text
        assert all(piece.char_start < piece.char_end for piece in pieces)
    assert max(piece.char_end - piece.char_start for piece in pieces) == 1


def test_refining_keeps_an_empty_region() -> None:
    text = f"---\ntitle: {'word ' * 200}\n---\nBody\n"
    document = parse(text)
    region = regions_of(text)[1]
    assert region.char_start == region.char_end
    assert [(r.char_start, r.char_end) for r in refined(document, region, 20)] == [
        (region.char_start, region.char_end)
    ]


# Speed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one line of 5 MB", ("Some words of a line which never ends " * 140_000)[:5_000_000]),
        ("one letter", "a" * 1_000_000),
        ("dots", "." * 1_000_000),
        ("dots and spaces", ". " * 500_000),
        ("question marks in quotes", '?"' * 500_000),
        ("spaces", " " * 1_000_000),
        ("line feeds", "\n" * 1_000_000),
        ("carriage returns", "\r" * 500_000),
        ("headings", "# h\n\n" * 50_000),
        ("rows", table(["| a cell | another cell |"] * 10_000)),
        ("quotes in quotes", ">" * 2000 + " x\n"),
        ("lists in lists", "- " * 2000 + "x\n"),
        ("indented lists", "".join("  " * i + "- x\n" for i in range(400))),
        ("brackets", "[" * 100_000),
        ("backticks", "`" * 300_000),
        ("fences", "```\nx. y\n```\n\n" * 10_000),
        ("tables", (table(["| a |"], "| h |\n|---|\n") + "\n") * 6_000),
        ("han", "漢" * 400_000),
        ("marks", "a" + "\u0301" * 200_000),
        ("joined emoji", "🧑\u200d" * 60_000),
    ],
    ids=lambda value: value if len(value) < 40 else "",
)
def test_a_hostile_document_is_chunked_in_seconds(name: str, text: str) -> None:
    started = time.monotonic()
    regions = regions_of(text)
    assert time.monotonic() - started < 20, name
    assert sum(region.char_end - region.char_start for region in regions) == len(text)


@pytest.mark.parametrize(
    "unit", ["A short sentence here. ", "- an item\n", "paragraph\n\n", "word ", "。漢", "x"]
)
def test_chunking_takes_time_in_proportion_to_length(unit: str) -> None:
    def seconds(n: int) -> float:
        text = (unit * n)[:n]
        started = time.perf_counter()
        regions_of(text)
        return time.perf_counter() - started

    regions_of(unit)
    short = min(seconds(40_000) for _ in range(2))
    assert seconds(160_000) < 14 * short + 0.2


@given(st.integers(2, 40))
@settings(deadline=None, max_examples=20)
def test_limits_keep_clear_of_both_ends(n: int) -> None:
    assume(n > 0)
    assert Limits(n).clearance == n // 3
