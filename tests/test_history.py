"""Whatever is done to history, the index is right, or a message says how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.index import assert_commit_fresh, forget_local_state, update_and_commit
from testing.repositories import Repo, run


def n_to_embed(repo: Repo) -> int:
    done = run(repo, "update", "--dry-run")
    return int(done.out.split(" to embed")[0].rsplit(" ", 1)[1])


SECTIONS = "".join(
    f"## Part {n}\n\nThe keeper of part {n} counts the lamps, and writes the number down.\n\n"
    for n in range(8)
)


@pytest.fixture
def forked(repo: Repo) -> Repo:
    """``main`` and ``topic`` have two commits each, in different parts of one document."""
    repo.write("bundle/log.md", f"# Log\n\n{SECTIONS}")
    repo.write("bundle/other.md", "# Other\n\nNothing yet.\n")
    update_and_commit(repo, "base")
    repo.git("checkout", "--quiet", "-b", "topic")
    for number in (1, 2):
        edit(repo, number)
        update_and_commit(repo, f"topic {number}")
    repo.git("checkout", "--quiet", "main")
    for number in (6, 7):
        edit(repo, number)
        update_and_commit(repo, f"main {number}")
    return repo


def edit(repo: Repo, number: int) -> None:
    file = repo.root / "bundle/log.md"
    before, after = f"The keeper of part {number}", f"The new keeper of part {number}"
    file.write_text(file.read_text().replace(before, after))


@pytest.mark.parametrize("backend", ["--merge", "--apply"])
def test_every_commit_of_a_rebased_series_is_fresh(forked: Repo, backend: str) -> None:
    forked.git("checkout", "--quiet", "topic")
    forked.git("rebase", "--quiet", backend, "main")
    for revision in ("HEAD", "HEAD~1"):
        assert_commit_fresh(forked, revision)


def test_a_reworded_and_squashed_series_is_fresh(forked: Repo) -> None:
    forked.git("checkout", "--quiet", "topic")
    forked.git(
        "-c",
        "sequence.editor=sed -i -e '2s/^pick/squash/'",
        "-c",
        "core.editor=true",
        "rebase",
        "--quiet",
        "--interactive",
        "main",
    )
    assert forked.git("log", "--format=%s", "-1").strip() == "topic 1"
    assert_commit_fresh(forked)


def test_exec_mends_every_commit_of_a_stale_series(forked: Repo) -> None:
    forked.git("checkout", "--quiet", "-b", "stale", "main~2")
    for number in (3, 4):
        edit(forked, number)
        forked.commit(f"stale {number}", "--no-verify")
    assert run(forked, "check", "--rev", "HEAD").code == 1
    mend = "kbindex update && git commit --amend --no-edit --no-verify"
    forked.git("rebase", "--quiet", "--exec", mend, "main")
    for revision in ("HEAD", "HEAD~1"):
        assert_commit_fresh(forked, revision)


def test_a_picked_commit_is_fresh_and_embeds_nothing(forked: Repo) -> None:
    forked.git("cherry-pick", "topic~1")
    assert_commit_fresh(forked)
    assert n_to_embed(forked) == 0


@pytest.mark.parametrize("revision", ["HEAD", "HEAD~1"])
def test_a_reverted_commit_is_fresh_and_embeds_nothing(forked: Repo, revision: str) -> None:
    forked.git("revert", "--no-edit", revision)
    # The reverted commit's WAL file is gone with it; its rows may be needed again one day.
    assert_commit_fresh(forked)
    assert n_to_embed(forked) == 0


def test_a_reverted_revert_is_fresh(forked: Repo) -> None:
    forked.git("revert", "--no-edit", "HEAD")
    forked.git("revert", "--no-edit", "HEAD")
    assert_commit_fresh(forked)


def test_a_mailed_patch_is_fresh(forked: Repo, tmp_path: Path) -> None:
    patch = tmp_path / "patch"
    patch.write_text(forked.git("format-patch", "--binary", "--stdout", "main~2..topic"))
    forked.git("am", "--quiet", "--3way", str(patch))
    assert_commit_fresh(forked)


def test_a_squash_merge_is_fresh(forked: Repo) -> None:
    forked.git("merge", "--quiet", "--squash", "topic")
    forked.git("commit", "--quiet", "--message", "squashed")
    assert_commit_fresh(forked)


def test_a_stash_that_is_popped_elsewhere_is_mended_by_the_next_update(forked: Repo) -> None:
    edit(forked, 4)
    forked.git("add", "--all")
    assert run(forked, "update").code == 0
    forked.git("stash", "--quiet")
    forked.git("checkout", "--quiet", "topic")
    forked.git("stash", "pop", "--quiet", "--index")
    update_and_commit(forked, "popped")
    assert_commit_fresh(forked)


def checkpoint(repo: Repo, number: int) -> str:
    edit(repo, number)
    update_and_commit(repo, f"edit {number}")
    assert run(repo, "checkpoint").code == 0
    return repo.commit(f"checkpoint {number}")


@pytest.fixture
def both_checkpointed(forked: Repo) -> Repo:
    checkpoint(forked, 5)
    forked.git("checkout", "--quiet", "topic")
    checkpoint(forked, 3)
    forked.git("checkout", "--quiet", "main")
    return forked


def test_resolve_mends_two_checkpoints_and_embeds_nothing(both_checkpointed: Repo) -> None:
    repo = both_checkpointed
    assert "CONFLICT" in repo.git("merge", "topic", check=False)
    done = run(repo, "resolve")
    assert done.code == 0, done.out + done.err
    assert "rows of the other side were added" in done.out
    assert repo.git("ls-files", "--unmerged") == ""
    forget_local_state(repo)
    assert n_to_embed(repo) == 0
    repo.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(repo)
    table = [path for path in repo.files(".kbindex/chunks.lance") if "/data/" in path]
    ours = [path for path in repo.files(".kbindex/chunks.lance", "HEAD^1") if "/data/" in path]
    assert table == ours  # HEAD's table is kept whole


def test_a_conflict_that_was_added_blindly_is_mended_without_embedding(
    both_checkpointed: Repo,
) -> None:
    repo = both_checkpointed
    repo.git("merge", "topic", check=False)
    repo.git("add", "--all")
    forget_local_state(repo)
    assert n_to_embed(repo) == 0
    done = run(repo, "update")
    assert done.code == 0, done.err
    repo.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(repo)


def test_resolve_mends_a_picked_checkpoint(both_checkpointed: Repo) -> None:
    repo = both_checkpointed
    repo.git("cherry-pick", "topic", check=False)
    assert run(repo, "resolve").code == 0
    repo.git("-c", "core.editor=true", "commit", "--quiet", "--allow-empty", "--no-edit")
    assert run(repo, "update").code == 0
    repo.commit("mended")
    assert_commit_fresh(repo)


def test_resolve_mends_a_reverted_checkpoint(both_checkpointed: Repo) -> None:
    repo = both_checkpointed
    first = repo.git("rev-parse", "HEAD").strip()
    checkpoint(repo, 0)
    repo.git("revert", "--no-edit", first, check=False)
    assert run(repo, "resolve").code == 0
    assert repo.git("ls-files", "--unmerged") == ""
    assert run(repo, "update").code == 0
    repo.commit("reverted")
    assert_commit_fresh(repo)


def test_resolve_names_the_documents_that_are_left_to_the_user(forked: Repo) -> None:
    forked.git("checkout", "--quiet", "topic")
    file = forked.root / "bundle/other.md"
    for branch in ("topic", "main"):
        forked.git("checkout", "--quiet", branch)
        file.write_text(f"# Other\n\nWritten on {branch}.\n")
        update_and_commit(forked, branch)
    forked.git("merge", "topic", check=False)
    done = run(forked, "resolve")
    assert "still to resolve by hand: bundle/other.md" in done.out
    file.write_text("# Other\n\nWritten on both.\n")
    update_and_commit(forked, "merged")
    assert_commit_fresh(forked)


def test_resolve_has_nothing_to_do_outside_a_merge(forked: Repo) -> None:
    done = run(forked, "resolve")
    assert done.code == 0
    assert "nothing to resolve" in done.out


def test_compact_leaves_exactly_the_live_chunks(repo: Repo) -> None:
    import lancedb

    repo.write("bundle/log.md", f"# Log\n\n{SECTIONS}")
    update_and_commit(repo)
    for number in (1, 2, 3):
        checkpoint(repo, number)
    table = lancedb.connect(repo.root / ".kbindex").open_table("chunks")
    n_versions, n_rows = len(table.list_versions()), table.count_rows()
    assert n_versions == 4
    assert run(repo, "compact").code == 0
    repo.commit("compacted")
    assert_commit_fresh(repo)
    table = lancedb.connect(repo.root / ".kbindex").open_table("chunks")
    n_live = run(repo, "check", "--format", "json").json()["chunks"]
    assert len(table.list_versions()) == 1
    assert table.count_rows() == n_live < n_rows


def test_compact_keeps_what_another_branch_needs(forked: Repo) -> None:
    assert run(forked, "compact").code == 0
    forked.commit("compacted")
    merged = forked.git("merge", "topic", check=False)
    assert "CONFLICT" not in merged or run(forked, "resolve").code == 0
    update_and_commit(forked, "merged")
    assert_commit_fresh(forked)
    assert n_to_embed(forked) == 0


def test_compact_keeps_what_a_stale_document_will_need(forked: Repo) -> None:
    forked.git("checkout", "--quiet", "--detach")
    forked.git("branch", "--quiet", "-D", "main", "topic")  # no branch's tip names its rows
    edit(forked, 3)
    forked.git("add", "--all")
    assert run(forked, "compact").code == 0
    for message in ("compacted", "another"):  # rows are looked for in HEAD and its parent
        forked.commit(message)
    forget_local_state(forked)
    assert n_to_embed(forked) == 1


def test_diff_tells_sections_apart(forked: Repo) -> None:
    done = run(forked, "diff", "main~2", "main", "--format", "json")
    assert done.code == 0
    (document,) = done.json()["documents"]
    assert document["change"] == "changed"
    assert [s["heading"][-1] for s in document["sections"]] == ["Part 6", "Part 7"]
    assert {s["change"] for s in document["sections"]} == {"reworded"}
    assert done.json()["embedded"] == 2
    assert done.json()["bytes_added"] > 0
    assert run(forked, "diff", "main~2", "main", "--exit-code").code == 1
    assert run(forked, "diff", "main", "main", "--exit-code").code == 0


def test_diff_names_added_removed_and_renamed_documents(forked: Repo) -> None:
    forked.git("mv", "bundle/log.md", "bundle/diary.md")
    forked.git("rm", "--quiet", "bundle/other.md")
    forked.write("bundle/new.md", "# New\n\nText.\n")
    update_and_commit(forked)
    documents = run(forked, "diff", "HEAD~1", "HEAD", "--format", "json").json()["documents"]
    found = {document["path"]: document["change"] for document in documents}
    assert found == {
        "bundle/diary.md": "renamed",
        "bundle/new.md": "added",
        "bundle/other.md": "removed",
    }
    markdown = run(forked, "diff", "HEAD~1", "HEAD", "--format", "markdown").out
    assert markdown.startswith("### Search index\n")
    assert "- renamed `bundle/diary.md` (was `bundle/log.md`): 0 embedded" in markdown


def test_a_merge_with_a_switch_of_the_embedder_is_mended_by_update(forked: Repo) -> None:
    """One side's recipe, the other side's table: refused by the hook, replaced by update."""
    forked.git("checkout", "--quiet", "-b", "switch", "main~2")
    forked.write("kbindex.toml", 'embedder = "builtin"\n')
    forked.write("bundle/log.md", "# Log\n\nShort, for a real model.\n")
    update_and_commit(forked, "switch")
    forked.git("checkout", "--quiet", "main")
    forked.git("merge", "switch", check=False)
    assert run(forked, "resolve").code in (0, 1)
    forked.write("bundle/log.md", "# Log\n\nShort, on both sides.\n")
    forked.git("add", "--all")
    assert run(forked, "update").code == 0
    forked.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(forked)
    assert run(forked, "query", "short").code == 0


def test_check_tells_an_unstaged_update_from_damage(forked: Repo) -> None:
    edit(forked, 3)
    assert run(forked, "update", "--worktree").code == 0
    done = run(forked, "check")
    assert done.code == 0
    assert "it was updated but not staged" in done.out
    (forked.root / ".kbindex/recipe.json").write_text("{}")
    assert run(forked, "check").code == 3


def test_check_names_the_document_that_is_not_staged(repo: Repo) -> None:
    repo.write("bundle/a.md", "# A\n\nText.\n")
    assert run(repo, "init", "--hooks", "none").code == 0
    done = run(repo, "check")
    assert done.code == 1
    assert "git add -- 'bundle/a.md'" in done.out
    assert "kbindex update" not in done.out


def test_update_settles_the_index_once_the_documents_are_resolved(forked: Repo) -> None:
    file = forked.root / "bundle/other.md"
    for branch in ("topic", "main"):
        forked.git("checkout", "--quiet", branch)
        file.write_text(f"# Other\n\nWritten on {branch}.\n")
        update_and_commit(forked, branch)
    forked.git("merge", "topic", check=False)
    refused = run(forked, "update")
    assert refused.code == 1
    assert "bundle/other.md" in refused.err
    file.write_text("# Other\n\nWritten on both.\n")
    forked.git("add", "bundle")
    done = run(forked, "update")
    assert done.code == 0, done.err
    assert "1 embedded" in done.out
    forked.git("commit", "--quiet", "--no-edit")
    assert_commit_fresh(forked)
