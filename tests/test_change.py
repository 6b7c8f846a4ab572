"""Another embedder, weights, dimension, prefix, limit, chunker or composition: what an update says.

And what it embeds, what it leaves, and what an interrupted one has changed: nothing.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.configuration import recipe
from kbindex.configuration.recipe import identity_id
from kbindex.document import chunk, compose
from kbindex.embed import hashing
from kbindex.embed.hashing import HashEmbedder
from kbindex.index import build, verify
from kbindex.outline.states import DocumentState
from kbindex.storage import tree
from testing.commands import Done
from testing.documents import NOTE
from testing.index import (
    forget_local_state,
    init_and_commit,
    n_embedded,
    table_rows,
    update_and_commit,
)
from testing.kills import count_calls, killed_at, restored
from testing.repositories import Repo, Template, run

N_LONG = 30
LONG = "# Log\n\n" + "\n\n".join(
    " ".join(f"the keeper of day {n} wrote {w} lamps and rope down." for w in range(12))
    for n in range(N_LONG)
)


def n_chunks(repo: Repo) -> int:
    found: int = run(repo, "check", "--format", "json").json()["chunks"]
    return found


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A copy of a repository with three documents and their index, committed; no hooks."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/log.md", LONG)
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        init_and_commit(repo)
        repo.write("bundle/late.md", "# Late\n\n## Deep\n\n### Deeper\n\nCame by the WAL.\n")
        update_and_commit(repo)

    return from_template("changed", fill)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every call of the embedder."""
    seen: list[list[str]] = []
    embed = HashEmbedder.embed_documents

    def watched(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        seen.append(list(texts))
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", watched)
    return seen


# The changes


def set_identity(patch: pytest.MonkeyPatch, **fields: object) -> None:
    patch.setattr(HashEmbedder, "identity", replace(HashEmbedder.identity, **fields))  # type: ignore[arg-type]


def set_version(patch: pytest.MonkeyPatch, name: str, value: int) -> None:
    for module in (recipe, verify, build):
        if hasattr(module, name):
            patch.setattr(module, name, value)


def set_limit(repo: Repo, setting: str) -> None:
    repo.write("kbindex.toml", f'embedder = "hash"\n{setting}\n')
    repo.git("add", "kbindex.toml")


def other_dimension(_: Repo, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hashing, "_DIMENSION", 128)
    set_identity(patch, dimension=128)


def other_composition(_: Repo, patch: pytest.MonkeyPatch) -> None:
    set_version(patch, "COMPOSITION_VERSION", 2)
    patch.setattr(compose, "SEPARATOR", " / ")


def other_chunker(_: Repo, patch: pytest.MonkeyPatch) -> None:
    set_version(patch, "CHUNKER_VERSION", 2)
    patch.setattr(chunk, "_SLACK", 150)


@dataclass(frozen=True)
class Change:
    """One change, what it is called, and which chunks it embeds."""

    name: str
    apply: Callable[[Repo, pytest.MonkeyPatch], None]
    said: tuple[str, ...]
    embeds: str
    """all | some | none"""
    keeps_table: bool = False


CHANGES = [
    Change(
        "embedder",
        lambda _, patch: set_identity(patch, provider="ollama", model="bge-m3", digest="sha256:0"),
        ("embedder: hash/feature-hashing → ollama/bge-m3",),
        "all",
    ),
    Change(
        "digest",
        lambda _, patch: set_identity(patch, digest="crc32-v2"),
        ("embedder digest: crc32-v1 → crc32-v2",),
        "all",
    ),
    Change("dimension", other_dimension, ("embedder dimension: 256 → 128",), "all"),
    Change(
        "prefix",
        lambda _, patch: set_identity(patch, document_prefix="passage: "),
        ('embedder document_prefix: "" → "passage: "',),
        "all",
    ),
    Change(
        "limit",
        lambda repo, _: set_limit(repo, "chunk_tokens = 64"),
        ("chunk_tokens: 256 → 64", "chunk_max_tokens: 384 → 96"),
        "some",
        keeps_table=True,
    ),
    Change(
        "maximum",
        lambda repo, _: set_limit(repo, "chunk_max_tokens = 512"),
        ("chunk_max_tokens: 384 → 512",),
        "some",
        keeps_table=True,
    ),
    Change(
        "chunker",
        other_chunker,
        ("chunker version: 1 → 2",),
        "some",
        keeps_table=True,
    ),
    Change(
        "chunker alone",
        lambda _, patch: set_version(patch, "CHUNKER_VERSION", 2),
        ("chunker version: 1 → 2",),
        "none",
        keeps_table=True,
    ),
    Change(
        "composition",
        other_composition,
        ("composition version: 1 → 2",),
        "some",
        keeps_table=True,
    ),
]
EACH = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)


