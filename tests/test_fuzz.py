"""Whatever bytes come from a repository: a value or a named refusal, in linear time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.analysis.tokenizer import read_query, read_words
from kbindex.configuration.recipe import parse_recipe
from kbindex.core.errors import DamagedIndexError, RecipeError
from kbindex.core.names import admit
from kbindex.document.anchors import Anchors
from kbindex.document.chunk import Limits, chunk
from kbindex.document.compose import compose, table_header
from kbindex.document.markdown import (
    UnreadableDocument,
    decode,
    match_heading,
    nested_headings,
    parse,
    parse_frontmatter,
)
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.embed.hashing import HashEmbedder
from kbindex.outline.file import (
    OutlineMismatch,
    make_entries,
    parse_outline,
    render_outline,
    verify_outline,
)
from kbindex.storage.arrow_stream import read_stream
from kbindex.storage.manifest import read_manifest
from kbindex.storage.protobuf import read_fields

IDENTITY = HashEmbedder.identity
MARKUP = st.sampled_from(
    [
        *("#", "##", "-", "*", ">", "1.", "```", "~~~", "|", "|-|", "---", "===", "\t", "\r\n"),
        *("\r", "[a]:", "<a>", "<!--", "-->", "{", "}", "title:", "tags:", "[", "]", "\ufeff"),
        *("é", "字", "🗼", "\0", "\x85", "\u2028", "a", "word", " ", "\n", "\n\n"),
    ]
)
TEXT = st.lists(MARKUP | st.text(max_size=5), max_size=60).map("".join)


@given(TEXT)
@settings(deadline=None, max_examples=150)
def test_any_text_is_a_document_whose_outline_is_proven(text: str) -> None:
    document = parse(text)
    nested_headings(text)
    regions = chunk(document, Limits(64, 32), count_tokens, token_starts)
    assert "".join(text[r.char_start : r.char_end] for r in regions) == text
    entries = make_entries(compose(text, document.frontmatter, regions), IDENTITY)
    assert verify_outline(text, parse_outline(render_outline(entries)), IDENTITY) == entries


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for read, refusals in (
        (lambda: decode(content), (UnreadableDocument,)),
        (lambda: parse_recipe(content.decode("utf-8", "replace"), "r"), (DamagedIndexError,)),
        (lambda: parse_outline(content.decode("utf-8", "replace")), (OutlineMismatch,)),
        (lambda: read_stream(content), (ValueError,)),
        (lambda: read_manifest(content), (ValueError,)),
        (lambda: read_fields(content), (ValueError,)),
    ):
        try:
            read()
        except refusals:
            continue


LINE = st.tuples(
    st.sampled_from(["0" * 32, "-", "z", "ab" * 16]),
    st.sampled_from(["0", "1", "5", "-1", "01", "9" * 15, "9" * 40, "x"]),
    st.sampled_from(["0", "3", ""]),
    st.sampled_from(["0", "1", "6", "t", "7", ""]),
    st.text(max_size=4),
).map("\t".join)


@given(TEXT, st.lists(LINE, max_size=8).map("\n\n".join))
@settings(deadline=None, max_examples=150)
def test_any_outline_describes_a_document_or_is_refused(text: str, outline: str) -> None:
    try:
        entries = parse_outline(outline)
        verify_outline(text, entries, IDENTITY, 384)
    except OutlineMismatch:
        return
    assert sum(entry.region.char_end - entry.region.char_start for entry in entries) == len(text)


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["format", "chunker", "composition", "embedder", "origin", "needs", "tokens"]
        ),
        JSON_VALUE
        | st.dictionaries(
            st.sampled_from(
                ["version", "tokens", "max_tokens", "provider", "model", "digest", "dimension"]
            ),
            JSON_VALUE,
        ),
    )
)
@settings(deadline=None, max_examples=150)
def test_any_json_is_a_recipe_or_refused(content: dict[str, object]) -> None:
    import json

    with pytest.raises((DamagedIndexError, RecipeError)):
        parse_recipe(json.dumps({"format": 1, **content}), "recipe.json")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["100644", "100755", "120000", "160000"]),
            st.just("0" * 40),
            st.lists(
                st.sampled_from(
                    [".kbindex", "..", ".", "", ".git", "outline", "wal", "chunks.lance", "data"]
                )
                | st.text(max_size=4),
                min_size=1,
                max_size=5,
            ).map("/".join),
        ),
        max_size=6,
    )
)
@settings(deadline=None, max_examples=150)
def test_any_tree_is_sorted_and_no_admitted_name_leads_out(
    entries: list[tuple[str, str, str]],
) -> None:
    found = admit([(m, o, f".kbindex/{path}") for m, o, path in entries], ".kbindex")
    for name in found.files:
        assert not name.startswith("/")
        assert not {"..", ".", "", ".git"} & set(name.split("/"))


# Time

PREFIXES = ("", "> ", "- ", "---\n", "---\na: ", "| a |\n|--|\n")
PATTERNS = (
    *("-", "=", "> ", "- ", "#", "# ", "`", "~", "[", "](", "*", "_", "|", "|-", "1. ", "\t", " "),
    *(
        "<",
        "<!--",
        "&",
        "\\",
        "---\n",
        "a: [",
        '"',
        "\n",
        "\r",
        "x\n=\n",
        "\u0301",
        "字",
        "aA",
        "a-",
    ),
)
SUFFIXES = ("", "x", "\n---\nx")
READERS: dict[str, Callable[[str], object]] = {
    "parse": parse,
    "frontmatter": parse_frontmatter,
    "nested": nested_headings,
    "words": read_words,
    "query": lambda text: read_query(text[:4000]),
    "heading": lambda text: (match_heading(text, 1), match_heading(text, 2)),
    "table": table_header,
    "anchors": lambda text: Anchors().add(text[:2000]),
}


@pytest.mark.parametrize("reader", READERS)
def test_repeated_text_takes_no_more_than_linear_time(reader: str) -> None:
    read = READERS[reader]
    size = 20_000
    for prefix, pattern, suffix in itertools.product(PREFIXES, PATTERNS, SUFFIXES):
        text = prefix + pattern * (size // len(pattern)) + suffix
        began = time.process_time()
        read(text)
        # Quadratic time would be seconds; linear time is milliseconds.
        assert time.process_time() - began < 1.5, (prefix, pattern, suffix)
