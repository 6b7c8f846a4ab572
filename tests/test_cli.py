"""The command line: exit codes, messages with their remedies, locales, pipes, signals, bugs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from kbindex import __version__
from testing.commands import Done, run_program
from testing.repositories import Repo, Template, copied

VERBS = ("init", "update", "check", "status", "query", "get", "checkpoint", "hook")
READERS = (("query", "lamps"), ("get", "lamps"), ("status",), ("check",))
RECIPE = ".kbindex/recipe.json"


@pytest.fixture
def shared(template: Template) -> Repo:
    """A small indexed repository, for tests that only read."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", "# Lamps\n\nThe lamps burn paraffin.\n")
        repo.write("bundle/long.md", "# Long\n\n" + "A line of no interest.\n\n" * 4000)
        assert repo.call("init", "--hooks", "native").code == 0
        repo.commit("first")
        assert repo.call("query", "lamps").code == 0

    return template("cli", fill)


@pytest.fixture
def library(shared: Repo, tmp_path: Path) -> Repo:
    """A copy to change."""
    return copied(shared, tmp_path / "library", shared.environment)


def assert_told(done: Done, code: int, message: str, remedy: str | None = None) -> None:
    """A failure is an exit code and a message on stderr, with what mends it."""
    assert done.code == code, done.err
    assert message in done.err
    if remedy is not None:
        assert f"remedy: {remedy}" in done.err
    assert "Traceback" not in done.err
    assert all(line.startswith("kbindex: ") for line in done.err.splitlines() if line), done.err


# What a user can get wrong