@EACH
def test_check_and_hook_name_the_change_alone_and_leave_everything_as_it_is(
    built: Repo, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    change.apply(built, monkeypatch)
    before = built.git("ls-files", "--stage")
    for options in ((), ("--strict",)):
        checked = run(built, "check", *options, "--format", "json")
        assert checked.code == 3
        [problem] = checked.json()["problems"]
        assert problem["rule"] == "recipe-mismatch"
        assert problem["message"] == (
            f"the index was made with another recipe: {'; '.join(change.said)}"
        )
        assert problem["remedy"] == "kbindex update"
    forget_local_state(built)  # where it stands that the index is fresh
    hook = run(built, "hook", "pre-commit")
    assert hook.code == 1
    assert f"the index was made with another recipe: {'; '.join(change.said)}" in hook.err
    assert "remedy: kbindex update" in hook.err
    assert built.git("ls-files", "--stage") == before


@EACH
def test_an_update_says_what_changed_what_it_costs_and_no_fingerprint(
    built: Repo, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]], change: Change
) -> None:
    change.apply(built, monkeypatch)
    dry = run(built, "update", "--dry-run")
    assert calls == []
    done = run(built, "update")
    assert done.code == 0, done.err
    assert dry.out.replace(" to embed in ", " embedded in ") == done.out

    n_all, n = n_chunks(built), n_embedded(done)
    assert {"all": n == n_all, "none": n == 0, "some": 0 < n < n_all}[change.embeds]
    assert sum(map(len, calls)) == n
    assert f"{n} embedded in {len(calls)} calls" in done.out
    lines = done.out.splitlines()
    assert lines[: len(change.said)] == [f"recipe: {said}" for said in change.said]
    assert (
        "documents: 0 added, 0 changed, 0 renamed, 0 deleted; 4 unchanged ones indexed" in done.out
    )
    why = f"of these, {n} because of the recipe, 0 because their documents changed"
    assert (why in lines) == (n > 0)
    assert not re.search(r"[0-9a-f]{12}", done.out)
    assert "damaged" not in done.out

    checked = run(built, "check", "--strict")
    assert checked.code == 0, checked.out
    again = run(built, "update")
    assert "recipe" not in again.out
    assert "0 embedded in 0 calls" in again.out


