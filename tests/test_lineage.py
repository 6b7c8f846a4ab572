"""Two tables that grew apart conflict or are both readable; none is lost, and remedies end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.index import assert_commit_fresh, forget_local_state, update_and_commit
from testing.repositories import Repo, Template

SECTIONS = "".join(f"## Part {n}\n\nThe keeper of part {n}.\n\n" for n in range(12))
MARK = ".kbindex/lineage"


@pytest.fixture
def started(from_template: Template) -> Repo:
    """A repository of one document with its table, and a branch ``topic`` there."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/log.md", f"# Log\n\n{SECTIONS}")
        update_and_commit(repo, "base")

    return from_template("started", fill)


def checkpoint(repo: Repo, number: int) -> str:
    """Commit an edit of one section and a checkpoint with it."""
    file = repo.root / "bundle/log.md"
    file.write_text(file.read_text().replace(f"keeper of part {number}.", f"clerk of {number}."))
    repo.git("add", "--all")
    for verb in ("update", "checkpoint"):
        done = repo.call(verb)
        assert done.code == 0, done.err
    return repo.commit(f"checkpoint {number}")


def assert_settled(repo: Repo) -> None:
    """Assert that resolving as documented leaves a fresh index and embeds nothing."""
    forget_local_state(repo)
    done = repo.call("resolve")
    assert done.code == 0, done.out + done.err
    done = repo.call("update")
    assert " 0 embedded" in done.out, done.out + done.err


def test_a_checkpoint_after_a_reverted_one_conflicts_with_a_branch_from_the_first(
    started: Repo,
) -> None:
    first = checkpoint(started, 1)
    started.git("revert", "--no-edit", "HEAD")
    assert_commit_fresh(started)
    checkpoint(started, 2)
    started.git("checkout", "--quiet", "-b", "topic", first)
    checkpoint(started, 3)
    started.git("checkout", "--quiet", "main")
    merged = started.try_git("merge-tree", "--write-tree", "HEAD", "topic")
    assert merged.code == 1
    assert f"CONFLICT (content): Merge conflict in {MARK}" in merged.out
    started.git("merge", "topic", check=False)
    assert_settled(started)
    started.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(started)


def test_a_checkpoint_that_is_picked_onto_another_lineage_conflicts(started: Repo) -> None:
    started.git("checkout", "--quiet", "-b", "topic")
    checkpoint(started, 1)
    checkpoint(started, 2)
    started.git("checkout", "--quiet", "main")
    checkpoint(started, 3)
    assert MARK in started.git("cherry-pick", "topic", check=False)
    assert_settled(started)
    started.git("-c", "core.editor=true", "cherry-pick", "--continue")
    assert_commit_fresh(started)


def test_two_checkpoints_that_are_rebased_onto_a_third_are_settled_one_by_one(
    started: Repo,
) -> None:
    started.git("checkout", "--quiet", "-b", "topic")
    checkpoint(started, 1)
    checkpoint(started, 2)
    started.git("checkout", "--quiet", "main")
    checkpoint(started, 3)
    started.git("checkout", "--quiet", "topic")
    assert "CONFLICT" in started.git("rebase", "main", check=False)
    for _ in range(2):
        assert_settled(started)
        assert_commit_fresh(started, started.git("write-tree").strip())
        started.git("-c", "core.editor=true", "rebase", "--continue", check=False)
    assert not (started.root / ".git/rebase-merge").exists()
    assert_commit_fresh(started)
    assert_commit_fresh(started, "HEAD~1")


def test_an_earlier_checkpoint_that_is_reverted_conflicts(started: Repo) -> None:
    first = checkpoint(started, 1)
    checkpoint(started, 2)
    assert MARK in started.git("revert", "--no-edit", first, check=False)
    assert_settled(started)
    started.git("-c", "core.editor=true", "revert", "--continue")
    assert_commit_fresh(started)


def test_the_last_checkpoint_can_be_reverted_without_a_conflict(started: Repo) -> None:
    checkpoint(started, 1)
    started.git("revert", "--no-edit", "HEAD")
    assert_commit_fresh(started)


def test_a_checkpoint_merges_with_commits_that_leave_the_table_alone(started: Repo) -> None:
    started.git("checkout", "--quiet", "-b", "topic")
    started.write("bundle/other.md", "# Other\n\nText.\n")
    started.git("add", "--all")
    assert started.call("update").code == 0
    started.commit("other")
    started.git("checkout", "--quiet", "main")
    checkpoint(started, 1)
    started.git("merge", "--quiet", "--no-edit", "topic")
    assert_commit_fresh(started)


