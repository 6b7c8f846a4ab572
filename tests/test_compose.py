"""The exact text that the embedder is shown, and that no word of a document is hidden."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.core.model import Chunk
from kbindex.document.chunk import Limits, chunk
from kbindex.document.compose import CONTEXT_TOKENS, compose, table_header
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts

pytestmark = pytest.mark.quick


def chunks_of(text: str, maximum: int = 384) -> list[Chunk]:
    document = parse(text)
    regions = chunk(document, Limits(maximum), count_tokens, token_starts)
    return compose(text, document.frontmatter, regions)


def shown(text: str, maximum: int = 384) -> list[str | None]:
    return [one.shown for one in chunks_of(text, maximum)]


def contexts(text: str) -> list[str]:
    """Return the first line of each embedded body chunk of a document without frontmatter."""
    return [line.split("\n", 1)[0] for line in shown(text) if line is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Only text.\n", ["Only text.\n"]),
        ("# A\n\nx\n", ["A\n# A\n\nx\n"]),
        ("## B\n\nx\n", ["## B\n\nx\n"]),
        ("# A\n\nx\n\n## B\n\ny\n", ["A\n# A\n\nx\n\n", "A\n## B\n\ny\n"]),
        (
            "# A\n\nx\n\n## B\n\ny\n\n### C\n\nz\n",
            ["A\n# A\n\nx\n\n", "A\n## B\n\ny\n\n", "A › B\n### C\n\nz\n"],
        ),
        ("intro\n\n# A\n\nx\n", ["A\nintro\n\n", "A\n# A\n\nx\n"]),
        ("# A\n\nx\n\n# B\n\ny\n", ["A\n# A\n\nx\n\n", "A\n# B\n\ny\n"]),
        (
            "# A\n\nx\n\n# B\n\ny\n\n## C\n\nz\n",
            ["A\n# A\n\nx\n\n", "A\n# B\n\ny\n\n", "A › B\n## C\n\nz\n"],
        ),
        (
            "# A\n\nx\n\n### C\n\nz\n\n## B\n\ny\n",
            ["A\n# A\n\nx\n\n", "A\n### C\n\nz\n\n", "A\n## B\n\ny\n"],
        ),
        ("---\ntitle: T\n---\nx\n", ["T", "T\nx\n"]),
        ("---\ntitle: T\n---\n# A\n\nx\n", ["T", "T\n# A\n\nx\n"]),
        (
            "---\ntitle: T\n---\n# T\n\nx\n\n## B\n\ny\n",
            ["T", "T\n# T\n\nx\n\n", "T\n## B\n\ny\n"],
        ),
        (
            "---\ntitle: T\n---\n# A\n\nx\n\n## B\n\ny\n",
            ["T", "T\n# A\n\nx\n\n", "T › A\n## B\n\ny\n"],
        ),
        (
            "---\ntitle: T\ndescription: D d\ntags: [a, b]\ntype: Note\nstatus: draft\n---\nx\n",
            ["T\nD d\na, b", "T\nx\n"],
        ),
        ("---\ntags: [a, b]\n---\nx\n", ["a, b", "x\n"]),
        ("---\ntype: Note\n---\nx\n", [None, "x\n"]),
        ("---\ntitle: T\n---\n", ["T"]),
        ("A\n===\n\nx\n\nB\n---\n\ny\n", ["A\nA\n===\n\nx\n\n", "A\nB\n---\n\ny\n"]),
    ],
)
def test_a_chunk_is_shown_below_its_title_and_the_headings_above_it(
    text: str, expected: list[str | None]
) -> None:
    assert shown(text) == [line and line.rstrip() for line in expected]


def test_white_space_at_the_end_of_a_chunk_is_not_shown() -> None:
    assert shown("# A\n\nx \t\r\n\ufeff\n") == ["A\n# A\n\nx"]


def test_the_title_from_the_first_heading_is_not_repeated() -> None:
    assert contexts("# Lamps\n\nx\n\n## Oil\n\ny\n\n### Cans\n\nz\n") == [
        "Lamps",
        "Lamps",
        "Lamps › Oil",
    ]


def test_an_equal_heading_deeper_down_is_kept() -> None:
    text = "# Lamps\n\nx\n\n## Lamps\n\ny\n\n### Cans\n\nz\n"
    assert contexts(text)[-1] == "Lamps › Lamps"


def test_a_continuing_chunk_names_the_heading_that_its_own_text_lacks() -> None:
    text = "# A\n\n## B\n\n" + "A sentence about lamps and oil. " * 120
    first, *rest = [line for line in shown(text) if line]
    assert first.startswith("A\n## B\n")
    assert len(rest) > 1
    assert all(line.startswith("A › B\n") for line in rest)


def test_a_heading_path_holds_the_chunks_own_heading() -> None:
    text = "# A\n\nx\n\n## B\n\ny\n\n# C\n\nz\n"
    assert [one.heading_path for one in chunks_of(text)] == [("A",), ("A", "B"), ("C",)]


def test_an_empty_heading_stands_in_the_path_and_not_in_the_context() -> None:
    text = "# A\n\nx\n\n##\n\ny\n\n### C\n\nz\n"
    assert chunks_of(text)[-1].heading_path == ("A", "", "C")
    assert contexts(text)[-1] == "A"


def test_markup_in_a_heading_is_kept_as_written() -> None:
    assert contexts("# The `a` *b*\n\nx\n\n## C\n\ny\n")[-1] == "The `a` *b*"


# The cap


def _named(prefix: str, n: int) -> str:
    return " ".join(f"{prefix}{i}" for i in range(n))


def test_the_context_loses_its_outermost_parts_first() -> None:
    one, two, three = _named("one", 14), _named("two", 14), _named("three", 5)
    text = f"# {one}\n\nx\n\n## {two}\n\ny\n\n### {three}\n\nz\n\n#### four\n\nend\n"
    assert count_tokens(f"{one} › {two} › {three}") > CONTEXT_TOKENS
    assert contexts(text)[-1] == f"{two} › {three}"


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.sampled_from(["lamp", "漢", "é", "x9"]),
)
@settings(deadline=None, max_examples=80)
def test_no_context_is_longer_than_the_cap(lengths: list[int], word: str) -> None:
    text = "".join(
        f"{'#' * (level + 1)} {' '.join([word] * n)}\n\ntext\n\n" for level, n in enumerate(lengths)
    )
    lines = [line for line in shown(text) if line is not None]
    assert len(lines) >= len(lengths)
    for line in lines:
        context = line.split("\n", 1)[0]
        assert context.startswith("#") or count_tokens(context) <= CONTEXT_TOKENS


def test_a_title_over_the_cap_is_cut_and_its_own_section_still_shows_it_whole() -> None:
    title = _named("word", 40)
    first, second = shown(f"# {title}\n\nx\n\n## B\n\ny\n")
    assert title in (first or "").split("\n", 1)[1]
    context = (second or "").split("\n", 1)[0]
    assert title.startswith(context)
    assert count_tokens(context) <= CONTEXT_TOKENS


# Tables


def test_each_piece_of_a_cut_table_shows_its_header_row() -> None:
    header = "| Name | Value |"
    text = f"# A\n\n{header}\n|---|---|\n" + "| a row | of a table |\n" * 200 + "\nAfter.\n"
    pieces = [one for one in chunks_of(text) if one.region.opens == "t"]
    assert len(pieces) > 2
    assert all((one.shown or "").startswith(f"A\n{header}\n| a row") for one in pieces)


def test_text_after_a_cut_table_does_not_show_its_header() -> None:
    header = "| Name | Value |"
    rows = "| a row | of a table |\n" * 200
    last = chunks_of(f"{header}\n|---|---|\n{rows}\n{'After the table. ' * 60}")[-1]
    assert header not in (last.shown or "")
    assert "After" in (last.shown or "")


def test_the_header_row_shown_is_that_of_the_table_above() -> None:
    rows = "| a row | of a table |\n" * 120
    text = f"| One | x |\n|---|---|\n{rows}\n| Two | x |\n|---|---|\n{rows}"
    headers = [
        (one.shown or "").split("\n")[0] for one in chunks_of(text) if one.region.opens == "t"
    ]
    assert headers == sorted(headers, key=["| One | x |", "| Two | x |"].index)
    assert set(headers) == {"| One | x |", "| Two | x |"}


@pytest.mark.parametrize(
    ("body", "header"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", "| a | b |"),
        ("a | b\n--|--\n1 | 2\n", "a | b"),
        ("| a |\r\n|:-:|\r\n| 1 |\r\n", "| a |"),
        ("| a |\r|---|\r| 1 |", "| a |"),
        ("\n\n  | a |\n  |---|\n", "| a |"),
        ("# A\n\nText.\n\n| a |\n|---|\n| 1 |\n\n", "| a |"),
        ("Text right above\n| a |\n|---|\n| 1 |\n", "| a |"),
        ("| a |\n|---|\n| 1 |\n\nText.\n", None),
        ("| a | b |\n|:--|--:|", "| a | b |"),
        ("| a | b |\n| 1 | 2 |\n", None),
        ("| a | b |\n", None),
        ("text\nmore\n", None),
        ("", None),
        ("| a |\n| | |\n", None),
    ],
)
def test_a_table_header_is_read_where_a_body_ends_in_a_table(body: str, header: str | None) -> None:
    assert table_header(body) == header


# Silence


@pytest.mark.parametrize("space", ["", "\n\n", " \t\r\n", "\ufeff", "\ufeff\n"])
def test_white_space_is_silent(space: str) -> None:
    assert set(shown(space)) <= {None}


def test_a_heading_directly_above_a_deeper_one_is_silent() -> None:
    assert shown("# A\n\n## B\n\n### C\n\nx\n") == [None, None, "A › B\n### C\n\nx"]


@pytest.mark.parametrize(
    "text",
    [
        "# A\n\nintro\n\n## B\n\nx\n",
        "## A\n\n## B\n\nx\n",
        "## A\n\n# B\n\nx\n",
        "# A\n",
        "x\n\n## A\n\n",
        "# A\n\n<!-- comment -->\n\n## B\n\nx\n",
        "# A\n\n[ref]: /url\n\n## B\n\nx\n",
        "# A\n\n---\n\n## B\n\nx\n",
    ],
)
def test_a_heading_whose_words_no_context_repeats_is_shown(text: str) -> None:
    assert None not in shown(text)


def test_a_heading_too_long_for_the_context_below_is_shown() -> None:
    assert None not in shown(f"# {_named('word', 40)}\n\n## B\n\nx\n")


WORD = re.compile(r"\w+")
_headings = st.tuples(st.integers(1, 6), st.integers(0, 45), st.sampled_from(["", " #", " ##"]))


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Return Markdown of headings of any depth, in which every word is different."""
    number = iter(range(10**6))

    def words(n: int) -> str:
        return " ".join(f"w{next(number)}" for _ in range(n))

    parts = []
    for _ in range(draw(st.integers(1, 8))):
        level, n, closing = draw(_headings)
        kind = draw(
            st.sampled_from(["heading", "heading", "text", "setext", "table", "list", "hr"])
        )
        if kind == "heading":
            parts.append(f"{'#' * level} {words(min(n, 3))}{closing}")
        elif kind == "setext":
            parts.append(f"{words(n % 2 + 1)}\n{words(n % 2 + 1)}\n{'=-'[level % 2] * 3}")
        elif kind == "table":
            rows = "".join(
                f"| {words(2)} | {words(1)} |\n" for _ in range(draw(st.integers(1, 90)))
            )
            parts.append(f"| {words(1)} | {words(1)} |\n|---|---|\n{rows}")
        elif kind == "list":
            parts.append("\n".join(f"- {words(3)}" for _ in range(n + 1)))
        elif kind == "hr":
            parts.append("---")
        else:
            parts.append(words(n * 9 + 1))
    front = draw(
        st.sampled_from(["", "---\ntitle: FRONT\ndescription: more\n---\n", "---\nx: y\n---\n"])
    )
    front = front.replace("FRONT", words(draw(st.integers(1, 150))))
    return front + draw(st.sampled_from(["\n\n", "\n"])).join(parts) + "\n"


