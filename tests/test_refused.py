"""A remedy that the hook names can be followed, and ends: the commit is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.commands import Done
from testing.documents import NOTE
from testing.repositories import Repo, Template
from testing.served_hooks import ServedHooks, served_hooks

LIMITED = 'embedder = "hash"\nhook_max_chunks = 2\n'
SECTIONS = "".join(f"## Part {n}\n\nText of part {n}.\n\n" for n in range(5))


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[ServedHooks]:
    with served_hooks(tmp_path / "pipes") as hooks:
        yield hooks


@pytest.fixture
def limited(from_template: Template, hooks: ServedHooks) -> Repo:
    """A repository of two documents whose hook waits for two chunks."""

    def fill(repo: Repo) -> None:
        repo.write("kbindex.toml", LIMITED)
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/plain.md", "Just a paragraph.\n")
        repo.git("add", "--all")
        assert repo.call("update").code == 0
        repo.commit("first")

    repo = from_template("limited", fill)
    hooks.install(repo)
    return repo


def assert_committed(repo: Repo, done: Done) -> None:
    assert done.code == 0, done.err
    assert repo.call("check", "--rev", "HEAD").code == 0
    assert repo.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("options", "stdin"),
    [
        (("--all",), b""),
        (("bundle/lamps.md",), b""),
        (("--include", "bundle/lamps.md"), b""),
        (("--patch",), b"a\n"),
    ],
    ids=lambda found: str(found[0]) if isinstance(found, tuple) else "",
)
def test_a_commit_that_stages_by_itself_passes_after_the_update_that_was_advised(
    limited: Repo, hooks: ServedHooks, options: tuple[str, ...], stdin: bytes
) -> None:
    limited.write("bundle/lamps.md", NOTE + SECTIONS)
    commit = ("commit", "--quiet", "--message", "more", *options)
    refused = hooks.git(limited, *commit, stdin=stdin)
    assert refused.code == 1
    assert "5 chunks have to be embedded" in refused.err
    assert "for the commit that was refused: 5 chunks to embed" in (
        limited.call("update", "--dry-run").out
    )
    updated = limited.call("update")
    assert "for the commit that was refused: 5 chunks embedded; commit again" in updated.out
    assert "refused" not in limited.call("update").out, "it is done once"
    done = hooks.git(limited, *commit, stdin=stdin)
    assert "0 chunks embedded" in done.err
    assert_committed(limited, done)


def test_a_refused_tree_that_is_gone_is_forgotten(limited: Repo, hooks: ServedHooks) -> None:
    limited.write("bundle/lamps.md", NOTE + SECTIONS)
    assert hooks.git(limited, "commit", "--quiet", "--all", "--message", "more").code == 1
    limited.git("checkout", "--quiet", "--", "bundle")
    limited.git("gc", "--quiet", "--prune=now")
    done = limited.call("update")
    assert done.code == 0, done.err
    assert "refused" not in done.out
    assert not (limited.root / ".git/kbindex/refused").exists()


@pytest.mark.parametrize("option", ["--all", "kbindex.toml"])
def test_another_recipe_that_only_this_commit_stages_has_a_remedy_that_ends(
    limited: Repo, hooks: ServedHooks, option: str
) -> None:
    limited.write("kbindex.toml", LIMITED + "chunk_tokens = 64\n")
    refused = hooks.git(limited, "commit", "--quiet", "--message", "smaller", option)
    assert refused.code == 1
    assert "'git add', run 'kbindex update', then 'git commit' without -a" in refused.err
    limited.git("add", "kbindex.toml")
    assert limited.call("update").code == 0
    assert_committed(limited, hooks.git(limited, "commit", "--quiet", "--message", "smaller"))
