"""Whatever stands in the environment or in git's configuration, git is asked and says the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbindex.core.errors import GitError
from kbindex.git.client import Git
from testing.commands import Done
from testing.repositories import Repo, run

PATHSPECS = ("GIT_LITERAL_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS")


def here(repo: Repo, *arguments: str, **variables: str) -> Done:
    """Run in the current folder, with git's environment."""
    return repo.call(*arguments, cwd=Path.cwd(), **variables)


# Variables


@pytest.mark.parametrize("variable", [*PATHSPECS, "GIT_GLOB_PATHSPECS"])
def test_how_an_editor_wants_pathspecs_read_is_not_our_business(
    indexed: Repo, variable: str
) -> None:
    for verb in ("query lenses", "check", "status"):
        done = run(indexed, *verb.split(), **{variable: "1"})
        assert done.code == 0, (verb, done.err)
    indexed.write("bundle/new.md", "# New\n\nA new text.\n")
    indexed.git("add", "--all")
    done = run(indexed, "hook", "pre-commit", **{variable: "1"})
    assert (done.code, "1 chunks embedded" in done.err) == (0, True), done.err
    assert run(indexed, "check").code == 0


def test_a_commit_with_literal_pathspecs_holds_its_index(indexed: Repo) -> None:
    indexed.write("bundle/plain.md", "Another paragraph.\n")
    indexed.git("--literal-pathspecs", "commit", "-qm", "x", "--", "bundle/plain.md")
    assert ".kbindex/outline/plain.md.tsv" in indexed.git("show", "--name-only", "HEAD")
    assert run(indexed, "check").code == 0
    assert indexed.git("status", "--porcelain") == ""