def hidden_words(text: str) -> set[str]:
    """Return the words of the body, and of what is embedded of the frontmatter, that none shows."""
    document = parse(text)
    front = document.frontmatter
    wanted = WORD.findall(text[front.end :]) + WORD.findall(f"{front.title} {front.description}")
    visible = {word for one in shown(text) if one for word in WORD.findall(one)} | {"None"}
    return set(wanted) - visible


@given(documents())
@settings(deadline=None, max_examples=150)
def test_no_word_of_a_document_is_hidden(text: str) -> None:
    assert hidden_words(text) == set()


def test_no_word_of_a_heading_above_silent_headings_is_hidden() -> None:
    outer, middle = _named("alpha", 22), _named("beta", 14)
    assert hidden_words(f"# {outer}\n\n## {middle}\n\n### C\n\nx\n") == set()


@given(documents())
@settings(deadline=None, max_examples=60)
def test_the_body_is_shown_as_it_stands(text: str) -> None:
    end = parse(text).frontmatter.end
    for one in chunks_of(text):
        if one.shown is not None and one.region.char_start >= end < one.region.char_end:
            body = text[one.region.char_start : one.region.char_end]
            assert one.shown.endswith(body.rstrip("\ufeff \t\r\n"))


# Metadata


def test_long_metadata_is_embedded_in_several_pieces() -> None:
    words = [f"word{i}" for i in range(200)]
    text = f"---\ntitle: T\ndescription: {' '.join(words)}\n---\nBody.\n"
    *pieces, body = shown(text)
    assert len(pieces) > 2
    assert "".join(piece or "" for piece in pieces) == "T\n" + " ".join(words)
    assert body == "T\nBody."


def test_a_frontmatter_without_embedded_keys_is_silent_and_has_no_heading() -> None:
    first, second = chunks_of("---\ntype: Note\nowner: Ada\n---\n# A\n\nx\n")
    assert (first.shown, first.heading_path, first.region.opens) == (None, (), "0")
    assert second.shown == "A\n# A\n\nx"
