"""Merges of a changed recipe with anything else: named by ``check``, mended by ``update``.

The merges are git's own. Nothing is embedded that either side has embedded with the embedder that
stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.configuration.recipe import identity_id
from kbindex.embed.hashing import HashEmbedder
from testing.documents import NOTE
from testing.index import forget_local_state, n_embedded, table_rows, update_and_commit
from testing.repositories import Repo, Template, run

ORIGINAL = HashEmbedder.identity
LONG = "# Log\n\n" + "\n\n".join(
    " ".join(f"the keeper of day {n} wrote {w} lamps and rope down." for w in range(12))
    for n in range(30)
)


def one_paragraph() -> str:
    dice = random.Random(7)
    words = "lamp keeper evening wind tide oil glass brass rope ship harbour stair clock signal"
    sentences = (
        " ".join(dice.choice(words.split()) for _ in range(9)).capitalize()
        + f" {dice.randrange(999)}."
        for _ in range(200)
    )
    return f"# More\n\n{' '.join(sentences)}\n"


def rules(repo: Repo, *options: str) -> dict[str, str]:
    """Return what ``check`` names, the rule by path."""
    checked = run(repo, "check", "--format", "json", *options)
    assert checked.code in (0, 1, 3), checked.err
    return {problem["path"]: problem["rule"] for problem in checked.json()["problems"]}


@pytest.fixture
def base(from_template: Template) -> Repo:

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/log.md", LONG)
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        update_and_commit(repo)

    return from_template("mixed", fill)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were embedded."""
    seen: list[str] = []
    embed = HashEmbedder.embed_documents

    def watched(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        seen.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", watched)
    return seen


def identity(**fields: str) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Let the embedder be another one."""
    patch = pytest.MonkeyPatch()
    patch.setattr(HashEmbedder, "identity", replace(ORIGINAL, **fields))  # type: ignore[arg-type]
    return _undone(patch)


class _undone(AbstractContextManager[pytest.MonkeyPatch]):  # noqa: N801
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __enter__(self) -> pytest.MonkeyPatch:
        return self._patch

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


NEW = {"digest": "crc32-v2"}
OTHER = {"digest": "crc32-v3"}
PREFIX = {"document_prefix": "passage: "}


def branch(repo: Repo, name: str, edit: Callable[[Repo], object], **fields: str) -> None:
    """Make a branch from main with one commit, its index made by an embedder of its own."""
    repo.git("checkout", "--quiet", "-b", name, "main")
    with identity(**fields):
        edit(repo)
        update_and_commit(repo)
    forget_local_state(repo)  # another's clone


def merge(repo: Repo, ours: str, theirs: str) -> set[str]:
    """Merge and return the files in conflict."""
    repo.git("checkout", "--quiet", ours)
    repo.git("merge", "--quiet", "--no-edit", theirs, check=False)
    return set(repo.git("diff", "--name-only", "--diff-filter=U").split())


def add(repo: Repo) -> None:
    repo.write("bundle/new.md", "# New\n\nAdded on the other branch.\n")


def edit(repo: Repo) -> None:
    repo.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))


def nothing(repo: Repo) -> None:
    pass


def limit(repo: Repo, tokens: int = 64) -> None:
    repo.write("kbindex.toml", f'embedder = "hash"\nchunk_tokens = {tokens}\n')


def assert_mended(repo: Repo, **fields: str) -> None:
    """Assert that the index is whole and holds one identity."""
    checked = run(repo, "check", "--strict")
    assert checked.code == 0, checked.out
    rows, _ = table_rows(repo.root / ".kbindex")
    assert {row.embedder for row in rows} == {identity_id(replace(ORIGINAL, **fields))}  # type: ignore[arg-type]
    again = run(repo, "update")
    assert "0 embedded in 0 calls" in again.out


@pytest.mark.parametrize("fields", [NEW, PREFIX], ids=["weights", "prefix"])
@pytest.mark.parametrize("ours", ["switched", "topic"])
def test_a_new_document_of_the_old_embedder_merges_and_is_named_and_mended(
    base: Repo, shown: list[str], ours: str, fields: dict[str, str]
) -> None:
    """Git sees no conflict: recipe and table are of one side, an outline and a WAL file are not."""
    branch(base, "switched", nothing, **fields)
    branch(base, "topic", add)
    assert merge(base, ours, "topic" if ours == "switched" else "switched") == set()
    shown.clear()
    with identity(**fields):
        found = rules(base)
        [wal] = base.git("ls-files", ".kbindex/wal/*.arrow").split()
        assert found == {"bundle/new.md": "stale-document", wal: "foreign-vector"}
        assert rules(base, "--rev", "HEAD") == found
        assert run(base, "query", "lamps").code == 0
        done = run(base, "update")
        assert (n_embedded(done), len(shown)) == (1, 1)
        assert "recipe" not in done.out
        assert base.git("ls-files", wal) == ""
        assert_mended(base, **fields)


@pytest.mark.parametrize("ours", ["switched", "topic"])
def test_an_edit_under_the_old_embedder_conflicts_in_its_outline_and_is_mended(
    base: Repo, shown: list[str], ours: str
) -> None:
    branch(base, "switched", nothing, **NEW)
    branch(base, "topic", edit)
    conflicts = merge(base, ours, "topic" if ours == "switched" else "switched")
    assert conflicts == {".kbindex/outline/lamps.md.tsv"}
    shown.clear()
    with identity(**NEW):
        done = run(base, "update")
        assert done.code == 0, done.err
        assert shown == ["Lamps\nThe lamps burn whale oil."]
        assert n_embedded(done) == 1
        assert_mended(base, **NEW)


@pytest.mark.parametrize("verb", ["resolve", "update"])
@pytest.mark.parametrize("stays", [NEW, OTHER], ids=["ours", "theirs"])
def test_two_switches_conflict_and_the_configured_embedder_stays(
    base: Repo, shown: list[str], stays: dict[str, str], verb: str
) -> None:
    branch(base, "one", lambda repo: repo.write("kbindex.toml", 'embedder = "hash"\n#1\n'), **NEW)
    branch(base, "two", lambda repo: repo.write("kbindex.toml", 'embedder = "hash"\n#2\n'), **OTHER)
    n_all = len(shown)
    conflicts = merge(base, "one", "two")
    assert {"kbindex.toml", ".kbindex/recipe.json"} <= conflicts
    shown.clear()
    with identity(**stays):
        refused = run(base, "check")
        assert refused.code == 1
        assert "kbindex resolve" in refused.err
        base.write("kbindex.toml", 'embedder = "hash"\n')
        base.git("add", "kbindex.toml")
        if verb == "resolve":
            done = run(base, "resolve")
            assert done.code == 0, done.out + done.err
            assert "the recipe is that of HEAD" in done.out
            assert shown == []
        done = run(base, "update")
        assert done.code == 0, done.err
        if stays == OTHER:
            assert "recipe: embedder digest: crc32-v2 → crc32-v3" in done.out
        assert shown == []
        assert n_all > 0
        assert_mended(base, **stays)
        base.commit("merged", "--no-verify")
        assert rules(base, "--rev", "HEAD") == {}


def test_two_switches_and_a_new_document_embed_that_document_alone(
    base: Repo, shown: list[str]
) -> None:
    branch(base, "one", nothing, **NEW)
    branch(base, "two", add, **OTHER)
    merge(base, "one", "two")
    shown.clear()
    with identity(**NEW):
        assert run(base, "resolve").code == 0
        assert run(base, "update").code == 0
        assert shown == ["New\n# New\n\nAdded on the other branch."]
        assert_mended(base, **NEW)


@pytest.mark.parametrize("ours", ["switched", "topic"])
def test_a_conflict_of_two_recipes_that_was_added_blindly_is_named_and_mended(
    base: Repo, shown: list[str], ours: str
) -> None:
    branch(base, "switched", nothing, **NEW)
    branch(base, "topic", add, **OTHER)
    assert merge(base, ours, "topic" if ours == "switched" else "switched")
    base.git("add", "--all")
    base.git("commit", "--quiet", "--message", "blindly", "--no-verify")
    shown.clear()
    with identity(**NEW):
        checked = run(base, "check", "--rev", "HEAD", "--format", "json")
        assert checked.code == 3
        found = {p["path"]: p["rule"] for p in checked.json()["problems"]}
        assert found[".kbindex/recipe.json"] == "conflict-markers"
        done = run(base, "update")
        assert done.code == 0, done.err
        assert "damaged, and made anew: .kbindex/recipe.json: holds conflict markers" in done.out
        assert_mended(base, **NEW)
        assert len(shown) == len(set(shown))


def test_two_changes_that_merge_to_a_recipe_nobody_built_are_named_and_mended(
    base: Repo, shown: list[str]
) -> None:
    """Other weights here, another limit there: git puts both into one recipe without a word."""
    branch(base, "switched", nothing, **NEW)
    branch(base, "limited", lambda repo: (add(repo), limit(repo)))
    assert ".kbindex/recipe.json" not in merge(base, "switched", "limited")
    shown.clear()
    with identity(**NEW):
        done = run(base, "update")
        assert done.code == 0, done.err
        assert len(shown) == n_embedded(done) > 1
        assert not any("burn paraffin" in text for text in shown), "switched has embedded it"
        assert_mended(base, **NEW)


@pytest.mark.parametrize("ours", ["limited", "topic"])
def test_a_document_chunked_with_another_limit_is_named_and_mended(
    base: Repo, shown: list[str], ours: str
) -> None:
    branch(base, "limited", limit)
    branch(base, "topic", lambda repo: repo.write("bundle/more.md", LONG.replace("Log", "More")))
    assert merge(base, ours, "topic" if ours == "limited" else "limited") == set()
    shown.clear()
    checked = run(base, "check", "--format", "json")
    assert checked.code == 1
    [problem] = checked.json()["problems"]
    assert (problem["rule"], problem["path"]) == ("stale-document", "bundle/more.md")
    assert "a chunk is longer than the limit" in problem["message"]
    found = run(base, "query", "the keeper", "--format", "json").json()
    assert found["retrieval"]["coverage"]["dense"] == found["retrieval"]["coverage"]["chunks"]
    done = run(base, "update")
    assert n_embedded(done) == len(shown) > 0
    assert all("keeper" in text for text in shown)
    assert_mended(base)


@pytest.mark.parametrize("ours", ["limited", "topic"])
def test_a_document_cut_at_other_places_is_named_where_strict_looks_and_mended(
    base: Repo, shown: list[str], ours: str
) -> None:
    """The longest chunk may be as long as before, but cuts may stand nearer to its ends."""
    setting = 'embedder = "hash"\nchunk_tokens = 64\nchunk_max_tokens = 384\n'
    branch(base, "limited", lambda repo: repo.write("kbindex.toml", setting))
    branch(base, "topic", lambda repo: repo.write("bundle/more.md", one_paragraph()))
    assert merge(base, ours, "topic" if ours == "limited" else "limited") == set()
    assert rules(base) == {}
    assert rules(base, "--strict") == {"bundle/more.md": "not-canonical"}
    assert run(base, "hook", "pre-commit").code == 0  # it does not look
    shown.clear()
    assert n_embedded(run(base, "update")) == len(shown) > 0
    assert all("lamp" in text for text in shown)
    assert_mended(base)


def test_a_document_that_is_cut_finer_than_a_raised_limit_asks_for_is_no_fault(
    base: Repo, shown: list[str]
) -> None:
    branch(base, "limited", lambda repo: limit(repo, 300))
    branch(base, "topic", lambda repo: repo.write("bundle/more.md", LONG.replace("Log", "More")))
    assert merge(base, "limited", "topic") == set()
    assert rules(base) == rules(base, "--strict") == {}
    shown.clear()
    assert n_embedded(run(base, "update")) == len(shown) == 0
    assert_mended(base)


def test_an_edit_and_another_limit_conflict_and_embed_only_what_neither_has(
    base: Repo, shown: list[str]
) -> None:
    branch(base, "limited", limit)
    branch(base, "topic", lambda repo: (edit(repo), add(repo)))
    merge(base, "limited", "topic")
    shown.clear()
    done = run(base, "update")
    assert done.code == 0, done.err
    assert shown == []  # what topic changed is short: it is chunked alike under both limits
    assert_mended(base)


@pytest.mark.parametrize("ours", ["one", "two"])
def test_two_limits_conflict_and_the_configured_one_is_what_the_index_gets(
    base: Repo, shown: list[str], ours: str
) -> None:
    branch(base, "one", lambda repo: limit(repo, 64))
    branch(base, "two", lambda repo: limit(repo, 128))
    assert ".kbindex/recipe.json" in merge(base, ours, "two" if ours == "one" else "one")
    limit(base, 128)
    base.git("add", "kbindex.toml")
    shown.clear()
    done = run(base, "update")
    assert done.code == 0, done.err
    assert shown == []  # both sides' rows are there
    assert ("chunk_tokens: 64 → 128" in done.out) == (ours == "one")
    assert_mended(base)


def test_the_hook_refuses_a_merge_of_another_recipe_and_names_the_update(base: Repo) -> None:
    branch(base, "switched", nothing, **NEW)
    branch(base, "topic", add)
    base.git("checkout", "--quiet", "switched")
    base.git("merge", "--quiet", "--no-edit", "--no-commit", "topic", check=False)
    done = run(base, "hook", "pre-commit")  # with the old embedder at hand
    assert done.code == 1
    assert "embedder digest: crc32-v2 → crc32-v1" in done.err
    with identity(**NEW):
        done = run(base, "hook", "pre-commit")
        assert done.code == 0, done.err
        assert rules(base).keys() <= {p for p in rules(base) if p.startswith(".kbindex/wal/")}
