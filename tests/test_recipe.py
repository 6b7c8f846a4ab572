"""The recipe's bytes, its reading, what a change is called, and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex import __version__
from kbindex.configuration.config import Config
from kbindex.configuration.recipe import (
    FORMAT,
    NEEDS,
    compare_recipes,
    identity_id,
    key_of,
    parse_recipe,
    recipe_id,
    refuse_newer,
    render_recipe,
    wanted_recipe,
)
from kbindex.core.errors import DamagedIndexError, ExitCode, RecipeError
from kbindex.core.model import EmbedderIdentity, Origin, Recipe
from kbindex.core.text import printable

pytestmark = pytest.mark.quick

PATH = ".kbindex/recipe.json"
IDENTITY = EmbedderIdentity("ollama", "nomic", "sha256:00", 768, "query: ", "passage: ")
RECIPE = Recipe(IDENTITY, 256, 384)

OTHER_IDENTITIES = {
    "provider": replace(IDENTITY, provider="builtin"),
    "model": replace(IDENTITY, model="nomic2", digest="sha256:02", query_prefix="q "),
    "digest": replace(IDENTITY, digest="sha256:01"),
    "dimension": replace(IDENTITY, dimension=384),
    "query_prefix": replace(IDENTITY, query_prefix=""),
    "document_prefix": replace(IDENTITY, document_prefix="passage:"),
}
OTHER_RECIPES = {
    "vector type": replace(RECIPE, dtype="float32"),
    "chunker version": replace(RECIPE, chunker=2),
    "chunk_tokens": replace(RECIPE, chunk_tokens=128),
    "chunk_max_tokens": replace(RECIPE, chunk_max_tokens=512),
    "composition version": replace(RECIPE, composition=2),
} | {
    "embedder" if name in ("provider", "model") else f"embedder {name}": replace(RECIPE, embedder=i)
    for name, i in OTHER_IDENTITIES.items()
}


def test_every_field_of_an_identity_is_tried_here() -> None:
    assert {field.name for field in fields(EmbedderIdentity)} == set(OTHER_IDENTITIES)


PRINTED = st.text(max_size=8).filter(lambda text: printable(text) == text)


@given(
    st.builds(
        Recipe,
        embedder=st.builds(
            EmbedderIdentity,
            provider=PRINTED,
            model=PRINTED,
            digest=PRINTED,
            dimension=st.integers(1, 4096),
            query_prefix=PRINTED,
            document_prefix=PRINTED,
        ),
        chunk_tokens=st.integers(32, 9999),
        chunk_max_tokens=st.integers(32, 9999),
        format=st.just(FORMAT),
        chunker=st.integers(1, 9),
        composition=st.integers(1, 9),
    )
)
@settings(deadline=None, max_examples=60)
def test_a_recipe_survives_writing_and_reading(recipe: Recipe) -> None:
    assert parse_recipe(render_recipe(recipe), PATH) == recipe


def test_equal_recipes_give_equal_bytes_that_end_in_a_newline() -> None:
    text = render_recipe(RECIPE)
    assert text == render_recipe(replace(RECIPE))
    assert text.endswith("}\n")
    assert "\r" not in text


@pytest.mark.parametrize(("part", "other"), OTHER_RECIPES.items(), ids=OTHER_RECIPES)
def test_a_change_names_its_part_and_no_other(part: str, other: Recipe) -> None:
    [change] = compare_recipes(RECIPE, other)
    assert change.part == part
    assert change.before != change.after
    assert str(change) == f"{part}: {change.before} → {change.after}"
    assert recipe_id(RECIPE) != recipe_id(other)


def test_a_changed_chunker_never_reads_as_a_changed_model() -> None:
    changes = compare_recipes(RECIPE, replace(RECIPE, chunker=2, chunk_tokens=99))
    assert not any("embedder" in str(change) for change in changes)


def test_equal_recipes_have_no_changes() -> None:
    assert compare_recipes(RECIPE, replace(RECIPE)) == []


# Keys and short names


@pytest.mark.parametrize(("name", "other"), OTHER_IDENTITIES.items(), ids=OTHER_IDENTITIES)
def test_a_key_depends_on_every_field_of_the_identity(name: str, other: EmbedderIdentity) -> None:
    assert key_of(IDENTITY, "text") != key_of(other, "text"), name
    assert identity_id(IDENTITY) != identity_id(other)


@pytest.mark.parametrize("shown", ["text ", " text", "Text", "text\n", "", "te\u0301xt"])
def test_a_key_depends_on_the_exact_text(shown: str) -> None:
    assert key_of(IDENTITY, shown) != key_of(IDENTITY, "text")


def test_chunk_limits_are_no_part_of_a_key() -> None:
    assert not {"chunk_tokens", "format"} & {field.name for field in fields(EmbedderIdentity)}


def test_names_are_hexadecimal_of_the_documented_lengths() -> None:
    for name, length in (
        (key_of(IDENTITY, "\x00漢字🧑‍🚀"), 32),
        (identity_id(IDENTITY), 12),
        (recipe_id(RECIPE), 16),
    ):
        assert re.fullmatch(f"[0-9a-f]{{{length}}}", name)


def test_keys_stay_what_they_are_between_versions() -> None:
    identity = EmbedderIdentity("hash", "features", "1", 256)
    assert key_of(identity, "Lamps") == "f771ab784f64ea38743b112f6868efdb"


def test_fields_of_an_identity_do_not_run_into_each_other() -> None:
    one = replace(IDENTITY, provider="a", model="bc")
    other = replace(IDENTITY, provider="ab", model="c")
    assert key_of(one, "x") != key_of(other, "x")


# Damage


def _without(*path: str) -> str:
    content = json.loads(render_recipe(RECIPE))
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return json.dumps(content)


def _with(part: str, name: str, value: object) -> str:
    content = json.loads(render_recipe(RECIPE))
    content[part][name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        '"format"',
        "{}",
        '{"format": "one"}',
        '{"format": null}',
        '{"format": 1}',
        '{"format": 1, "embedder": null}',
        "version https://git-lfs.github.com/spec/v1\n",
        render_recipe(RECIPE)[:-20],
        _without("format"),
        _without("chunker"),
        _without("chunker", "version"),
        _without("chunker", "tokens"),
        _without("chunker", "max_tokens"),
        _without("composition"),
        _without("embedder"),
        _without("embedder", "dtype"),
        _without("embedder", "model"),
        _without("embedder", "dimension"),
        _with("embedder", "unknown", 1),
        _with("chunker", "tokens", "many"),
        _with("chunker", "tokens", None),
        _with("chunker", "tokens", float("inf")),
        "<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs\n",
    ],
)
def test_a_damaged_recipe_is_named_with_its_file_and_a_remedy(text: str) -> None:
    with pytest.raises(DamagedIndexError) as caught:
        parse_recipe(text, PATH)
    assert caught.value.exit_code is ExitCode.UNREADABLE_INDEX
    assert PATH in caught.value.message
    assert "kbindex update" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "text",
    [
        _with("embedder", "dimension", "768"),
        _with("embedder", "model", ["nomic"]),
        _with("embedder", "dimension", -1),
    ],
)
def test_a_field_of_another_kind_is_damage(text: str) -> None:
    with pytest.raises(DamagedIndexError):
        parse_recipe(text, PATH)


@pytest.mark.parametrize(
    ("number", "age", "remedy"),
    [(FORMAT + 1, "newer", "upgrade"), (99, "newer", "upgrade"), (0, "older", "kbindex update")],
)
def test_another_format_is_recognised_before_anything_else_is_read(
    number: int, age: str, remedy: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(json.dumps({"format": number, "all": "else is different"}), PATH)
    assert age in caught.value.message
    assert str(number) in caught.value.message
    assert remedy in (caught.value.remedy or "")
    assert caught.value.exit_code is ExitCode.UNREADABLE_INDEX


# What a change is called


def said(before: Recipe, after: Recipe) -> list[str]:
    return [str(change) for change in compare_recipes(before, after)]


def test_another_embedder_is_said_by_its_name_and_dimension_not_by_what_follows_from_it() -> None:
    name = "a-model-of-a-long-name-in-4-bit"
    other = replace(RECIPE, embedder=EmbedderIdentity("hash", name, "crc32", 256))
    assert said(RECIPE, other) == [
        f"embedder: ollama/nomic → hash/{name}",
        "embedder dimension: 768 → 256",
    ]


def test_another_prefix_is_said_with_its_spaces() -> None:
    other = replace(RECIPE, embedder=replace(IDENTITY, query_prefix=""))
    assert said(RECIPE, other) == ['embedder query_prefix: "query: " → ""']


@pytest.mark.parametrize("same", [0, 7, 30, 60])
def test_other_weights_are_said_by_the_beginning_of_their_digests(same: int) -> None:
    digests = [f"sha256:{'a' * same}{end * (64 - same)}" for end in "bc"]
    [change] = compare_recipes(
        *(replace(RECIPE, embedder=replace(IDENTITY, digest=digest)) for digest in digests)
    )
    assert change.part == "embedder digest"
    assert change.before != change.after
    assert len(change.before) <= max(25, 7 + same + 2)
    assert digests[0].startswith(change.before.rstrip("…"))


def test_no_message_shows_a_name_that_is_internal() -> None:
    for other in OTHER_RECIPES.values():
        text = "; ".join(said(RECIPE, other))
        for internal in (recipe_id(RECIPE), recipe_id(other), identity_id(other.embedder)):
            assert internal not in text
        assert not re.search(r"[0-9a-f]{13}", text)


# Versions


def test_the_version_that_is_needed_is_one_that_there_is() -> None:
    def numbers(version: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", version)[:3]]

    assert numbers(NEEDS) <= numbers(__version__)


def test_what_a_recipe_needs_is_written_unless_it_is_the_first_version() -> None:
    assert '"needs"' not in render_recipe(RECIPE)
    later = replace(RECIPE, needs="0.7.2")
    assert '"needs": "0.7.2"' in render_recipe(later)
    assert parse_recipe(render_recipe(later), PATH) == later


@pytest.mark.parametrize(
    ("needs", "remedy"),
    [
        ("0.7.2", "pip install 'kbindex>=0.7.2'"),
        (None, "pip install --upgrade kbindex"),
        ("1'; rm -r /", "pip install --upgrade kbindex"),
        (7, "pip install --upgrade kbindex"),
    ],
)
def test_a_newer_format_names_the_version_that_reads_it(needs: object, remedy: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(json.dumps({"format": FORMAT + 1, "needs": needs}), PATH)
    assert caught.value.remedy == remedy


@pytest.mark.parametrize("part", ["chunker", "composition"])
def test_a_newer_chunker_or_composition_names_itself_and_the_version(part: str) -> None:
    newer = replace(RECIPE, needs="0.7.2", **{part: 2})
    with pytest.raises(RecipeError) as caught:
        refuse_newer(newer)
    assert f"{part} version 2, here it is 1" in caught.value.message
    assert caught.value.remedy == "pip install 'kbindex>=0.7.2'"
    refuse_newer(RECIPE)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("  ", "\t"),
        lambda text: json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n",
        lambda text: text.replace('"format"', '"made_by": "me",\n  "format"'),
        lambda text: text.replace('"version": 1', '"version": 1, "more": 2', 1),
        lambda text: text.replace(": 256", ': "256"'),
        lambda text: "\ufeff" + text,
    ],
    ids=["crlf", "newline", "tabs", "order", "field", "inner field", "kind", "mark"],
)
def test_a_recipe_that_another_program_rewrote_is_damage(change: Callable[[str], str]) -> None:
    text = change(render_recipe(RECIPE))
    assert text != render_recipe(RECIPE)
    with pytest.raises(DamagedIndexError) as caught:
        parse_recipe(text, PATH)
    assert "kbindex update" in (caught.value.remedy or "")


ORIGIN = Origin("ollama 0.12.3", ("AAAA", "BBBB"))


def test_the_origin_is_written_and_read_again() -> None:
    recipe = wanted_recipe(Config(), IDENTITY, ORIGIN)
    assert parse_recipe(render_recipe(recipe), "recipe.json") == recipe
    assert "origin" not in render_recipe(wanted_recipe(Config(), IDENTITY))


def test_the_origin_decides_neither_keys_nor_outlines() -> None:
    plain, made = wanted_recipe(Config(), IDENTITY), wanted_recipe(Config(), IDENTITY, ORIGIN)
    assert recipe_id(plain) == recipe_id(made)
    assert compare_recipes(plain, made) == []


@pytest.mark.parametrize("origin", ["[]", '{"canaries": 3}', '"x"'])
def test_a_garbled_origin_is_damage(origin: str) -> None:
    text = render_recipe(wanted_recipe(Config(), IDENTITY, ORIGIN))
    content = json.loads(text) | {"origin": json.loads(origin)}
    with pytest.raises(DamagedIndexError):
        parse_recipe(json.dumps(content), "recipe.json")
