"""Names that two systems write differently, and names that look like patterns, are found."""

from __future__ import annotations

import unicodedata

import pytest

from testing.index import init_and_commit
from testing.repositories import Repo, Template, run

APART = unicodedata.normalize("NFD", "maße/größen")
ODD = ["a[x]b", "a*b", "a?b", "back\\slash", "[z-a]", "[", "!", "trailing ", "#hash", "\udce9t"]


@pytest.fixture
def library(from_template: Template) -> Repo:
    def fill(repo: Repo) -> None:
        for name in (APART, *ODD, "axb"):
            repo.write(f"bundle/{name}.md", f"# A lamp\n\nThe lamp of {len(name)}.\n")
        repo.write("bundle/" + unicodedata.normalize("NFD", "né.md"), "# Apart\n")
        repo.write("bundle/né.md", "# Composed\n")
        repo.write("bundle/öä.md", "# Short\n")
        init_and_commit(repo)

    return from_template("names", fill)


def found(repo: Repo, pattern: str) -> list[str]:
    done = run(repo, "query", "lamp", "-k", "99", "--path", pattern, "--format", "json")
    assert done.code in (0, 1), done.err
    return sorted(hit["id"] for hit in done.json()["hits"])


def test_a_decomposed_name_is_found_as_it_is_typed(library: Repo) -> None:
    for name in ("maße/größen", "bundle/maße/größen.md", APART, f"bundle/{APART}.md"):
        done = run(library, "get", name, "--format", "json")
        assert (done.code, done.json()["id"]) == (0, APART), done.err
    assert run(library, "get", "maße/größen#a-lamp").out.startswith("# A lamp")
    assert run(library, "related", "maße/größen").code == 0
    for pattern in ("maße/*", "größen.md", f"bundle/{APART}.md", "**/gr[ö]ßen.md"):
        assert found(library, pattern) == [APART], pattern


def test_two_names_that_differ_in_their_form_alone_are_two(library: Repo) -> None:
    apart = unicodedata.normalize("NFD", "né")
    assert run(library, "get", apart).out == "# Apart\n"
    assert run(library, "get", "né").out == "# Composed\n"


def test_the_nearest_names_are_compared_as_they_are_read(library: Repo) -> None:
    done = run(library, "get", "maße/größe")
    assert done.code == 2
    assert f"nearest are: {APART}" in done.err
    assert "nearest are: öä" in run(library, "get", unicodedata.normalize("NFD", "öäü")).err


@pytest.mark.parametrize("name", ODD)
def test_a_pattern_that_is_a_document_s_path_finds_it(library: Repo, name: str) -> None:
    assert name in found(library, f"{name}.md")
    assert name in found(library, f"bundle/{name}.md")


def test_a_pattern_that_is_neither_is_a_usage_error(library: Repo) -> None:
    done = run(library, "query", "lamp", "--path", "[y-a]")
    assert done.code == 2
    assert "--path: '[y-a]' is no pattern as in .gitignore: the range 'y-a' is empty" in done.err
    assert found(library, "a[x]b.md") == ["a[x]b", "axb"]
    assert found(library, r"a\[x\]b.md") == ["a[x]b"]
