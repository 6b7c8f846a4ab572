"""Settings that come with a stranger's repository: an answer or one message, and at once."""

from __future__ import annotations

import os
import re
import time
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbindex.configuration.config import Config, load_config
from kbindex.configuration.recipe import parse_recipe, render_recipe, wanted_recipe
from kbindex.core.errors import UsageError
from kbindex.core.model import EmbedderIdentity
from testing.repositories import Repo, run

TABLE = "[tool.kbindex]\n"

# Folders

FOLDERS = {
    **dict.fromkeys(["/etc", "C:/x", "c:x", "a/..", "..", "../../etc"], "inside the repository"),
    **dict.fromkeys(["a//b", "a/./b", "././a"], "single slashes"),
    **dict.fromkeys(["a\\b", ".x\\..", "\\\\server\\x"], "backslashes"),
    **dict.fromkeys(
        [
            *(".git", ".git/hooks", "docs/.git", ".GIT", ".Git/x", "git~1", "GIT~1/hooks"),
            *(".git ", ".git.", ".git . .", ".g\u200cit", "\ufeff.git"),
            *(".git::$INDEX_ALLOCATION", ".git:x", ".gitmodules", "a/.gitattributes"),
        ],
        "git keeps",
    ),
    **dict.fromkeys(
        ["a\0b", "a\nb", "a\x1b[31m", "a\u202eb", "a\x7f", ".gi\u202et"], "control character"
    ),
    **dict.fromkeys(["\ud800", "a\udcffb"], "valid Unicode|control character"),
    ":(top)x": "begins with a colon",
    "x" * 256: "more than 255 bytes",
    "ü" * 128: "more than 255 bytes",
    "x/" * 600 + "x": "more than 1024 characters",
}


@pytest.mark.parametrize("folder", FOLDERS, ids=range(len(FOLDERS)))
def test_a_folder_that_leads_elsewhere_is_refused_wherever_it_is_set(folder: str) -> None:
    for setting in ("bundle", "index_dir"):
        with pytest.raises(UsageError, match=FOLDERS[folder]) as caught:
            load_config(None, None, {f"KBINDEX_{setting.upper()}": folder})
        assert f"the environment sets '{setting}'" in caught.value.message
        if not any("\ud800" <= character <= "\udfff" for character in folder):
            written = "".join(f"\\U{ord(character):08x}" for character in folder)
            with pytest.raises(UsageError, match=FOLDERS[folder]) as caught:
                load_config(f'{setting} = "{written}"', None, {})
            assert f"kbindex.toml sets '{setting}'" in caught.value.message


@pytest.mark.parametrize(
    "folder", ["docs", ".kb", "git", "gitx", ".github", "a.git", "größe/漢字", "a b", "ab:c", "..."]
)
def test_an_ordinary_folder_may_hold_the_bundle(folder: str) -> None:
    assert load_config(None, None, {"KBINDEX_BUNDLE": folder}).bundle == folder


@pytest.mark.parametrize(
    ("bundle", "index_dir", "stand_together"),
    [
        ("docs", "docs/.index", True),
        (".", ".kbindex", True),
        ("docs", "docs2", True),
        ("a/docs", "a/index", True),
        ("docs", "docs", False),
        ("docs/a", "docs", False),
        (".kbindex/docs", ".kbindex", False),
        ("docs", "Docs", False),
        ("docs", "docs.", False),
        ("größe", "gro\u0308ße", False),
        ("docs", "docs::$INDEX_ALLOCATION", False),
        (".", ".", False),
        ("docs", ".", False),
    ],
)
def test_the_index_never_stands_in_place_of_documents_or_above_them(
    bundle: str, index_dir: str, stand_together: bool
) -> None:
    environment = {"KBINDEX_BUNDLE": bundle, "KBINDEX_INDEX_DIR": index_dir}
    if stand_together:
        assert load_config(None, None, environment).index_dir == index_dir
    else:
        with pytest.raises(UsageError, match="of its own"):
            load_config(None, None, environment)