def test_resolve_keeps_a_table_that_merged_by_itself(started: Repo) -> None:
    checkpoint(started, 0)
    started.git("checkout", "--quiet", "-b", "topic")
    for branch in ("topic", "main"):
        started.git("checkout", "--quiet", branch)
        checkpoint(started, 1) if branch == "main" else None
        started.write("bundle/other.md", f"# Other\n\nText of {branch}.\n")
        started.git("add", "--all")
        assert started.call("update").code == 0
        started.commit(f"other on {branch}")
    started.git("checkout", "--quiet", "topic")
    theirs = started.files(".kbindex/chunks.lance", "main")
    assert "bundle/other.md" in started.git("merge", "main", check=False)
    started.write("bundle/other.md", "# Other\n\nText of main.\n")
    started.git("add", "bundle")
    done = started.call("resolve")
    assert "the table merged by itself" in done.out
    assert started.call("update").code == 0
    started.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(started)
    assert started.files(".kbindex/chunks.lance") == theirs


# The mark


def mark(repo: Repo) -> str | None:
    found = repo.git("cat-file", "blob", f":{MARK}", check=False)
    return found if re.fullmatch(r"[0-9a-f]{32}\n", found) else None


def test_an_index_without_a_mark_is_fresh_and_gets_one_with_its_next_change(started: Repo) -> None:
    started.git("rm", "--quiet", MARK)
    started.commit("as older versions made it")
    assert_commit_fresh(started)
    started.write("bundle/other.md", "# Other\n\nText.\n")
    started.git("add", "--all")
    assert " 1 embedded" in started.call("update").out
    assert mark(started) is None, "it would conflict with a checkpoint on another branch"
    assert started.call("checkpoint").code == 0
    assert mark(started) is not None


def test_a_mark_of_another_table_is_no_fault_and_is_mended_by_an_update(started: Repo) -> None:
    right = mark(started)
    assert right is not None
    started.write(MARK, "<<<<<<< HEAD\n")
    started.git("add", "--all")
    assert started.call("check").code == 0
    assert started.call("update").code == 0
    assert mark(started) == right


# Remedies


def flipped(content: bytes) -> bytes:
    """Flip a bit of a vector, which begins somewhere in the middle."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


@pytest.mark.parametrize("is_committed", [False, True], ids=["staged", "committed"])
@pytest.mark.parametrize(
    ("pattern", "change"),
    [
        ("chunks.lance/data/*", lambda content: content[:100]),
        ("chunks.lance/data/*", flipped),
        ("chunks.lance/_versions/*.manifest", lambda content: b"\r\n" + content),
        ("wal/*.arrow", lambda content: content[:100]),
    ],
    ids=["data truncated", "bit flipped", "manifest", "WAL"],
)
def test_the_remedies_for_damage_end_wherever_it_is(
    started: Repo, pattern: str, change: Callable[[bytes], bytes], is_committed: bool
) -> None:
    started.write("bundle/other.md", "# Other\n\nText.\n")
    started.git("add", "--all")
    assert started.call("update").code == 0
    started.commit("other")
    file: Path = next(iter((started.root / ".kbindex").glob(pattern)))
    file.write_bytes(change(file.read_bytes()))
    started.git("add", "--all")
    if is_committed:
        started.commit("damage")
    forget_local_state(started)
    checked = started.call("check")
    assert checked.code == 3
    damage = [line for line in checked.out.splitlines() if re.search("damaged-file|bad-vec", line)]
    (remedy,) = [line.rsplit("→", 1)[1].strip() for line in damage]
    assert remedy.startswith("kbindex update" if is_committed else "git restore --source=HEAD")
    verb, *arguments = shlex.split(remedy)
    if verb == "git":
        started.git(*arguments)
    else:
        done = started.call(*arguments)
        assert done.code == 0, done.err
    checked = started.call("check")
    assert checked.code == 0, checked.out


def test_a_damaged_recipe_beside_a_conflict_in_the_index_is_mended_by_an_update(
    started: Repo,
) -> None:
    started.git("checkout", "--quiet", "-b", "topic")
    checkpoint(started, 1)
    started.git("checkout", "--quiet", "main")
    checkpoint(started, 7)
    started.write(".kbindex/recipe.json", "{}")
    started.commit("damage")
    started.git("merge", "topic", check=False)
    done = started.call("update")
    assert done.code == 0, done.err
    started.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(started)
