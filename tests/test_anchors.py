"""Anchors as GitHub gives them, and the plain text of headings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.document.anchors import Anchors, plain_text, slugify

pytestmark = pytest.mark.quick

CASES = [
    ("Notes", "notes"),
    ("Two Words", "two-words"),
    ("UPPER case", "upper-case"),
    ("Numbers 1 2 3", "numbers-1-2-3"),
    ("2024-01-02", "2024-01-02"),
    ("What's new?", "whats-new"),
    ("Don’t stop", "dont-stop"),
    ("A, b; c: d. e!", "a-b-c-d-e"),
    ("C++", "c"),
    ("C#", "c"),
    (".NET", "net"),
    ("a/b", "ab"),
    ("a / b", "a--b"),
    ("Tom & Jerry", "tom--jerry"),
    ("a - b", "a---b"),
    ("a -- b", "a----b"),
    ("a — b", "a--b"),
    ("a…b", "ab"),
    ("(parentheses)", "parentheses"),
    ("[brackets]", "brackets"),
    ("$100 + 5% = ?", "100--5--"),
    ("snake_case_name", "snake_case_name"),
    ("__init__ of a class", "init-of-a-class"),
    ("`__init__` of a class", "__init__-of-a-class"),
    ("_emphasis_", "emphasis"),
    ("*emphasis* and **strong**", "emphasis-and-strong"),
    ("***both***", "both"),
    ("~~gone~~ here", "gone-here"),
    ("`code`", "code"),
    ("Use `git commit -a`", "use-git-commit--a"),
    ("`a` `b`", "a-b"),
    ("`<div>` tag", "div-tag"),
    ("``a ` b``", "a--b"),
    ("[link](https://example.invalid/x)", "link"),
    ("[two words](u) after", "two-words-after"),
    ("[`code` in link](u 'title')", "code-in-link"),
    ("[**strong** link](<u v>)", "strong-link"),
    ("<https://example.invalid>", "httpsexampleinvalid"),
    ("<b>bold</b> text", "bold-text"),
    ("a<br>b", "ab"),
    ('<a name="x"></a>Install', "install"),
    ("before <!-- hidden --> after", "before--after"),
    ("Logo![alt](image.png)", "logo"),
    ("Émile Zola", "émile-zola"),
    ("ÄÖÜ ß", "äöü-ß"),
    ("Ελληνικά", "ελληνικά"),
    ("Привет мир", "привет-мир"),
    ("漢字 かな", "漢字-かな"),
    ("漢字、かな。", "漢字かな"),
    ("안녕 하세요", "안녕-하세요"),
    ("مرحبا", "مرحبا"),
    ("🚀 Launch", "-launch"),
    ("Launch 🚀", "launch-"),
    ("a 🚀 b", "a--b"),
    ("🧑‍🚀 crew", "-crew"),
    (":rocket: Launch", "rocket-launch"),
    ("\\*not emphasis\\*", "not-emphasis"),
    ("1\\. Numbered", "1-numbered"),
    ("a &amp; b", "a--b"),
    ("&copy; 2024", "-2024"),
    ("a &lt;b&gt;", "a-b"),
    ("5 < 6", "5--6"),
    ("x^2", "x2"),
    ("Section {#id}", "section-id"),
    ("@user and #1", "user-and-1"),
    ("", ""),
    ("!!!", ""),
]


@pytest.mark.parametrize(("heading", "anchor"), CASES)
def test_an_anchor_is_githubs(heading: str, anchor: str) -> None:
    assert Anchors().add(heading) == anchor


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        pytest.param("e\u0301tude", "e\u0301tude", id="combining accent"),
        pytest.param("हिन्दी", "हिन्दी", id="devanagari"),
        pytest.param("ไทยที่นี่", "ไทยที่นี่", id="thai"),
        pytest.param("❤️ Love", "️-love", id="variation selector"),
    ],
)
def test_marks_stay_in_an_anchor(heading: str, anchor: str) -> None:
    assert Anchors().add(heading) == anchor


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [("x² and ½", "x-and-"), ("① One", "-one")],
)
def test_numbers_that_are_neither_digits_nor_letters_are_dropped(heading: str, anchor: str) -> None:
    assert Anchors().add(heading) == anchor


@pytest.mark.parametrize(
    ("headings", "anchors"),
    [
        (["Notes", "Notes", "Notes"], ["notes", "notes-1", "notes-2"]),
        (["Notes", "notes", "NOTES!"], ["notes", "notes-1", "notes-2"]),
        (["Notes", "Notes 1", "Notes"], ["notes", "notes-1", "notes-2"]),
        (["Notes", "Notes", "Notes 1"], ["notes", "notes-1", "notes-1-1"]),
        (["Notes 1", "Notes", "Notes"], ["notes-1", "notes", "notes-2"]),
        (
            ["Notes", "Notes", "Notes 1", "Notes 1", "Notes"],
            ["notes", "notes-1", "notes-1-1", "notes-1-2", "notes-2"],
        ),
        (["", ""], ["", "-1"]),
        (["🚀", "!"], ["", "-1"]),
        (["a", "b", "a", "b"], ["a", "b", "a-1", "b-1"]),
        (["constructor", "constructor"], ["constructor", "constructor-1"]),
    ],
)
def test_repeated_anchors_are_numbered_in_document_order(
    headings: list[str], anchors: list[str]
) -> None:
    given_out = Anchors()
    assert [given_out.add(heading) for heading in headings] == anchors


@given(
    st.lists(st.sampled_from(["Notes", "Notes 1", "Notes 1 1", "notes-1", "x", ""]), max_size=25)
)
@settings(deadline=None, max_examples=150)
def test_no_two_headings_of_a_document_share_an_anchor(headings: list[str]) -> None:
    given_out = Anchors()
    anchors = [given_out.add(heading) for heading in headings]
    assert len(set(anchors)) == len(anchors)


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=200)
def test_an_anchor_holds_neither_spaces_nor_ascii_punctuation(heading: str) -> None:
    assert not re.search(r"[ !-,./:-@\[-^`{-~]", Anchors().add(heading))


def test_many_repetitions_are_numbered_in_linear_time() -> None:
    given_out = Anchors()
    assert [given_out.add("Notes") for _ in range(20_000)][-1] == "notes-19999"


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("Plain", "Plain"),
        ("*a* **b** `c`", "a b c"),
        ("[a](u) ![i](u)", "a "),
        ("a &amp; b", "a & b"),
        ("\\_x\\_", "_x_"),
        ("`a*b*`", "a*b*"),
        ("unclosed [ and *", "unclosed [ and *"),
        ("2 * 3 * 4", "2 * 3 * 4"),
    ],
)
def test_plain_text_is_what_a_reader_sees(heading: str, text: str) -> None:
    assert plain_text(heading) == text


def test_a_slug_keeps_each_space_as_a_hyphen() -> None:
    assert slugify(" a  b") == "-a--b"
