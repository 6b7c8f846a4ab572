"""Real repositories in temporary folders, isolated from the machine's git configuration."""

from __future__ import annotations

import json
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from kbindex.cli import app
from kbindex.core.model import Row
from kbindex.core.paths import TABLE
from kbindex.storage.table import append_rows
from kbindex.storage.table_files import latest_manifest, read_table

AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


FROM_GIT = ("GIT_INDEX_FILE", "GIT_DIR", "GIT_WORK_TREE", "GIT_PREFIX", "PRE_COMMIT")
"""What git and the framework tell a hook of theirs; a process that they didn't start has none."""


@dataclass(frozen=True)
class Done:
    """A finished process."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Repo:
    """A git repository with a bundle, driven through the real programs."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self.environment = environment

    def git(self, *arguments: str, check: bool = True, stdin: bytes | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"git {' '.join(arguments)}: {done.stdout!r} {done.stderr!r}")
        return (done.stdout + (b"" if check else done.stderr)).decode("utf-8", "surrogateescape")

    def kbindex(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Done:
        """Run the command line in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "kbindex", *arguments],
            cwd=cwd or self.root,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return Done(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    def call(
        self, *arguments: str, cwd: Path | None = None, stdin: bytes = b"", **variables: str
    ) -> Done:
        """Run the command line in this process, a fifth of the time, as one of its own would."""
        environment = dict.fromkeys(FROM_GIT, "") | self.environment | variables
        before = Path.cwd()
        os.chdir(cwd or self.root)
        try:
            done = CliRunner().invoke(
                app,
                list(arguments),
                env={name: value or None for name, value in environment.items()},
                input=stdin,
            )
        finally:
            os.chdir(before)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        out, err = (
            found.decode("utf-8", "surrogateescape")
            for found in (done.stdout_bytes, done.stderr_bytes)
        )
        return Done(done.exit_code, out, err)

    def write(self, path: str, text: str | bytes) -> Path:
        """Write a file byte for byte: newlines stay as they are."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def commit(self, message: str = "a change", *options: str) -> str:
        """Stage everything and commit it, hooks included. Returns the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message, *options)
        return self.git("rev-parse", "HEAD").strip()

    def blob(self, path: str, revision: str = "HEAD") -> bytes:
        done = subprocess.run(
            ["git", "cat-file", "blob", f"{revision}:{path}"],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            check=True,
        )
        return done.stdout

    def files(self, folder: str = "", revision: str = "HEAD") -> list[str]:
        listing = self.git("ls-tree", "-r", "-z", "--name-only", revision, "--", folder or ".")
        return [path for path in listing.split("\0") if path]


def run(repo: Repo, *arguments: str) -> Done:
    """Run the command line in this process, in a folder elsewhere and with ``--repo``."""
    return repo.call("--repo", str(repo.root), *arguments, cwd=Path.cwd())


KILLER = """\
#!/bin/sh
# Stands before git on PATH: kills the caller before (or after) its Nth call of git.
n=$(($(cat "$COUNTER") + 1))
echo $n >"$COUNTER"
if [ "$n" = "$KILL_AT" ] && [ "$KILL_WHEN" = before ]; then kill -9 $PPID; exit 1; fi
PATH="$REAL_PATH" git "$@"
code=$?
if [ "$n" = "$KILL_AT" ]; then kill -9 $PPID; fi
exit $code
"""


def killed_at(
    repo: Repo, scratch: Path, call: int, when: str, *arguments: str, **variables: str
) -> int:
    """Run the program and kill it at its Nth call of git. Returns its exit code."""
    folder = scratch / "killer"
    folder.mkdir(exist_ok=True)
    killer = folder / "git"
    killer.write_text(KILLER)
    killer.chmod(0o755)
    counter = scratch / "counter"
    counter.write_text("0")
    path = repo.environment["PATH"]
    done = repo.kbindex(
        *arguments,
        PATH=f"{folder}{os.pathsep}{path}",
        REAL_PATH=path,
        COUNTER=str(counter),
        KILL_AT=str(call),
        KILL_WHEN=when,
        TMPDIR=str(scratch),  # what a killed process leaves there is not swept up
        **variables,
    )
    return done.code


def restored(repo: Repo, to: str) -> None:
    """Bring the repository back to ``to``, with nothing that a killed process left."""
    (repo.root / ".git/index.lock").unlink(missing_ok=True)
    repo.git("reset", "--quiet", "--hard", to)
    repo.git("clean", "--quiet", "-fdx", ".kbindex")


def count_calls(repo: Repo, scratch: Path, *arguments: str, **variables: str) -> int:
    """Run the program to its end and count its calls of git."""
    assert killed_at(repo, scratch, 0, "never", *arguments, **variables) == 0
    return int((scratch / "counter").read_text())


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_environment(tmp_path_factory)


def make_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a process environment with a home of its own and our ``kbindex`` first on PATH."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "KBINDEX_", "OLLAMA_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    scratch = tmp_path_factory.mktemp("scratch")  # what a killed run leaves stays in here
    cache = {
        "PRE_COMMIT_HOME": str(home / "pre-commit"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",  # threads for nothing take a third of a short process's time
        "TMPDIR": str(scratch),
    }
    return kept | AUTHOR | cache | {"HOME": str(home), "PATH": path}


@pytest.fixture
def make_repo(tmp_path: Path, environment: dict[str, str]) -> Callable[[str], Repo]:
    """Make empty repositories on branch ``main``, configured for the ``hash`` embedder."""

    def make(name: str = "repo", embedder: str = "hash") -> Repo:
        root = tmp_path / name
        root.mkdir()
        repo = Repo(root, environment)
        repo.git("init", "--quiet", "--initial-branch=main")
        if embedder != "builtin":
            repo.write("kbindex.toml", f'embedder = "{embedder}"\n')
        return repo

    return make


@pytest.fixture
def repo(make_repo: Callable[[str], Repo]) -> Repo:
    return make_repo("repo")


NOTE = """\
---
type: Note
title: Lamps
description: How the lamps of the tower are kept.
tags: [tower, light]
---

The lamps burn paraffin.

## Cleaning

Wipe the lenses each morning.

## Notes

Spare wicks are in the cellar.

## Notes

The cellar key hangs by the door.
"""


def copied(template: Repo, root: Path, environment: dict[str, str]) -> Repo:
    """Copy a repository that was built once, which is ten times faster than to build it."""
    shutil.copytree(template.root, root, symlinks=True)
    repo = Repo(root, environment)
    repo.git("update-index", "--refresh", "-q")
    return repo


def table_rows(folder: Path) -> tuple[list[Row], NDArray[np.float16]]:
    """Return the rows of the table in ``folder`` and their vectors."""
    table = folder / TABLE
    names = {f.relative_to(table).as_posix() for f in table.rglob("*") if f.is_file()}
    return read_table(names, lambda name: (table / name).read_bytes())


def write_table(folder: Path, rows: list[Row], vectors: NDArray[np.float16]) -> None:
    """Add rows to the table in ``folder`` as a version, or begin it, as a checkpoint does."""
    table = folder / TABLE
    names = {f.relative_to(table).as_posix() for f in table.rglob("*") if f.is_file()}
    before = None
    if names:
        _, before = latest_manifest(names, lambda name: (table / name).read_bytes())
    for name, content in append_rows(rows, vectors, before).items():
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_bytes(content)


Template = Callable[[str, Callable[[Repo], None]], Repo]
"""Takes the name of a repository and what fills it, the first time; returns a copy."""


@pytest.fixture
def from_template(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, environment: dict[str, str]
) -> Template:
    """Copy a repository for the ``hash`` embedder that is filled once a test process."""

    def make(name: str, fill: Callable[[Repo], None]) -> Repo:
        template = Repo(tmp_path_factory.getbasetemp() / name, environment)
        if not template.root.exists():
            template.root.mkdir()
            template.git("init", "--quiet", "--initial-branch=main")
            template.write("kbindex.toml", 'embedder = "hash"\n')
            fill(template)
        return copied(template, tmp_path / "repo", environment)

    return make


@pytest.fixture
def indexed(from_template: Template) -> Repo:
    """A repository of three documents whose index is committed and whose native hooks are on."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        rota = "# Rota\n\nInes has Monday.\n\n## Swaps\n\nAsk Jonas first.\n"
        repo.write("bundle/ops/rota.md", rota)
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        done = repo.call("init", "--hooks", "native")
        assert done.code == 0, done.err
        repo.commit("first")

    return from_template("indexed", fill)
