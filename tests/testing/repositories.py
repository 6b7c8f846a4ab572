"""Real git repositories, isolated from the machine's git configuration."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.commands import Done, call_kbindex, run_program

ROOT = Path(__file__).parents[2]
"""The folder of the sources that hold these tests."""

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


class Repo:
    """A git repository with a bundle, driven through the real programs."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self.environment = environment

    def git(self, *arguments: str, check: bool = True, stdin: bytes = b"") -> str:
        """Run git and return its output; without ``check`` its messages, too.

        Raises AssertionError where git fails and ``check`` is set.
        """
        done = self.try_git(*arguments, stdin=stdin)
        if check and done.code:
            raise AssertionError(f"git {' '.join(arguments)}: {done.out!r} {done.err!r}")
        return done.out + ("" if check else done.err)

    def try_git(self, *arguments: str, cwd: Path | None = None, stdin: bytes = b"") -> Done:
        """Run git, hooks included, and return how it ended."""
        return run_program(
            "git", *arguments, cwd=cwd or self.root, environment=self.environment, stdin=stdin
        )

    def kbindex(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Done:
        """Run the command line in a process of its own."""
        command = (sys.executable, "-m", "kbindex", *arguments)
        environment = self.environment | variables
        return run_program(*command, cwd=cwd or self.root, environment=environment)

    def call(
        self, *arguments: str, cwd: Path | None = None, stdin: bytes = b"", **variables: str
    ) -> Done:
        """Run the command line in this process, in the repository."""
        environment = self.environment | variables
        return call_kbindex(*arguments, cwd=cwd or self.root, environment=environment, stdin=stdin)

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
        content = self.git("cat-file", "blob", f"{revision}:{path}")
        return content.encode("utf-8", "surrogateescape")

    def files(self, folder: str = "", revision: str = "HEAD") -> list[str]:
        listing = self.git("ls-tree", "-r", "-z", "--name-only", revision, "--", folder or ".")
        return [path for path in listing.split("\0") if path]


def run(repo: Repo, *arguments: str, stdin: bytes = b"", **variables: str) -> Done:
    """Run the command line in this process, in a folder elsewhere and with ``--repo``."""
    elsewhere = Path.cwd()
    return repo.call("--repo", str(repo.root), *arguments, cwd=elsewhere, stdin=stdin, **variables)


def imported_modules(repo: Repo, *arguments: str) -> set[str]:
    """Return the names of all modules that a process of the command line imports."""
    command = (sys.executable, "-X", "importtime", "-m", "kbindex", *arguments)
    done = run_program(*command, cwd=repo.root, environment=repo.environment)
    assert done.code == 0, done.err
    return {line.rsplit("|", 1)[-1].strip() for line in done.err.splitlines()}


def make_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a process environment with a home of its own and our ``kbindex`` first on PATH."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("GIT_", "KBINDEX_", "OLLAMA_", "OPENAI_"))
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


def init_repo(root: Path, environment: dict[str, str], embedder: str = "hash") -> Repo:
    """Make an empty repository on branch ``main``, configured for ``embedder``."""
    root.mkdir()
    repo = Repo(root, environment)
    repo.git("init", "--quiet", "--initial-branch=main")
    if embedder != "builtin":
        repo.write("kbindex.toml", f'embedder = "{embedder}"\n')
    return repo


Template = Callable[[str, Callable[[Repo], None]], Repo]
"""Takes the name of a repository and what fills it, the first time; returns it or a copy."""


def copied(template: Repo, root: Path, environment: dict[str, str]) -> Repo:
    """Copy a repository that was built once, which is ten times faster than to build it."""
    shutil.copytree(template.root, root, symlinks=True)
    repo = Repo(root, environment)
    repo.git("update-index", "--refresh", "-q")
    return repo


def clone_own(folder: Path) -> Path:
    """Clone the repository that holds these tests, whose index needs no embedding."""
    if not (ROOT / ".git").exists():
        pytest.skip("these tests are not in a clone")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    return folder