def test_variables_that_change_answers_do_not_reach_git(
    indexed: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    variables = {
        "GIT_EXTERNAL_DIFF": str(program),
        "GIT_ATTR_SOURCE": "HEAD~99",  # from git 2.41
        "GIT_CONFIG": "/dev/null",
        "GIT_DIFF_OPTS": "--color=always",
        "GIT_TRACE": "1",
        "GIT_TEMPLATE_DIR": str(tmp_path),
        "LC_ALL": "es_ES.UTF-8",
        "LANGUAGE": "es",
    }
    indexed.write("bundle/plain.md", "Another paragraph.\n")
    for verb in ("query lenses", "status", "check", "diff", "update --worktree --dry-run"):
        plain, done = run(indexed, *verb.split()), run(indexed, *verb.split(), **variables)
        assert (done.code, done.out) == (plain.code, plain.out), verb
    assert not marker.exists()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    indexed.git("config", "core.sparseCheckout", "yes")
    assert Git(indexed.root).settings.is_sparse
    with pytest.raises(GitError, match=r"^git nothing failed: git: 'nothing' is not a git command"):
        Git(indexed.root).run("nothing")


def test_what_replaces_an_object_in_one_clone_is_not_indexed(indexed: Repo) -> None:
    before = indexed.git("rev-parse", "HEAD:bundle/plain.md").strip()
    other = indexed.git("hash-object", "-w", "--stdin", stdin=b"Something else.\n").strip()
    indexed.git("replace", before, other)
    assert run(indexed, "check").code == 0
    assert run(indexed, "get", "plain").out == "Just a paragraph, without any heading.\n"


# A git dir apart from the work tree


@pytest.mark.parametrize("git_dir", ["absolute", "relative"])
def test_a_git_dir_and_work_tree_in_the_environment_are_used_by_every_verb(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, git_dir: str
) -> None:
    home, dots = tmp_path / "home", tmp_path / "dots.git"
    home.mkdir()
    repo.git("init", "--quiet", "--bare", str(dots))
    shutil.rmtree(repo.root)
    files = Repo(home, repo.environment)
    files.write("kbindex.toml", 'embedder = "hash"\n')
    files.write("bundle/deep/lamps.md", "# Lamps\n\nThe lamps burn paraffin.\n")
    monkeypatch.chdir(home / "bundle/deep")
    named = {
        "GIT_DIR": str(dots) if git_dir == "absolute" else "../../../dots.git",
        "GIT_WORK_TREE": str(home) if git_dir == "absolute" else "../..",
    }
    absolute = Repo(home, files.environment | {"GIT_DIR": str(dots), "GIT_WORK_TREE": str(home)})
    absolute.git("add", "bundle", "kbindex.toml")
    done = here(files, "init", "--hooks", "native", **named)
    assert done.code == 0, done.err
    absolute.git("commit", "--quiet", "-m", "first")
    absolute.write("bundle/deep/lamps.md", "# Lamps\n\nThe lamps burn oil.\n")
    absolute.git("commit", "--quiet", "-am", "second")
    assert ".kbindex/outline/deep/lamps.md.tsv" in absolute.git("show", "--name-only", "HEAD")
    for verb in ("query oil", "check", "status", "get deep/lamps", "update", "doctor"):
        done = here(files, *verb.split(), **named)
        assert done.code == 0, (verb, done)
    assert not (home / ".git").exists()


def test_a_work_tree_alone_goes_with_the_git_dir_that_is_found(
    indexed: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(indexed.root / "bundle", tmp_path / "tree/bundle")
    shutil.copy(indexed.root / "kbindex.toml", tmp_path / "tree")
    monkeypatch.chdir(indexed.root)
    done = here(indexed, "query", "lenses", GIT_WORK_TREE="../tree")
    assert done.code == 0, done.err
    assert done.out.startswith("bundle/lamps.md")


def test_a_git_dir_that_is_none_is_said_and_nothing_else_is_read(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(indexed.root)
    done = here(indexed, "query", "lenses", GIT_DIR="/nowhere")
    assert (done.code, done.out) == (2, "")
    assert "GIT_DIR names no repository: '/nowhere'" in done.err


@pytest.mark.parametrize("name", ["new\nline", 'q"uote\\', "caf\udce9", "-x"])
def test_a_repository_may_stand_in_a_folder_of_any_name(
    indexed: Repo, tmp_path: Path, name: str
) -> None:
    repo = Repo(indexed.root.rename(tmp_path / name), indexed.environment)
    repo.write("bundle/plain.md", "Another paragraph.\n")
    repo.git("add", "--all")
    for verb in ("update", "check", "query paragraph", "init --hooks native"):
        done = run(repo, *verb.split())
        assert done.code == 0, (verb, done)


# Repositories that are not to be trusted


@pytest.mark.parametrize("verb", ["query lamps", "get lamps", "check", "update", "doctor", "init"])
def test_a_repository_of_another_user_is_refused_in_git_s_own_words(
    indexed: Repo, verb: str
) -> None:
    done = run(indexed, *verb.split(), GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
    assert (done.code, done.out) == (2, "")
    assert "dubious ownership" in done.err
    assert f"remedy: git config --global --add safe.directory {indexed.root}" in done.err


@pytest.fixture
def alarm(tmp_path: Path) -> tuple[Path, Path]:
    """A program for hostile configurations to name, and the file that it leaves when it is run."""
    marker, program = tmp_path / "it-ran", tmp_path / "alarm"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    program.chmod(0o755)
    return program, marker


def arm(repo: Repo, program: Path) -> None:
    """Let a repository's own configuration name a program wherever git may run one."""
    for name in ("core.fsmonitor", "diff.external", "core.sshCommand", "filter.x.clean"):
        repo.git("config", name, str(program))


def test_a_repository_among_the_files_of_another_is_refused_and_runs_nothing(
    indexed: Repo, alarm: tuple[Path, Path]
) -> None:
    program, marker = alarm
    inner = indexed.root / "bundle/examples/a.git"
    indexed.git("init", "--quiet", "--bare", str(inner))
    evil = Repo(inner, indexed.environment)
    evil.git("config", "core.bare", "false")
    evil.git("config", "core.worktree", str(indexed.root))
    arm(evil, program)
    for verb in ("query lamps", "check", "status", "update", "doctor", "hook pre-commit"):
        done = run(evil, *verb.split())
        assert done.code == 2, (verb, done)
        assert f"'{inner}' lies among the files of another" in done.err
    assert not marker.exists()
    evil.git("config", "core.fsmonitor", "false")
    evil.git("config", "core.bare", "true")
    evil.git("config", "--unset", "core.worktree")
    done = here(indexed, "check", GIT_DIR=str(inner))  # the remedy
    assert "lies among" not in done.err


def test_git_s_own_folder_and_a_bare_repository_beside_files_may_be_stood_in(
    indexed: Repo, tmp_path: Path
) -> None:
    assert Git(indexed.root / ".git/refs").git_dir == indexed.root / ".git"
    (tmp_path / "hidden").mkdir()
    indexed.git("clone", "--quiet", "--bare", ".", str(tmp_path / "hidden/.bare"))
    (tmp_path / "hidden/.git").write_text("gitdir: ./.bare\n")
    assert Git(tmp_path / "hidden/.bare/refs").is_bare


def test_a_nested_repository_runs_nothing(indexed: Repo, alarm: tuple[Path, Path]) -> None:
    program, marker = alarm
    inner = Repo(indexed.root / "bundle/inner", indexed.environment)
    inner.root.mkdir()
    inner.git("init", "--quiet")
    inner.write("a.md", "# Inner\n")
    inner.commit()
    indexed.git("add", "bundle/inner")
    indexed.git("commit", "--quiet", "--no-verify", "-m", "a nested repository")
    arm(inner, program)
    inner.write("a.md", "# Changed\n")
    inner.git("config", "core.fsmonitor", str(program))
    for verb in ("query lamps", "check", "status", "update", "update --worktree", "diff"):
        assert run(indexed, *verb.split()).code in (0, 1), verb
        assert not marker.exists(), verb


def test_a_repository_in_an_unpacked_archive_runs_nothing(
    indexed: Repo, tmp_path: Path, alarm: tuple[Path, Path]
) -> None:
    program, marker = alarm
    indexed.git("archive", "--output", str(tmp_path / "a.zip"), "HEAD")
    folder = tmp_path / "unpacked"
    shutil.unpack_archive(tmp_path / "a.zip", folder)
    inner = Repo(folder / "bundle/inner", indexed.environment)
    inner.root.mkdir()
    inner.git("init", "--quiet")
    inner.write("a.md", "# Inner\n")
    inner.commit()
    inner.write("a.md", "# Changed\n")
    arm(inner, program)
    unpacked = Repo(folder, indexed.environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    for _ in range(3):
        assert run(unpacked, "query", "lenses").code == 0
        assert not marker.exists()


# The user's own configuration of git


def test_no_taste_in_git_changes_an_answer(indexed: Repo, tmp_path: Path) -> None:
    taste = tmp_path / "gitconfig"
    taste.write_text(
        "[core]\nquotePath = true\nwhitespace = cr-at-eol\nsparseCheckout = no\n"
        "[diff]\norderFile = /nowhere\nrelative = true\nnoprefix = true\nexternal = false\n"
        "renames = copies\nsubmodule = log\nignoreSubmodules = none\nautoRefreshIndex = false\n"
        "[color]\nui = always\n[column]\nui = always\n[submodule]\nrecurse = true\n"
        "[status]\nshowUntrackedFiles = no\n[index]\nversion = 4\nskipHash = true\n"
        "[feature]\nmanyFiles = true\n[pager]\ndiff = false\n"
    )
    own = Repo(indexed.root, indexed.environment | {"GIT_CONFIG_GLOBAL": str(taste)})
    indexed.write("bundle/añadido.md", "# Añadido\n\nTexto.\n")
    indexed.write("bundle/plain.md", "Another paragraph.\n")
    for verb in ("query lenses --format json", "check", "diff", "update --worktree --dry-run"):
        plain, done = run(indexed, *verb.split()), run(own, *verb.split())
        assert (done.code, done.out, done.err) == (plain.code, plain.out, plain.err), verb
    taste.write_text(taste.read_text().replace("orderFile = /nowhere\n", ""))  # git wants it, too
    own.commit("with the hook")
    assert run(own, "check").code == 0
    assert indexed.git("status", "--porcelain") == ""


# Partial clones


def test_a_query_in_a_partial_clone_asks_no_server(indexed: Repo, tmp_path: Path) -> None:
    indexed.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "clone", indexed.environment)
    url = f"file://{indexed.root}"
    indexed.git("clone", "--quiet", "--filter=blob:none", url, str(clone.root))
    assert run(clone, "query", "lenses").code == 0
    gone = indexed.root.rename(tmp_path / "gone")
    for verb in ("query lenses", "get lamps", "status", "check"):
        done = run(clone, *verb.split())
        assert done.code == 0, (verb, done)
    clone.git("config", "remote.origin.url", f"file://{gone}")
    clone.git("fetch", "--quiet", "origin")
    old = clone.git("rev-parse", "HEAD").strip()
    Repo(gone, indexed.environment).write("bundle/late.md", "# Late\n\nA late text.\n")
    Repo(gone, indexed.environment).commit("late", "--no-verify")
    clone.git("fetch", "--quiet", "origin")
    gone.rename(tmp_path / "gone again")
    done = run(clone, "check", "--rev", "origin/main")
    assert (done.code, "Traceback" in done.err) == (2, False), done
    assert "git cat-file failed" in done.err
    assert run(clone, "check", "--rev", old).code == 0
