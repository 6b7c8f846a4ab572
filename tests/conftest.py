"""Fixtures. What they and the tests are made of is in the package ``testing``."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported

from collections.abc import Callable
from pathlib import Path

import pytest

from testing.documents import NOTE
from testing.repositories import Repo, Template, copied, init_repo, make_environment


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_environment(tmp_path_factory)


@pytest.fixture
def make_repo(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Repo]:
    """Make empty repositories on branch ``main``, configured for the ``hash`` embedder."""

    def make(name: str = "repo", embedder: str = "hash") -> Repo:
        return init_repo(tmp_path / name, environment, embedder)

    return make


@pytest.fixture
def repo(make_repo: Callable[..., Repo]) -> Repo:
    return make_repo("repo")


@pytest.fixture
def template(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Template:
    """Return a repository for the ``hash`` embedder that is filled once a test process.

    Tests that only read share it.
    """

    def make(name: str, fill: Callable[[Repo], None]) -> Repo:
        root = tmp_path_factory.getbasetemp() / name
        if root.exists():
            return Repo(root, environment)
        repo = init_repo(root, environment)
        fill(repo)
        return repo

    return make


@pytest.fixture
def from_template(template: Template, tmp_path: Path, environment: dict[str, str]) -> Template:
    """Copy a repository for the ``hash`` embedder that is filled once a test process."""

    def make(name: str, fill: Callable[[Repo], None]) -> Repo:
        return copied(template(name, fill), tmp_path / "repo", environment)

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