# Everything else

HOSTILE = [
    ("a." * 30_000 + "a = 1", "more than 32 parts"),
    ("a . " * 15_000 + "a = 1", "more than 32 parts"),
    ("'a'." * 15_000 + "a = 1", "more than 32 parts"),
    ('x = {y = """q"""", ' + "a." * 20_000 + "a = 1}", "more than 32 parts"),
    ("[" + "a." * 20_000 + "a]", "more than 32 parts"),
    ("[" * 3000, "more than 32 deep"),
    ("x = " + "{a=" * 3000, "more than 32 deep"),
    ("x = " + "1" * 5000, "not valid TOML"),
    ("chunk_tokens = 0x" + "f" * 60_000, "chunk_tokens is at most"),
    ("dense_weight = 1" + "0" * 400, "not a number"),
    ("bundle = 'a\0b'", "not valid TOML"),
    ("include = ['!']", "include is a list of patterns, and '!' is no pattern"),
    (r"include = ['\']", "no pattern"),
    ("exclude = ['[z-a]']", "exclude is .*the range 'z-a' is empty"),
    ("exclude = ['a', '[b']", r"'\[b' is no pattern.*never closed"),
    (f"exclude = ['{'*a' * 300}']", "more than 512 characters"),
    ("include = [" + '"a",' * 300 + "]", "more than 256 patterns"),
    ("include = [" + '"*a*b*c",' * 200 + "]", "more than 1024 characters in patterns with"),
    (r'include = ["a\u0000"]', "a pattern that holds a control character"),
    (f"embedder = '{'x' * 300}'", "more than 256 characters"),
    (r'embedder = "hash\u001b[31m"', "control character"),
    (r'default_branch = "\n"', "control character"),
    (r'query_prefix = "\u0007"', "control character"),
    (f"query_prefix = '{'x' * 5000}'", "more than 4096 characters"),
    ("chunk_tokens = 8193", "at most 8192"),
    ("chunk_max_tokens = 99999", "at most 16384"),
    ("ollama_timeout = 0", "ollama_timeout is at least 1"),
    ("ollama_timeout = 9999999", "at most 86400"),
    ("checkpoint_every = -1", "at least 0"),
    ("hook_max_chunks = -1", "at least 0"),
    ("bundle = [[[1]]]", "not a text"),
]


