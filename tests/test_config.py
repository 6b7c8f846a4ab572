"""Settings: which source wins, what is refused, and which files are documents."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kbindex.configuration.config import Config, load_config
from kbindex.core.errors import ExitCode, UsageError

pytestmark = pytest.mark.quick

PYPROJECT = "[project]\nname = 'x'\n[tool.kbindex]\n"


def test_without_any_source_the_defaults_hold() -> None:
    assert load_config(None, None, {}) == Config()
    assert load_config("", "", {"PATH": "/bin"}) == Config()


def test_the_largest_chunk_is_one_and_a_half_times_the_aim_unless_set() -> None:
    assert Config().max_tokens == 384
    assert Config(chunk_tokens=100).max_tokens == 150
    assert Config(chunk_tokens=100, chunk_max_tokens=400).max_tokens == 400


# Precedence


@pytest.mark.parametrize(
    ("own", "pyproject", "environment", "expected"),
    [
        (None, PYPROJECT + "bundle = 'p'", {}, "p"),
        ("bundle = 'k'", None, {}, "k"),
        ("bundle = 'k'", PYPROJECT + "bundle = 'p'", {}, "k"),
        ("bundle = 'k'", PYPROJECT + "bundle = 'p'", {"KBINDEX_BUNDLE": "e"}, "e"),
        (None, PYPROJECT + "bundle = 'p'", {"KBINDEX_BUNDLE": "e"}, "e"),
        (None, None, {"KBINDEX_BUNDLE": "e"}, "e"),
        ("", PYPROJECT + "bundle = 'p'", {}, "bundle"),
        ("bundle = 'k'", None, {"kbindex_bundle": "e"}, "k"),
        (None, "[tool.other]\nbundle = 'x'\n", {}, "bundle"),
    ],
)
def test_the_stronger_source_wins(
    own: str | None, pyproject: str | None, environment: dict[str, str], expected: str
) -> None:
    assert load_config(own, pyproject, environment).bundle == expected


def test_sources_are_merged_setting_by_setting_with_the_environment() -> None:
    config = load_config("bundle = 'k'\nchunk_tokens = 99", None, {"KBINDEX_CHUNK_TOKENS": "77"})
    assert (config.bundle, config.chunk_tokens) == ("k", 77)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("KBINDEX_CHUNK_TOKENS", "64", "chunk_tokens", 64),
        ("KBINDEX_DENSE_WEIGHT", "0.25", "dense_weight", 0.25),
        ("KBINDEX_DENSE_WEIGHT", "1", "dense_weight", 1.0),
        ("KBINDEX_INCLUDE", "*.md *.markdown", "include", ("*.md", "*.markdown")),
        ("KBINDEX_EXCLUDE", "", "exclude", ()),
        ("KBINDEX_EMBEDDER", "ollama:x", "embedder", "ollama:x"),
        ("KBINDEX_CHECKPOINT_EVERY", "0", "checkpoint_every", 0),
    ],
)
def test_a_variable_is_read_as_its_settings_kind(
    variable: str, value: str, field: str, expected: object
) -> None:
    assert getattr(load_config(None, None, {variable: value}), field) == expected


def test_every_setting_can_be_set_in_every_source() -> None:
    values = {
        str: ("'embedder'", "embedder"),
        int: ("500", "500"),
        float: ("0.5", "0.5"),
        tuple: ("['*.md']", "*.md"),
    }
    for field in fields(Config):
        written, variable = values[type(field.default)]
        if field.name == "language":
            written, variable = "'es'", "es"
        in_file = load_config(f"{field.name} = {written}", None, {})
        in_pyproject = load_config(None, f"{PYPROJECT}{field.name} = {written}", {})
        in_environment = load_config(None, None, {f"KBINDEX_{field.name.upper()}": variable})
        assert in_file == in_pyproject == in_environment, field.name


def test_a_whole_number_may_stand_for_a_number_but_not_the_reverse() -> None:
    assert load_config("dense_weight = 1", None, {}).dense_weight == 1.0
    with pytest.raises(UsageError):
        load_config("chunk_tokens = 256.0", None, {})


# Refusals


@pytest.mark.parametrize(
    ("own", "pyproject", "environment", "words"),
    [
        ("bundel = 'x'", None, {}, ["kbindex.toml", "'bundel'"]),
        (None, PYPROJECT + "bundel = 'x'", {}, ["pyproject.toml", "'bundel'"]),
        ("bundle = [", None, {}, ["kbindex.toml", "TOML"]),
        (None, "[tool.kbindex]\nbundle = ", {}, ["pyproject.toml", "TOML"]),
        ("bundle = 3", None, {}, ["kbindex.toml", "'bundle'", "a text"]),
        ("chunk_tokens = 'many'", None, {}, ["'chunk_tokens'", "a whole number"]),
        ("chunk_tokens = true", None, {}, ["'chunk_tokens'", "a whole number"]),
        ("dense_weight = true", None, {}, ["'dense_weight'", "a number"]),
        ("include = '*.md'", None, {}, ["'include'", "a list"]),
        ("include = [1]", None, {}, ["'include'", "a list"]),
        (None, None, {"KBINDEX_CHUNK_TOKENS": "many"}, ["KBINDEX_CHUNK_TOKENS", "whole number"]),
        (None, None, {"KBINDEX_DENSE_WEIGHT": "x"}, ["KBINDEX_DENSE_WEIGHT", "a number"]),
        ("chunk_tokens = 31", None, {}, ["at least 32"]),
        ("chunk_tokens = 0", None, {}, ["at least 32"]),
        ("chunk_tokens = -256", None, {}, ["at least 32"]),
        ("chunk_max_tokens = 255", None, {}, ["at least chunk_tokens"]),
        ("chunk_max_tokens = -1", None, {}, ["at least 0"]),
        ("dense_weight = inf", None, {}, ["between 0 and 1"]),
        ("dense_weight = 1.5", None, {}, ["between 0 and 1"]),
        ("bundle = '../other'", None, {}, ["inside the repository"]),
        ("bundle = 'a/../..'", None, {}, ["inside the repository"]),
        ("index_dir = '..'", None, {}, ["inside the repository"]),
        ("index_dir = ''", None, {}, ["of its own"]),
        ("index_dir = '.'", None, {}, ["of its own"]),
        ("index_dir = 'bundle'", None, {}, ["of its own"]),
        ("index_dir = 'bundle/'", None, {}, ["of its own"]),
        ("bundle = '/etc'", None, {}, ["inside the repository"]),
        (None, None, {"KBINDEX_BUNDLE": "../x"}, ["the environment", "inside the repository"]),
    ],
)
def test_what_cannot_be_meant_is_refused_and_its_source_named(
    own: str | None, pyproject: str | None, environment: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(own, pyproject, environment)
    assert caught.value.exit_code is ExitCode.USAGE
    assert [word for word in words if word not in caught.value.message] == []


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        load_config("bundel = 'x'", None, {})
    assert "bundle, checkpoint_every" in (caught.value.remedy or "")


@pytest.mark.parametrize("weight", ["nan", "-inf"])
def test_a_weight_that_is_no_number_is_refused(weight: str) -> None:
    with pytest.raises(UsageError):
        load_config(f"dense_weight = {weight}", None, {})


@pytest.mark.parametrize(
    "text", ["[tool]\nkbindex = {bundle = 'p'}\n", "[tool.'kbindex']\nbundle = 'p'\n"]
)
def test_any_way_to_write_the_table_is_read(text: str) -> None:
    assert load_config(None, text, {}).bundle == "p"


@pytest.mark.parametrize("written", ["docs/kb", "./docs/kb", "docs/kb/", "./docs/kb/"])
def test_slashes_around_a_folder_do_not_matter(written: str) -> None:
    config = load_config(
        f"bundle = '{written}'\nindex_dir = '{written.rstrip('/')}/.index/'", None, {}
    )
    assert (config.bundle, config.index_dir) == ("docs/kb", "docs/kb/.index")


@pytest.mark.parametrize("written", ["", ".", "/"])
def test_the_whole_repository_may_be_the_bundle(written: str) -> None:
    config = load_config(f"bundle = '{written}'", None, {})
    assert config.bundle == "."
    assert config.is_document("README.md")
    assert config.document_id("a/b.md") == "a/b"


# Documents


@pytest.mark.parametrize(
    ("path", "is_document"),
    [
        ("bundle/a.md", True),
        ("bundle/deep/er/a.md", True),
        ("bundle/.hidden.md", True),
        ("bundle/with space.md", True),
        ("bundle/漢字.md", True),
        ("bundle/\udcff.md", True),
        ("bundle/a.MD", False),
        ("bundle/a.md.txt", False),
        ("bundle/a.txt", False),
        ("bundle/md", False),
        ("a.md", False),
        ("bundle.md", False),
        ("bundles/a.md", False),
        ("other/bundle/a.md", False),
    ],
)
def test_documents_are_the_markdown_files_of_the_bundle(path: str, is_document: bool) -> None:
    assert Config().is_document(path) is is_document


@pytest.mark.parametrize(
    ("include", "exclude", "path", "is_document"),
    [
        (("*.md", "*.markdown"), (), "bundle/a.markdown", True),
        (("*.md",), ("drafts/",), "bundle/drafts/a.md", False),
        (("*.md",), ("drafts/",), "bundle/x/drafts/a.md", False),
        (("*.md",), ("/drafts/",), "bundle/x/drafts/a.md", True),
        (("*.md",), ("/drafts/",), "bundle/drafts/a.md", False),
        (("*.md",), ("*.draft.md",), "bundle/x/a.draft.md", False),
        (("*.md",), ("**/old/**",), "bundle/x/old/y/a.md", False),
        (("*.md",), ("a.md", "!keep/a.md"), "bundle/keep/a.md", True),
        (("*.md",), ("a.md", "!keep/a.md"), "bundle/other/a.md", False),
        (("*.md",), ("[ab].md",), "bundle/b.md", False),
        (("*.md",), ("?.md",), "bundle/bb.md", True),
        (("*.md",), ("# comment", "", "b.md"), "bundle/a.md", True),
        (("*.md",), ("bundle/a.md",), "bundle/a.md", True),
        (("notes/*.md",), (), "bundle/notes/a.md", True),
        (("notes/*.md",), (), "bundle/notes/x/a.md", False),
        (("notes/*.md",), (), "bundle/a.md", False),
        ((), (), "bundle/a.md", False),
    ],
)
def test_patterns_are_those_of_gitignore_below_the_bundle(
    include: tuple[str, ...], exclude: tuple[str, ...], path: str, is_document: bool
) -> None:
    assert Config(include=include, exclude=exclude).is_document(path) is is_document


@pytest.mark.parametrize(
    ("path", "name"),
    [("bundle/a.md", "a"), ("bundle/x/y.z.md", "x/y.z"), ("bundle/a.txt", "a.txt")],
)
def test_an_id_is_the_path_below_the_bundle_without_its_suffix(path: str, name: str) -> None:
    assert Config().document_id(path) == name
