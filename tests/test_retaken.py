"""A passage that comes back is safe from whoever drops what nothing seemed to need any more."""

from __future__ import annotations

import pytest

from kbindex.storage.wal import decode_wal
from testing.index import assert_commit_fresh
from testing.repositories import Repo, Template

LOG = "# Log\n\n## Morning\n\nThe lamps are cleaned.\n\n"
EVENING = "## Evening\n\nThe lamps are lit.\n\n"


def commit(repo: Repo, message: str, verb: str = "update") -> str:
    repo.git("add", "--all")
    done = repo.call(verb)
    assert done.code == 0, done.err
    assert " 0 embedded" in done.out or verb != "update" or message == "first"
    return repo.commit(message)


@pytest.fixture
def without(from_template: Template) -> Repo:
    """A repository whose table holds a section that was deleted; ``main`` has dropped it since."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/log.md", LOG + EVENING)
        repo.write("bundle/other.md", "# Other\n\nText.\n")
        commit(repo, "first")
        repo.write("bundle/log.md", LOG)
        commit(repo, "deleted")
        repo.git("branch", "topic")
        commit(repo, "compacted", "compact")
        repo.git("checkout", "--quiet", "topic")

    return from_template("without", fill)


def assert_merges_fresh(repo: Repo) -> None:
    tree = repo.git("merge-tree", "--write-tree", "main", "topic").strip()
    assert_commit_fresh(repo, tree)


def wal_keys(repo: Repo) -> list[str]:
    files = [repo.blob(path) for path in repo.files(".kbindex/wal") if path.endswith(".arrow")]
    return [row.key for file in files for row in decode_wal(file)[0]]


def test_a_section_that_is_typed_again_merges_with_a_compaction(without: Repo) -> None:
    without.write("bundle/log.md", LOG + EVENING)
    commit(without, "typed again")
    assert len(wal_keys(without)) == 1
    assert_merges_fresh(without)


def test_a_section_that_is_reverted_to_merges_with_a_compaction(without: Repo) -> None:
    without.git("revert", "--no-commit", "HEAD")
    commit(without, "reverted")
    assert_merges_fresh(without)


def test_a_document_that_is_added_again_as_it_was_merges_with_a_compaction(without: Repo) -> None:
    """Its rows would make the very file that they stand in."""
    text = "# New\n\nThe whole of a commit.\n"
    without.write("bundle/new.md", text)
    without.git("add", "--all")
    assert without.call("update").code == 0
    without.commit("new")
    without.git("rm", "--quiet", "bundle/new.md")
    commit(without, "deleted")
    without.git("checkout", "--quiet", "-B", "main")
    commit(without, "compacted", "compact")
    without.git("checkout", "--quiet", "topic")
    without.write("bundle/new.md", text)
    commit(without, "added again")
    assert len(wal_keys(without)) == 2
    assert_merges_fresh(without)


def test_a_copy_merges_with_a_revert_of_what_was_copied(without: Repo) -> None:
    without.write("bundle/new.md", "# New\n\nThe whole of a commit.\n")
    without.git("add", "--all")
    assert without.call("update").code == 0
    brought = without.commit("new")
    without.git("checkout", "--quiet", "-B", "main")
    without.git("revert", "--no-edit", brought)
    without.git("checkout", "--quiet", "topic")
    without.write("bundle/copy.md", "# New\n\nThe whole of a commit.\n")
    commit(without, "copied")
    assert_merges_fresh(without)


def test_an_update_that_is_repeated_writes_the_row_once(without: Repo) -> None:
    without.write("bundle/log.md", LOG + EVENING)
    without.git("add", "--all")
    for _ in range(3):
        assert without.call("update").code == 0
    without.commit("typed again")
    assert len(wal_keys(without)) == 1


@pytest.mark.parametrize("act", ["rename", "move", "split"])
def test_what_was_needed_all_along_is_not_written_again(without: Repo, act: str) -> None:
    if act == "rename":
        without.git("mv", "bundle/log.md", "bundle/diary.md")
    elif act == "move":
        without.git("rm", "--quiet", "bundle/other.md")
        without.write("bundle/another.md", "# Other\n\nText.\n")
    else:
        without.write("bundle/copy.md", LOG)
    commit(without, act)
    assert wal_keys(without) == []