@pytest.mark.parametrize("arguments", [*READERS, ("update",), ("init",), ("hook", "pre-commit")])
def test_outside_a_repository_every_verb_says_so(
    tmp_path: Path, environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    outside = Repo(tmp_path, environment | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert_told(
        outside.call(*arguments),
        2,
        "is not inside a git repository",
        "run this inside a repository, or name one with --repo DIR",
    )


def test_a_folder_that_is_not_there_is_no_repository(shared: Repo) -> None:
    done = shared.kbindex("--repo", "nowhere", "status")
    assert_told(done, 2, "nowhere is not inside a git repository")


def test_without_a_bundle_building_and_checking_say_so(repo: Repo) -> None:
    for arguments in (("update",), ("check",)):
        assert_told(repo.call(*arguments), 2, "there is no bundle", "put documents into")


def test_without_a_bundle_init_says_so(repo: Repo) -> None:
    done = repo.call("init", "--hooks", "none")
    assert_told(done, 2, "there is no bundle", "put documents into")


def test_without_an_index_readers_name_init(repo: Repo) -> None:
    repo.write("bundle/a.md", "# A\n")
    repo.git("add", "bundle")
    for arguments in (("query", "x"), ("get", "a"), ("status",), ("check",)):
        assert_told(repo.call(*arguments), 3, "there is no index yet", "kbindex init")


def test_wrong_options_are_usage_errors(shared: Repo) -> None:
    for arguments in (
        ("query",),
        ("query", "lamps", "--nonsense"),
        ("query", "lamps", "--mode", "fuzzy"),
        ("query", "lamps", "-k", "many"),
        ("query", "lamps", "--format", "xml"),
        ("query", "lamps", "more"),
        ("nonsense",),
        ("init", "--hooks", "husky"),
    ):
        done = shared.call(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert "Traceback" not in done.err
    assert "auto, hybrid, dense, lexical" in shared.call("query", "x", "--mode", "fuzzy").err


def test_an_unknown_hook_names_the_known_ones(shared: Repo) -> None:
    done = shared.call("hook", "commit-msg")
    assert_told(done, 2, "unknown hook 'commit-msg'", "known are: pre-commit, pre-merge-commit")


BAD_CONFIGURATIONS = {
    "bundle = ": "kbindex.toml is not valid TOML",
    'bundel = "docs"': "kbindex.toml sets 'bundel', which is unknown",
    "bundle = 3": "kbindex.toml sets 'bundle' to 3, which is not a text",
    'chunk_tokens = "many"': "kbindex.toml sets 'chunk_tokens' to 'many'",
    "chunk_tokens = true": "kbindex.toml sets 'chunk_tokens' to True",
    "chunk_tokens = 4": "chunk_tokens is at least 32",
    'exclude = "drafts"': "kbindex.toml sets 'exclude' to 'drafts', which is not a list",
    "exclude = [1]": "kbindex.toml sets 'exclude'",
    'bundle = "../elsewhere"': "must lie inside the repository",
    'index_dir = "."': "index_dir needs a folder of its own",
    "dense_weight = 2": "dense_weight lies between 0 and 1",
}


@pytest.mark.parametrize("text", BAD_CONFIGURATIONS)
def test_a_bad_configuration_is_named_with_its_file(library: Repo, text: str) -> None:
    library.write("kbindex.toml", f"{text}\n")
    assert_told(library.call("query", "lamps"), 2, BAD_CONFIGURATIONS[text])


def test_a_bad_configuration_that_is_staged_stops_update_and_check(library: Repo) -> None:
    library.write("kbindex.toml", "bundle = \n")
    library.git("add", "kbindex.toml")
    for arguments in (("update",), ("check",), ("hook", "pre-commit")):
        assert_told(library.call(*arguments), 2, "kbindex.toml is not valid TOML")


def test_settings_in_pyproject_and_environment_are_checked_too(library: Repo) -> None:
    (library.root / "kbindex.toml").unlink()
    library.write("pyproject.toml", '[tool.kbindex]\nembedder = "hash"\nbundel = 1\n')
    assert_told(library.call("query", "lamps"), 2, "[tool.kbindex] in pyproject.toml sets 'bundel'")
    library.write("pyproject.toml", '[tool.kbindex]\nembedder = "hash"\n')
    assert library.call("query", "lamps").code == 0
    done = library.call("query", "lamps", KBINDEX_CHUNK_TOKENS="many")
    assert_told(done, 2, "KBINDEX_CHUNK_TOKENS='many' is not a whole number")


def test_a_weight_that_is_no_number_is_refused(library: Repo) -> None:
    library.write("kbindex.toml", 'embedder = "hash"\ndense_weight = nan\n')
    assert library.call("query", "lamps").code == 2


def test_an_unknown_embedder_names_the_known_ones(library: Repo) -> None:
    done = library.call("query", "lamps", KBINDEX_EMBEDDER="word2vec")
    assert_told(done, 2, "unknown embedder 'word2vec'", "set embedder to 'builtin'")
    done = library.call("init", "--embedder", "word2vec")
    assert_told(done, 2, "unknown embedder 'word2vec'")


def test_a_refused_init_leaves_the_configuration_alone(library: Repo) -> None:
    library.call("init", "--embedder", "word2vec")
    assert library.git("status", "--short") == ""


def test_an_unknown_revision_is_a_usage_error(shared: Repo) -> None:
    for revision in ("nonsense", "--all", "HEAD:bundle/lamps.md"):
        done = shared.call("check", f"--rev={revision}")
        assert_told(done, 2, f"'{revision}' names no commit or tree")
    assert shared.call("check", "--rev", "HEAD").code == 0


# Another embedder, another format, damage


def test_an_index_of_another_embedder_is_refused_and_words_still_work(library: Repo) -> None:
    for mode in ("auto", "hybrid", "dense"):
        done = library.call("query", "lamps", "--mode", mode, KBINDEX_EMBEDDER="builtin")
        assert_told(
            done,
            3,
            "the index was made by hash/feature-hashing, the configured embedder is "
            "builtin/multilingual-e5-small-q4",
            "kbindex update",
        )
        assert done.out == ""
    done = library.call("query", "lamps", "--mode", "lexical", KBINDEX_EMBEDDER="builtin")
    assert done.code == 0
    assert done.out.startswith("bundle/lamps.md:1: ")


def change_recipe(repo: Repo, **parts: Any) -> None:
    recipe = json.loads((repo.root / RECIPE).read_text())
    repo.write(RECIPE, json.dumps(recipe | parts))
    repo.git("add", RECIPE)


@pytest.mark.parametrize(
    ("format_version", "age", "remedy"),
    [(2, "newer", "pip install --upgrade kbindex"), (0, "older", "kbindex update")],
)
def test_an_index_of_another_format_is_recognised(
    library: Repo, format_version: int, age: str, remedy: str
) -> None:
    change_recipe(library, format=format_version, embedder="of another shape")
    for arguments in (("query", "lamps", "--mode", "lexical"), ("get", "lamps"), ("status",)):
        done = library.call(*arguments)
        assert_told(done, 3, f"the index has format {format_version}, {age} than", remedy)
        assert done.out == ""
    assert "recipe-mismatch" in library.call("check").out
    assert library.kbindex("check").code == 3
    assert library.call("hook", "pre-commit").code in (1, 3)


def test_update_rebuilds_an_index_of_an_older_format(library: Repo) -> None:
    change_recipe(library, format=0, embedder="of another shape")
    assert library.call("update").code == 0
    assert library.call("query", "lamps").code == 0


GARBAGE = {
    "nothing": "",
    "no JSON": "nonsense",
    "half": '{"format": 1, "chunker": {',
    "a list": "[1, 2]",
    "no format": "{}",
    "fields missing": '{"format": 1}',
    "odd format": '{"format": "one"}',
    "conflict": "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n",
    "not text": "\udcff\udcfe",
    "pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_damaged_recipe_is_named_and_update_mends_it(library: Repo, text: str) -> None:
    library.write(RECIPE, text.encode("utf-8", "surrogateescape"))
    library.git("add", RECIPE)
    assert_told(library.call("query", "lamps"), 3, f"{RECIPE}: ")
    assert library.call("check").code == 3
    if text.startswith("<<<<<<<"):
        assert library.call("update").code == 0
        assert library.call("query", "lamps").code == 0


@pytest.mark.parametrize("text", ['{"format": 1e999}', "[" * 100_000], ids=["infinite", "deep"])
def test_a_recipe_beyond_reason_is_damage_too(library: Repo, text: str) -> None:
    library.write(RECIPE, text)
    library.git("add", RECIPE)
    assert_told(library.call("query", "lamps"), 3, f"{RECIPE}: ")


# Streams, signals, bugs


def test_a_closed_pipe_is_quiet(shared: Repo) -> None:
    for command in ("get long | head -c 1", "query lamps -k 99 --text | true"):
        script = f"set -o pipefail; {sys.executable} -m kbindex {command}"
        done = run_program("bash", "-c", script, cwd=shared.root, environment=shared.environment)
        assert done.code == 0, done.err
        assert "Broken pipe" not in done.err
        assert "Traceback" not in done.err


def test_data_and_messages_do_not_mix(shared: Repo) -> None:
    done = shared.call("query", "lamps", "--format", "json")
    assert done.json()["query"] == "lamps"
    assert "hash" in done.err
    assert not done.err.startswith("{")


def test_an_interrupted_update_exits_130_and_leaves_the_index_as_it_was(library: Repo) -> None:
    for number in range(40):
        library.write(f"bundle/new/{number}.md", "# New\n\n" + f"A lens of {number}. " * 8000)
    library.git("add", "bundle")
    before = library.git("ls-files", "--stage", ".kbindex")
    running = subprocess.Popen(
        [sys.executable, "-m", "kbindex", "update"],
        cwd=library.root,
        env=library.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 20
    while not _holds_lock(library) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.5)
    assert running.poll() is None, "the update was too fast to interrupt"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert library.git("ls-files", "--stage", ".kbindex") == before
    assert library.call("query", "lamps", "--mode", "lexical").code == 0


def _holds_lock(repo: Repo) -> bool:
    import fcntl

    with (repo.root / ".git/kbindex/lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


BUG = """
import sys
from kbindex.commands import status
def broken(*_):
    return 1 / 0
status.status = broken
from kbindex.__main__ import main
sys.argv = ["kbindex", "status"]
main()
"""


def test_a_bug_exits_70_and_names_the_file_that_holds_the_traceback(
    shared: Repo, tmp_path: Path
) -> None:
    environment = shared.environment | {"TMPDIR": str(tmp_path)}
    done = run_program(sys.executable, "-c", BUG, cwd=shared.root, environment=environment)
    assert (done.code, done.out) == (70, "")
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1
    (file,) = re.findall(r"\S+\.txt", done.err)
    assert Path(file).parent == tmp_path
    report = Path(file).read_text()
    assert "ZeroDivisionError" in report
    assert f"kbindex {__version__}" in report


# Help, version, environment


def test_the_version_is_that_of_the_package(shared: Repo, tmp_path: Path) -> None:
    for folder in (shared.root, tmp_path):
        done = shared.call("--version", cwd=folder)
        assert (done.code, done.out) == (0, f"kbindex {__version__}\n")


def test_every_verb_has_help_on_both_flags(shared: Repo) -> None:
    listing = shared.call("-h")
    assert listing.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", listing.out, re.MULTILINE), verb
        done = shared.call(verb, "-h")
        assert done.code == 0
        assert f"kbindex {verb} " in done.out
        assert "--help" in done.out


def test_python_m_and_the_script_are_the_same(shared: Repo) -> None:
    script = Path(sys.executable).with_name("kbindex")
    if not script.exists():
        pytest.skip("the script is not installed")
    done = run_program(script, "get", "lamps", cwd=shared.root, environment=shared.environment)
    assert done.code == 0, done.err
    assert done == shared.kbindex("get", "lamps")


def test_piped_output_has_no_colour(shared: Repo) -> None:
    for variables in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}):
        for arguments in (("query", "lamps"), ("status",), ("query", "-h")):
            done = shared.kbindex(*arguments, **variables)
            assert "\x1b" not in done.out + done.err, (variables, arguments)


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_any_locale_gives_the_same_bytes(library: Repo, locale: str) -> None:
    library.write("bundle/größe 灯台.md", "# Größe › 灯台\n\nEin Leuchtfeuer: 灯台.\n")
    library.git("add", "bundle")
    for arguments in (
        ("query", "Leuchtfeuer", "-k", "1", "--text"),
        ("get", "größe 灯台"),
        ("status",),
    ):
        plain = library.kbindex(*arguments, LC_ALL="C.UTF-8")
        assert plain.code == 0, plain.err
        assert library.kbindex(*arguments, LC_ALL=locale) == plain


def test_a_file_name_that_is_not_utf8_can_be_committed(library: Repo) -> None:
    try:
        library.write("bundle/\udcff\udcfe.md", "---\ntitle: Odd\n---\n\nA gannet.\n")
    except OSError:
        pytest.skip("this file system wants UTF-8")
    library.commit("a name that is not UTF-8")
    assert library.call("check").code == 0


def test_a_file_name_with_a_newline_can_be_committed_and_found(library: Repo) -> None:
    library.write("bundle/two\nlines.md", "---\ntitle: Odd\n---\n\nA gannet.\n")
    library.commit("a name of two lines")
    done = library.call("query", "gannet", "-k", "1")
    assert len(done.out.splitlines()) == 1
    assert library.call("get", "two\nlines").code == 0


def test_a_file_name_that_is_not_utf8_is_shown(library: Repo) -> None:
    try:
        library.write("bundle/\udcff\udcfe.md", "---\ntitle: Odd\n---\n\nA gannet.\n")
    except OSError:
        pytest.skip("this file system wants UTF-8")
    library.git("add", "bundle")
    done = library.kbindex("query", "gannet", "-k", "1", LC_ALL="C")
    assert done.out.startswith("bundle/\udcff\udcfe.md:5: Odd  ")
    (hit,) = library.call("query", "gannet", "-k", "1", "--format", "json").json()["hits"]
    assert hit["path"] == "bundle/\udcff\udcfe.md"
    assert library.call("get", hit["id"]).out.endswith("A gannet.\n")


def test_importing_the_command_line_is_cheap() -> None:
    code = """
    import sys, kbindex.cli
    heavy = {"lancedb", "pyarrow", "numpy", "ollama", "yaml", "markdown_it", "tiktoken", "sqlite3"}
    sys.exit(",".join(heavy & sys.modules.keys()) or 0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
