"""What is recorded as fresh, or believed because it was read before, is what was proven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kbindex.commands import compact
from kbindex.embed.hashing import HashEmbedder
from kbindex.git.client import Git
from kbindex.git.trees import Trees
from testing.commands import Done
from testing.repositories import Repo, run


def push(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Done:
    """Ask the hook of a push of HEAD, as the pre-commit framework does."""
    monkeypatch.setenv("PRE_COMMIT_REMOTE_BRANCH", "refs/heads/main")
    monkeypatch.setenv("PRE_COMMIT_TO_REF", repo.git("rev-parse", "HEAD").strip())
    return run(repo, "hook", "pre-push")


# Known by its content


def test_a_wal_file_under_a_wrong_name_is_damage_even_where_its_content_was_read(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "--all")
    assert run(indexed, "update").code == 0
    indexed.commit("an edit", "--no-verify")
    assert run(indexed, "query", "paragraph").code == 0  # reads the file
    (path,) = [path for path in indexed.files(".kbindex/wal") if path.endswith(".arrow")]
    indexed.git("mv", path, f".kbindex/wal/{'0' * 32}.arrow")
    indexed.git("commit", "--quiet", "--no-verify", "--message", "renamed")
    assert run(indexed, "check").code == 3
    pushed = push(indexed, monkeypatch)
    assert pushed.code == 1
    assert "its index is damaged; mend it with: kbindex update && git commit" in pushed.err

    updated = run(indexed, "update")
    assert updated.code == 0, updated.err
    assert "is not the content that its name stands for" in updated.out
    assert " 0 embedded" in updated.out
    indexed.git("commit", "--quiet", "--no-verify", "--message", "mended")
    assert run(indexed, "check").code == 0
    assert push(indexed, monkeypatch).code == 0


def test_a_stale_branch_that_is_pushed_from_elsewhere_is_to_be_checked_out_first(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.git("checkout", "--quiet", "-b", "other")
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.commit("stale", "--no-verify")
    assert "stale; mend it with" in push(indexed, monkeypatch).err
    monkeypatch.setattr(Trees, "head", lambda trees: trees.find("main"))
    pushed = push(indexed, monkeypatch)
    assert pushed.code == 1
    assert "stale; check it out and mend it with: kbindex update && git commit" in pushed.err


# Staged while the hook works


@pytest.fixture
def while_embedding(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen at each call of the embedder, as another terminal would do it."""

    def arrange(act: Callable[[], None]) -> None:
        embed = HashEmbedder.embed_documents

        def acting(embedder: HashEmbedder, texts: Sequence[str]) -> Any:
            act()
            return embed(embedder, texts)

        monkeypatch.setattr(HashEmbedder, "embed_documents", acting)

    return arrange


def stage_new(repo: Repo, number: int) -> None:
    repo.write(f"bundle/late{number}.md", f"# Late {number}\n\nStaged while others are indexed.\n")
    repo.git("add", f"bundle/late{number}.md")


def test_a_document_that_is_staged_while_the_hook_works_is_in_the_same_index(
    indexed: Repo, while_embedding: Callable[[Callable[[], None]], None]
) -> None:
    while_embedding(lambda: stage_new(indexed, 0))
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "--all")
    done = run(indexed, "hook", "pre-commit")
    assert done.code == 0, done.err
    assert "2 chunks embedded" in done.err
    indexed.commit("both", "--no-verify")
    assert ".kbindex/outline/late0.md.tsv" in indexed.files()
    assert run(indexed, "check", "--rev", "HEAD").code == 0


def test_a_hook_that_something_is_always_staged_beside_ends_and_calls_nothing_fresh(
    indexed: Repo,
    while_embedding: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staged: list[int] = []

    def act() -> None:
        stage_new(indexed, len(staged))
        staged.append(1)

    while_embedding(act)
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "--all")
    done = run(indexed, "hook", "pre-commit")
    assert done.code == 1
    assert "documents were staged all the while" in done.err
    assert 2 <= len(staged) <= 4
    indexed.git("commit", "--quiet", "--no-verify", "--message", "all the same")
    assert "the index in HEAD is stale" in run(indexed, "hook", "post-commit").err
    assert push(indexed, monkeypatch).code == 1
    monkeypatch.undo()
    assert run(indexed, "update").code == 0
    assert run(indexed, "check").code == 0


def test_another_file_that_is_staged_meanwhile_costs_no_second_round(
    indexed: Repo, while_embedding: Callable[[Callable[[], None]], None]
) -> None:
    def act() -> None:
        assert not (indexed.root / "code.py").exists(), "it began again"
        indexed.write("code.py", "pass\n")
        indexed.git("add", "code.py")

    while_embedding(act)
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "bundle")
    assert run(indexed, "hook", "pre-commit").code == 0
    indexed.commit("both", "--no-verify")
    assert run(indexed, "check", "--rev", "HEAD").code == 0


# Written by another while we waited for the lock


def test_a_compaction_that_waited_for_a_checkpoint_compacts_its_table(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "--all")
    assert run(indexed, "update").code == 0
    lock = compact.write_lock

    def held_by_another(git: Git) -> Any:
        monkeypatch.setattr(compact, "write_lock", lock)
        assert run(indexed, "checkpoint").code == 0
        return lock(git)

    monkeypatch.setattr(compact, "write_lock", held_by_another)
    assert run(indexed, "compact").code == 0
    checked = run(indexed, "check")
    assert checked.code == 0, checked.out
    names = [path for path in indexed.git("ls-files", ".kbindex").split() if ".manifest" in path]
    assert len(names) == 1