@pytest.mark.parametrize(("text", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_setting_is_named_in_a_short_message_at_once(text: str, words: str) -> None:
    for own, pyproject in ((text, None), (None, TABLE + text)):
        began = time.process_time()
        with pytest.raises(UsageError, match=words) as caught:
            load_config(own, pyproject, {})
        assert time.process_time() - began < 0.5
        assert "kbindex.toml" in caught.value.message or "pyproject.toml" in caught.value.message
        assert len(caught.value.message) < 800


@pytest.mark.parametrize("text", ["tool = 3 # kbindex", "[tool]\nkbindex = 3", "[[tool.kbindex]]"])
def test_a_table_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml: '(tool|kbindex)' is no table"):
        load_config(None, text, {})


def test_a_prefix_may_have_lines() -> None:
    prefix = "Instruct: find\nQuery:\t"
    assert load_config(None, None, {"KBINDEX_QUERY_PREFIX": prefix}).query_prefix == prefix


def test_dots_in_texts_and_comments_are_no_long_keys() -> None:
    dots = "." * 500
    text = f"bundle = 'docs' # {dots}\nquery_prefix = '''\n{dots}'''\ndocument_prefix = \"{dots}\""
    assert load_config(text, None, {}).document_prefix == dots


def test_the_largest_values_make_a_recipe_that_can_be_read() -> None:
    config = Config(chunk_tokens=8192, chunk_max_tokens=16_384)
    identity = EmbedderIdentity("ollama", "x" * 249, "d", 8, "p" * 4096, "p\n" * 2048)
    recipe = wanted_recipe(config, identity)
    assert parse_recipe(render_recipe(recipe), "recipe.json") == recipe


VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20).map(lambda text: "'" + text.replace("'", "") + "'"),
    st.lists(st.text("*?[]!\\/ab-#. ", max_size=9), max_size=3).map(
        lambda patterns: "[" + ", ".join("'" + pattern + "'" for pattern in patterns) + "]"
    ),
    st.sampled_from(["true", "1979-05-27", "{}", "[[]]", "nan", "-inf", "''", "'a'"]),
)
NAMES = st.sampled_from([field.name for field in fields(Config)])
LINES = st.lists(st.tuples(NAMES, VALUES).map("{0[0]} = {0[1]}\n".format), max_size=4)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=200), LINES.map(lambda lines: "".join(lines).encode("utf-8"))))
@example(b"bundle = '\xff'")
@example(b"# \xff")
@example(b"[tool]\nkbindex = [1]")
def test_any_bytes_give_a_configuration_or_a_message(content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    for own, pyproject in ((text, None), (None, TABLE + text), (None, text + " # kbindex")):
        try:
            config = load_config(own, pyproject, {})
        except UsageError:
            continue
        assert not re.search(r"(^|/)\.?\.?(/|$)", config.index_dir)
        config.is_document("bundle/a.md")


# The files


def assert_refused(repo: Repo, words: str, *verbs: str) -> None:
    for verb in verbs:
        done = run(repo, *verb.split())
        assert done.code == 2, (verb, done)
        assert re.search(words, done.err), (verb, done.err)


OF_THE_WORKTREE = ("query lamps", "get lamps", "status", "update --worktree", "doctor", "init")
OF_A_TREE = ("check", "check --rev HEAD", "update", "diff HEAD staged", "hook pre-commit")


@pytest.mark.parametrize("name", ["kbindex.toml", "pyproject.toml"])
def test_a_link_in_place_of_the_settings_is_refused_alike_in_tree_and_work_tree(
    indexed: Repo, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text('[tool.kbindex]\nembedder = "hash"\n')
    (indexed.root / "kbindex.toml").unlink()
    (indexed.root / name).symlink_to(secret)
    assert_refused(indexed, f"{name} is a symbolic link", *OF_THE_WORKTREE)
    indexed.commit("a gift", "--no-verify")
    (indexed.root / name).unlink()
    assert_refused(indexed, f"{name} is a symbolic link", *OF_A_TREE)
    assert secret.read_text().startswith("[tool.kbindex]")


def test_a_linked_pyproject_is_nobody_s_business_beside_a_file_of_our_own(indexed: Repo) -> None:
    (indexed.root / "pyproject.toml").symlink_to("/nowhere")
    indexed.commit("a link", "--no-verify")
    for verb in ("query lamps", "check", "status"):
        assert run(indexed, *verb.split()).code == 0


def test_what_is_no_file_or_too_large_is_refused_at_once(indexed: Repo) -> None:
    file = indexed.root / "kbindex.toml"
    file.unlink()
    os.mkfifo(file)
    assert_refused(indexed, "kbindex.toml is no file", "query lamps")
    file.unlink()
    file.mkdir()
    assert_refused(indexed, "kbindex.toml is a folder", "query lamps")
    file.rmdir()
    indexed.write("kbindex.toml/x", "a file in a folder of that name")
    indexed.git("add", "--all")
    assert_refused(indexed, "kbindex.toml is a folder", "check", "update")
    indexed.git("rm", "--quiet", "--cached", "-r", "kbindex.toml")
    (file / "x").unlink()
    file.rmdir()
    indexed.write("kbindex.toml", "#" * (1 << 16) + "\n")
    indexed.git("add", "--all")
    assert_refused(indexed, "more than the 65536 bytes", "query lamps", "check")