@EACH
def test_what_an_edit_costs_is_told_apart_from_what_the_recipe_costs(
    built: Repo, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    built.write("bundle/plain.md", "Just another paragraph, without any heading.\n")
    built.write("bundle/new.md", "Written in the same commit.\n")
    built.git("add", "--all")
    change.apply(built, monkeypatch)
    done = run(built, "update")
    assert "documents: 1 added, 1 changed, 0 renamed, 0 deleted; 3 unchanged ones" in done.out
    n = n_embedded(done)
    assert f"{n - 2} because of the recipe, 2 because their documents changed" in done.out


@EACH
def test_an_update_compares_each_document_with_its_outline_once(
    built: Repo, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    compared: list[str] = []
    compare = tree.compare

    def watched(*arguments: Any) -> Iterator[DocumentState]:
        for state in compare(*arguments):
            compared.append(state.path)
            yield state

    built.write("bundle/plain.md", "Just another paragraph, without any heading.\n")
    built.git("add", "--all")
    change.apply(built, monkeypatch)
    monkeypatch.setattr(tree, "compare", watched)
    assert run(built, "update").code == 0
    assert sorted(compared) == [f"bundle/{name}.md" for name in ("lamps", "late", "log", "plain")]


@EACH
def test_another_identity_begins_a_table_and_anything_else_keeps_it(
    built: Repo, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    def table() -> set[str]:
        return set(built.git("ls-files", ".kbindex/chunks.lance").split())

    before = table()
    change.apply(built, monkeypatch)
    assert run(built, "update").code == 0
    rows, vectors = table_rows(built.root / ".kbindex")
    wal = built.git("ls-files", ".kbindex/wal/*.arrow").split()
    if change.keeps_table:
        assert before <= table()
        assert len(wal) == (1 if change.embeds == "none" else 2)
        return
    assert not before & {f for f in table() if f.endswith(".lance")}
    assert wal == []
    assert {row.embedder for row in rows} == {identity_id(HashEmbedder.identity)}
    assert vectors.shape == (n_chunks(built), HashEmbedder.identity.dimension)


def test_a_changed_chunker_embeds_only_passages_whose_text_is_new(
    built: Repo, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    forget_local_state(built)
    other_chunker(built, monkeypatch)
    done = run(built, "update")
    assert all("keeper of day" in text for call in calls for text in call)
    n_long = sum("keeper" in text for call in calls for text in call)
    assert n_embedded(done) == n_long
    assert int(re.search(r"(\d+) reused", done.out).group(1)) >= 7  # type: ignore[union-attr]


def test_a_changed_composition_embeds_only_what_is_shown_otherwise(
    built: Repo, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    forget_local_state(built)
    other_composition(built, monkeypatch)
    run(built, "update")
    shown = [text for call in calls for text in call]
    assert shown
    assert all(" / " in text for text in shown)


def test_a_change_and_its_reverse_embed_nothing_twice(built: Repo, calls: list[list[str]]) -> None:
    before = built.git("ls-files", "--stage", ".kbindex/outline", ".kbindex/recipe.json")
    with pytest.MonkeyPatch.context() as patch:
        set_identity(patch, digest="crc32-v2")
        n_first = n_embedded(run(built, "update"))
    assert n_first > 0
    calls.clear()
    done = run(built, "update")
    assert "recipe: embedder digest: crc32-v2 → crc32-v1" in done.out
    assert (n_embedded(done), calls) == (0, [])
    after = built.git("ls-files", "--stage", ".kbindex/outline", ".kbindex/recipe.json")
    assert after == before


# In one step or not at all


def test_a_document_that_fails_keeps_the_whole_index_as_it_was(
    built: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbindex.core.errors import EmbeddingError

    embed = HashEmbedder.embed_documents

    def refusing(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        for index, text in enumerate(texts):
            if "WAL" in text:
                raise EmbeddingError(index, "the server has had enough")
        return embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed_documents", refusing)
    set_identity(monkeypatch, digest="crc32-v2")
    before = built.git("ls-files", "--stage")
    done = run(built, "update")
    assert done.code == 1
    assert "bundle/late.md: a passage can't be embedded: the server has had enough" in done.err
    assert built.git("ls-files", "--stage") == before
    assert built.git("status", "--porcelain") == ""


def test_an_interrupted_change_leaves_the_index_and_goes_on_where_it_stopped(
    built: Repo, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    set_identity(monkeypatch, digest="crc32-v2")
    n_all = n_embedded(run(built, "update", "--dry-run"))
    embed = HashEmbedder.embed_documents

    def interrupted(self: HashEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
        if len(calls) == 2:
            raise KeyboardInterrupt
        return embed(self, texts)

    before = built.git("ls-files", "--stage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HashEmbedder, "embed_documents", interrupted)
        done = run(built, "update")
    assert done.code == 130
    assert built.git("ls-files", "--stage") == before
    n_done = sum(map(len, calls))
    assert 0 < n_done < n_all
    calls.clear()
    done = run(built, "update")
    assert n_embedded(done) == sum(map(len, calls)) == n_all - n_done
    assert run(built, "check", "--strict").code == 0


OTHER_WEIGHTS = """\
from dataclasses import replace
from kbindex.embed.hashing import HashEmbedder
HashEmbedder.identity = replace(HashEmbedder.identity, digest="crc32-v2")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_killed_at_any_call_of_git_leaves_the_old_index_or_the_new(
    built: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Recipe, outlines, table and WAL of the one or of the other, never of both."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(OTHER_WEIGHTS)
    variables = {"PYTHONPATH": str(tmp_path / "site")}
    head = built.git("rev-parse", "HEAD").strip()
    old = built.git("ls-files", "--stage")
    assert built.kbindex("update", **variables).code == 0
    restored(built, head)
    n_calls = count_calls(built, tmp_path, "update", **variables)
    set_identity(monkeypatch, digest="crc32-v2")
    assert run(built, "check").code == 0
    seen = set()
    for call in [4, *range(n_calls - 6, n_calls + 1)]:
        restored(built, head)
        killed = killed_at(built, tmp_path, call, when, "update", **variables)
        assert killed == -signal.SIGKILL
        is_old = built.git("ls-files", "--stage") == old
        seen.add(is_old)
        if not is_old:
            (built.root / ".git/index.lock").unlink(missing_ok=True)
            checked = run(built, "check", "--rev", built.git("write-tree").strip(), "--strict")
            assert checked.code == 0, checked.out
        (built.root / ".git/index.lock").unlink(missing_ok=True)
        done = run(built, "update")
        assert n_embedded(done) == 0, "what was embedded is in the cache"
        checked = run(built, "check", "--strict")
        assert checked.code == 0, checked.out
    assert seen == {True, False}


def test_progress_is_shown_on_a_terminal_and_nowhere_else(built: Repo) -> None:
    (built.root / ".git/kbindex").rename(built.root / "cache")
    set_limit(built, "chunk_tokens = 64")
    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "kbindex", "update"],
        cwd=built.root,
        env=built.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=follower,
        check=True,
    )
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    n = n_embedded(Done(0, done.stdout.decode(), ""))
    assert f"embedding chunk 8 of {n}, " in shown
    assert f"embedding chunk {n} of {n}, 0 s left" in shown
    assert shown.endswith("\r\x1b[K")
    assert b"embedding chunk" not in done.stdout


# The query


@EACH
def test_a_query_is_refused_where_vectors_can_t_be_compared_and_words_still_work(
    built: Repo, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    change.apply(built, monkeypatch)
    for mode in ("auto", "hybrid", "dense"):
        done = run(built, "query", "paraffin lamps", "--mode", mode)
        if change.name in ("limit", "maximum", "chunker", "chunker alone"):
            assert done.code == 0  # the vectors are as good as before
        else:
            assert done.code == 3
            assert "kbindex update" in done.err
            assert done.out == ""
    assert run(built, "query", "paraffin lamps", "--mode", "lexical").code == 0


def test_neighbours_are_refused_under_another_composition(
    built: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(built, "related", "lamps").code == 0
    other_composition(built, monkeypatch)
    done = run(built, "related", "lamps")
    assert done.code == 3
    assert "composition version 1, here it is 2" in done.err


@pytest.mark.parametrize("part", ["CHUNKER_VERSION", "COMPOSITION_VERSION"])
def test_an_index_of_a_newer_kbindex_is_not_taken_back(
    built: Repo, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        set_version(patch, part, 2)
        patch.setattr(recipe, "NEEDS", "0.7.2")
        assert run(built, "update").code == 0
    before = built.git("ls-files", "--stage")
    name = part.removesuffix("_VERSION").lower()
    for verb in (("update",), ("update", "--dry-run"), ("hook", "pre-commit"), ("checkpoint",)):
        done = run(built, *verb)
        assert done.code == 3, verb
        assert f"a newer kbindex made the index: {name} version 2, here it is 1" in done.err
        assert "remedy: pip install 'kbindex>=0.7.2'" in done.err
    [problem] = run(built, "check", "--format", "json").json()["problems"]
    assert problem["rule"] == "recipe-mismatch"
    assert problem["remedy"] == "pip install 'kbindex>=0.7.2'"
    assert built.git("ls-files", "--stage") == before
    asked = run(built, "query", "paraffin")
    assert asked.code == (0 if part == "CHUNKER_VERSION" else 3)
