"""Commits, merges and pushes with the real hooks: native ones and the pre-commit framework's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from testing.commands import Done
from testing.documents import NOTE
from testing.index import assert_commit_fresh
from testing.repositories import Repo, Template, imported_modules, run

NEW_TEXT = NOTE.replace("paraffin", "whale oil")


# Helpers


def commit(repo: Repo, *options: str, cwd: Path | None = None) -> Done:
    return repo.try_git("commit", "--quiet", "--message", "a change", *options, cwd=cwd)


def assert_committed(repo: Repo, *clean_except: str) -> None:
    """Assert that HEAD is fresh and that git sees nothing else to commit."""
    assert_commit_fresh(repo)
    status = repo.git("status", "--porcelain", "-z", check=False)
    assert sorted(entry for entry in status.split("\0") if entry) == sorted(clean_except)


def committed(repo: Repo, revision: str = "HEAD") -> set[str]:
    """Return the paths that a commit changed."""
    listing = repo.git("show", "--format=", "--name-only", "--no-renames", revision)
    return set(listing.split("\n")) - {""}


@pytest.fixture
def hooked(from_template: Template) -> Repo:
    """A copy of a repository of three documents, their index committed, native hooks on."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/ops/rota.md", "# Rota\n\nInes takes Mondays.\n\n## Swaps\n\nAsk.\n")
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        assert run(repo, "init", "--hooks", "native").code == 0
        repo.commit("first")

    return from_template("hooked", fill)


# Commits


def test_a_commit_holds_document_and_index(hooked: Repo) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.git("add", "bundle")
    done = commit(hooked)
    assert done.code == 0, done.err
    assert "1 chunks embedded" in done.err
    paths = committed(hooked)
    (wal,) = (path for path in paths if path.endswith(".arrow"))
    assert paths == {"bundle/lamps.md", ".kbindex/outline/lamps.md.tsv", wal}
    assert_committed(hooked)


def test_the_first_commit_holds_the_whole_index(repo: Repo) -> None:
    repo.write("bundle/lamps.md", NOTE)
    assert run(repo, "init", "--hooks", "native").code == 0
    repo.git("reset", "--quiet")  # even if nothing of it was staged
    shutil.rmtree(repo.root / ".kbindex")
    repo.git("add", "bundle", "kbindex.toml")
    done = commit(repo)
    assert done.code == 0, done.err
    assert ".kbindex/recipe.json" in repo.files(".kbindex")
    assert_committed(repo)


def test_commit_all_holds_document_and_index(hooked: Repo) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    (hooked.root / "bundle/plain.md").unlink()
    assert commit(hooked, "--all").code == 0
    assert ".kbindex/outline/plain.md.tsv" not in hooked.files()
    assert_committed(hooked)


@pytest.mark.parametrize("options", [("--all",), ("--include", "bundle/lamps.md")])
def test_a_commit_that_stages_by_itself_and_is_stopped_leaves_no_index_behind(
    hooked: Repo, options: tuple[str, ...]
) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.git("-c", "core.editor=false", "commit", *options, check=False)
    assert hooked.git("status", "--porcelain") == " M bundle/lamps.md\n"
    assert commit(hooked, *options).code == 0
    assert_committed(hooked)


def test_a_commit_of_all_that_has_nothing_but_a_mend_to_commit_hinders_no_merge(
    hooked: Repo,
) -> None:
    hooked.git("checkout", "--quiet", "-b", "colleague")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, "--all", "--no-verify").code == 0
    hooked.git("branch", "ours")
    assert commit(hooked, "--all", "--amend", "--no-edit").code == 0
    hooked.git("checkout", "--quiet", "ours")
    assert "0 chunks embedded" in commit(hooked, "--all").err
    assert hooked.git("status", "--porcelain") == ""
    hooked.git("merge", "--quiet", "--no-edit", "colleague")
    assert_committed(hooked)


@pytest.mark.parametrize("option", ["--only", "--include"])
def test_a_commit_of_one_path_holds_its_index_and_heals_git_s(hooked: Repo, option: str) -> None:
    hooked.write("bundle/plain.md", "Another paragraph.\n")
    if option == "--only":
        hooked.git("add", "bundle/plain.md")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, option, "bundle/lamps.md").code == 0
    assert "bundle/lamps.md" in committed(hooked)
    assert "bundle/plain.md" not in committed(hooked)
    assert ".kbindex/outline/lamps.md.tsv" in committed(hooked)
    assert_committed(hooked, "M  bundle/plain.md" if option == "--only" else " M bundle/plain.md")

    # What git's index holds of ours is not behind: a commit without hooks reverts nothing.
    hooked.git("reset", "--quiet", "--hard")
    assert commit(hooked, "--no-verify", "--allow-empty").code == 0
    assert_committed(hooked)


def test_a_commit_of_one_path_leaves_an_index_that_was_staged_for_others_mendable(
    hooked: Repo,
) -> None:
    hooked.write("bundle/plain.md", "Another paragraph.\n")
    hooked.git("add", "bundle/plain.md")
    assert run(hooked, "update").code == 0
    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, "bundle/lamps.md").code == 0
    assert_commit_fresh(hooked)
    assert commit(hooked).code == 0
    assert_committed(hooked)


def test_a_commit_from_a_subfolder_holds_document_and_index(hooked: Repo) -> None:
    folder = hooked.root / "bundle/ops"
    hooked.write("bundle/ops/rota.md", "# Rota\n\nJonas takes Mondays.\n")
    assert commit(hooked, "--all", cwd=folder).code == 0
    assert_committed(hooked)
    hooked.write("bundle/ops/rota.md", "# Rota\n\nAda takes Mondays.\n")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, "rota.md", cwd=folder).code == 0
    assert_committed(hooked, " M bundle/lamps.md")


def test_an_amended_commit_holds_one_index(hooked: Repo) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.commit()
    hooked.write("bundle/lamps.md", NOTE.replace("paraffin", "colza"))
    hooked.git("add", "bundle")
    assert commit(hooked, "--amend").code == 0
    assert_committed(hooked)


def test_a_commit_of_deletions_alone_drops_the_outlines(hooked: Repo) -> None:
    hooked.git("rm", "--quiet", "bundle/lamps.md", "bundle/ops/rota.md")
    assert commit(hooked).code == 0
    assert committed(hooked) == {
        "bundle/lamps.md",
        "bundle/ops/rota.md",
        ".kbindex/outline/lamps.md.tsv",
        ".kbindex/outline/ops/rota.md.tsv",
    }
    assert_committed(hooked)


def test_a_partly_staged_document_is_indexed_as_staged(hooked: Repo) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.git("add", "bundle")
    later = NEW_TEXT.replace("each morning", "each evening")
    hooked.write("bundle/lamps.md", later)
    assert commit(hooked).code == 0
    assert_committed(hooked, " M bundle/lamps.md")
    assert (hooked.root / "bundle/lamps.md").read_text() == later


def test_a_commit_of_something_else_leaves_the_index_alone(hooked: Repo) -> None:
    hooked.write("README.md", "Read me.\n")
    hooked.git("add", "README.md")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    done = commit(hooked)
    assert done.code == 0
    assert done.err == ""
    assert committed(hooked) == {"README.md"}
    assert_committed(hooked, " M bundle/lamps.md")


def test_a_commit_that_is_stopped_later_can_be_repeated(hooked: Repo) -> None:
    stopper = hooked.root / ".git/hooks/commit-msg"
    stopper.write_text("#!/bin/sh\nexit 1\n")
    stopper.chmod(0o755)
    for number in range(2):
        hooked.write("bundle/lamps.md", NOTE.replace("paraffin", f"oil number {number}"))
        hooked.git("add", "bundle")
        assert commit(hooked).code == 1
    stopper.unlink()
    assert commit(hooked).code == 0
    assert len([path for path in committed(hooked) if path.endswith(".arrow")]) == 1
    assert_committed(hooked)


def test_a_commit_of_one_path_that_is_stopped_later_leaves_no_wal_file(hooked: Repo) -> None:
    stopper = hooked.root / ".git/hooks/commit-msg"
    stopper.write_text("#!/bin/sh\nexit 1\n")
    stopper.chmod(0o755)
    for text in (NEW_TEXT, NOTE.replace("paraffin", "colza")):
        hooked.write("bundle/lamps.md", text)
        assert commit(hooked, "bundle/lamps.md").code == 1
    stopper.unlink()
    assert commit(hooked, "bundle/lamps.md").code == 0
    assert_committed(hooked)


NAMES = [b"with space.md", b"new\nline.md", b'"quoted".md', b"-dash.md", b"back\\slash.md"]
if sys.platform != "darwin":
    NAMES.append(b"\xff\xfe.md")


def test_documents_of_any_name_are_committed_renamed_and_deleted(hooked: Repo) -> None:
    for number, name in enumerate(NAMES):
        hooked.write(f"bundle/{os.fsdecode(name)}", f"# Odd {number}\n\nText {number}.\n")
    hooked.git("add", "--all")
    assert commit(hooked).code == 0
    assert_committed(hooked)
    assert len([path for path in hooked.files(".kbindex/outline") if path.endswith(".tsv")]) == 9

    (hooked.root / "bundle/moved").mkdir()
    for name in map(os.fsdecode, NAMES):
        (hooked.root / "bundle" / name).rename(hooked.root / "bundle/moved" / name)
    assert commit(hooked, "--all").code == 0  # deletions
    hooked.git("add", "--all")
    done = commit(hooked)
    assert done.code == 0
    assert "0 chunks embedded" in done.err
    assert_committed(hooked)


def test_a_commit_in_a_linked_worktree_holds_document_and_index(hooked: Repo) -> None:
    linked = Repo(hooked.root.parent / "linked", hooked.environment)
    hooked.git("worktree", "add", "--quiet", "-b", "side", str(linked.root))
    hooked.write("bundle/plain.md", "Not committed here.\n")
    linked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(linked, "--all").code == 0
    assert_committed(linked)
    linked.write("bundle/plain.md", "Another paragraph.\n")
    linked.write("bundle/ops/rota.md", "# Rota\n\nNobody.\n")
    assert commit(linked, "bundle/plain.md").code == 0
    assert_committed(linked, " M bundle/ops/rota.md")
    assert_committed(hooked, " M bundle/plain.md")


def test_a_commit_in_a_sparse_checkout_leaves_it_clean(hooked: Repo) -> None:
    hooked.git("sparse-checkout", "set", "bundle")
    assert not (hooked.root / ".kbindex").exists()
    for number in range(2):
        hooked.write("bundle/lamps.md", NOTE.replace("paraffin", f"oil number {number}"))
        assert commit(hooked, "--all").code == 0
        assert_committed(hooked)


def test_a_commit_in_a_sparse_checkout_is_fresh(hooked: Repo) -> None:
    hooked.git("sparse-checkout", "set", "bundle")
    for number in range(2):
        hooked.write("bundle/lamps.md", NOTE.replace("paraffin", f"oil number {number}"))
        assert commit(hooked, "--all").code == 0
        assert_commit_fresh(hooked)


# Refusals


def test_too_much_to_embed_is_refused_with_the_number_and_the_remedy(hooked: Repo) -> None:
    hooked.write("kbindex.toml", 'embedder = "hash"\nhook_max_chunks = 2\n')
    hooked.write("bundle/new.md", "# A\n\na\n\n# B\n\nb\n\n# C\n\nc\n")
    hooked.git("add", "--all")
    before = hooked.git("ls-files", "--stage")
    done = commit(hooked)
    assert done.code == 1
    assert "3 chunks have to be embedded" in done.err
    assert "hook_max_chunks" in done.err
    assert "kbindex update" in done.err
    assert hooked.git("ls-files", "--stage") == before
    assert run(hooked, "update").code == 0
    assert commit(hooked).code == 0
    assert_committed(hooked)


def test_another_recipe_is_refused_with_the_remedy(hooked: Repo) -> None:
    hooked.write("kbindex.toml", 'embedder = "hash"\nchunk_tokens = 64\n')
    hooked.git("add", "--all")
    done = commit(hooked)
    assert done.code == 1
    assert "chunk_tokens: 256 → 64" in done.err
    assert "kbindex update" in done.err
    assert run(hooked, "update").code == 0
    assert commit(hooked).code == 0
    assert_committed(hooked)


def test_a_document_that_can_t_be_indexed_stops_the_commit(hooked: Repo) -> None:
    hooked.write("bundle/bad.md", b"fine\nnot \xff fine\n")
    hooked.git("add", "--all")
    done = commit(hooked)
    assert done.code == 1
    assert "bundle/bad.md:2: it is not UTF-8" in done.err
    hooked.write("kbindex.toml", 'embedder = "hash"\nexclude = ["bad.md"]\n')
    hooked.git("add", "--all")
    assert commit(hooked).code == 0
    assert_committed(hooked)


def test_a_repository_without_bundle_or_index_is_left_in_peace(repo: Repo) -> None:
    repo.git("config", "core.hooksPath", ".git/hooks")
    hooks = repo.root / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\nexec kbindex hook {name}\n")
        (hooks / name).chmod(0o755)
    repo.git("add", "--all")
    done = commit(repo)
    assert done.code == 0
    assert done.err == ""


# What goes stale behind the hook's back


def test_a_commit_without_hooks_is_called_stale(hooked: Repo) -> None:
    hooked.write("bundle/lamps.md", NEW_TEXT)
    done = commit(hooked, "--all", "--no-verify")
    assert done.code == 0
    assert "the index in HEAD is stale" in done.err
    assert "kbindex update && git commit --amend --no-edit" in done.err
    assert run(hooked, "update").code == 0
    assert commit(hooked, "--amend").code == 0
    assert_committed(hooked)


def test_a_picked_commit_without_index_is_called_stale(hooked: Repo) -> None:
    hooked.git("checkout", "--quiet", "-b", "side")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    commit(hooked, "--all", "--no-verify")
    hooked.git("checkout", "--quiet", "main")
    done = hooked.try_git("cherry-pick", "side")
    assert done.code == 0
    assert "the index in HEAD is stale" in done.err


def test_a_picked_and_a_reverted_commit_bring_their_index(hooked: Repo) -> None:
    hooked.git("checkout", "--quiet", "-b", "side")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.commit()
    hooked.git("checkout", "--quiet", "main")
    hooked.write("bundle/plain.md", "Another paragraph.\n")
    hooked.commit()
    picked = hooked.try_git("cherry-pick", "side")
    assert picked.code == 0
    assert "stale" not in picked.err
    assert_committed(hooked)
    reverted = hooked.try_git("revert", "--no-edit", "HEAD")
    assert reverted.code == 0
    assert "stale" not in reverted.err
    assert_committed(hooked)


def test_a_revert_of_what_was_copied_leaves_the_copy_fresh(hooked: Repo) -> None:
    hooked.write("bundle/one.md", "# Shared\n\nThe same passage.\n")
    hooked.commit()
    hooked.write("bundle/two.md", "# Shared\n\nThe same passage.\n")
    hooked.commit()
    done = hooked.try_git("revert", "--no-edit", "HEAD~1")
    assert done.code == 0
    assert "stale" not in done.err
    assert_committed(hooked)


def test_every_commit_of_a_rebase_is_looked_at(hooked: Repo) -> None:
    hooked.git("checkout", "--quiet", "-b", "side")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    commit(hooked, "--all", "--no-verify")
    hooked.git("checkout", "--quiet", "main")
    hooked.write("bundle/plain.md", "Another paragraph.\n")
    hooked.commit()
    hooked.git("checkout", "--quiet", "side")
    done = hooked.try_git("rebase", "main")
    assert done.code == 0
    assert "the index in HEAD is stale" in done.err
    mend = "kbindex update --stage && git commit --quiet --amend --no-edit --no-verify"
    assert hooked.try_git("rebase", "--exec", mend, "--force-rebase", "main").code == 0
    assert_committed(hooked)


# Merges


def test_a_clean_merge_of_two_indexed_branches_needs_no_mending(hooked: Repo) -> None:
    hooked.git("checkout", "--quiet", "-b", "side")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.commit()
    hooked.git("checkout", "--quiet", "main")
    hooked.write("bundle/new.md", "# New\n\nText.\n")
    hooked.commit()
    done = hooked.try_git("merge", "--no-edit", "side")
    assert done.code == 0, done.err
    assert_committed(hooked)
    assert len(hooked.git("rev-list", "--parents", "-1", "HEAD").split()) == 3


def stale_merge(repo: Repo) -> Done:
    """Merge a branch with a document that was committed without its index."""
    repo.git("checkout", "--quiet", "-b", "side")
    repo.write("bundle/side.md", "# Side\n\nFrom the side.\n")
    repo.git("add", "--all")
    commit(repo, "--no-verify")
    repo.git("checkout", "--quiet", "main")
    repo.write("bundle/new.md", "# New\n\nText.\n")
    repo.commit()
    return repo.try_git("merge", "--no-edit", "side")


def test_a_merge_with_a_stale_result_is_mended_stopped_and_finished(hooked: Repo) -> None:
    done = stale_merge(hooked)
    assert done.code == 1
    assert "git commit --no-edit" in done.err
    assert ".kbindex/outline/side.md.tsv" in hooked.git("diff", "--cached", "--name-only")
    assert hooked.try_git("commit", "--quiet", "--no-edit").code == 0
    assert_committed(hooked)
    assert len(hooked.git("rev-list", "--parents", "-1", "HEAD").split()) == 3


def test_a_merge_never_checkpoints(hooked: Repo) -> None:
    hooked.write("kbindex.toml", 'embedder = "hash"\ncheckpoint_every = 1\n')
    hooked.commit()
    done = stale_merge(hooked)
    assert done.code == 1
    changed = hooked.git("diff", "--cached", "--name-only", "HEAD")
    assert ".arrow" in changed
    assert "chunks.lance" not in changed


def test_a_conflicted_merge_is_indexed_when_it_is_resolved(hooked: Repo) -> None:
    hooked.git("checkout", "--quiet", "-b", "side")
    hooked.write("bundle/lamps.md", NEW_TEXT)
    hooked.commit()
    hooked.git("checkout", "--quiet", "main")
    hooked.write("bundle/lamps.md", NOTE.replace("paraffin", "colza"))
    hooked.commit()
    assert hooked.try_git("merge", "side").code == 1
    checked = run(hooked, "check")
    assert checked.code == 1
    assert "a merge is unresolved" in checked.err
    hooked.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil and colza"))
    hooked.git("add", "--all")  # the outline with its markers, too
    done = hooked.try_git("commit", "--quiet", "--no-edit")
    assert done.code == 0, done.err
    assert_committed(hooked)


# Pushes


@pytest.fixture
def remote(hooked: Repo) -> str:
    root = hooked.root.parent / "remote.git"
    hooked.git("init", "--quiet", "--bare", str(root))
    hooked.git("remote", "add", "origin", str(root))
    return str(root)


def make_stale(repo: Repo) -> None:
    repo.write("bundle/lamps.md", NEW_TEXT)
    assert commit(repo, "--all", "--no-verify").code == 0


def test_a_fresh_branch_is_pushed_and_a_stale_one_refused(hooked: Repo, remote: str) -> None:
    assert hooked.try_git("push", "--quiet", "origin", "main").code == 0
    before = hooked.git("ls-remote", remote)
    make_stale(hooked)
    done = hooked.try_git("push", "origin", "main")
    assert done.code == 1
    assert "refs/heads/main: its index is stale" in done.err
    assert "kbindex update && git commit --amend --no-edit" in done.err
    assert hooked.git("ls-remote", remote) == before


def test_deletions_and_tags_pass_even_while_the_branch_is_stale(hooked: Repo, remote: str) -> None:
    hooked.git("push", "--quiet", "origin", "main", "main:gone")
    make_stale(hooked)
    hooked.git("tag", "v1")
    assert hooked.try_git("push", "--quiet", "origin", ":gone").code == 0
    assert hooked.try_git("push", "--quiet", "origin", "v1").code == 0
    assert hooked.try_git("push", "--quiet", "origin", "HEAD~1:refs/heads/older").code == 0
    refs = {line.split("\t")[1] for line in hooked.git("ls-remote", remote).splitlines()}
    assert refs == {"refs/heads/main", "refs/heads/older", "refs/tags/v1"}


def test_a_branch_without_an_index_is_pushed(hooked: Repo, remote: str) -> None:
    hooked.git("checkout", "--quiet", "--orphan", "pages")
    hooked.git("rm", "--quiet", "-r", "--force", ".")
    hooked.write("index.html", "<p>\n")
    hooked.git("add", "index.html")
    assert commit(hooked).code == 0
    assert hooked.try_git("push", "--quiet", "origin", "pages").code == 0


# Installing


def executable(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def test_hooks_that_were_there_run_first_and_can_stop_a_commit(hooked: Repo) -> None:
    for shim in (hooked.root / ".git/hooks").glob("*"):
        shim.unlink()
    log = hooked.root.parent / "log"
    script = f'#!/bin/sh\necho "$0" >>"{log}"\n[ ! -e "{hooked.root}/stop" ]\n'
    names = ("pre-commit", "pre-merge-commit", "post-commit", "pre-push")
    for name in names:
        executable(hooked.root / ".git/hooks" / name, script)
    for _ in range(2):  # safe to repeat
        assert run(hooked, "init", "--hooks", "native").code == 0
    for name in names:
        assert (hooked.root / f".git/hooks/{name}.before-kbindex").read_text() == script

    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, "--all").code == 0
    assert_committed(hooked)
    ran = [Path(line).name for line in log.read_text().splitlines()]
    assert ran == ["pre-commit.before-kbindex", "post-commit.before-kbindex"]

    hooked.write("stop", "")
    hooked.write("bundle/lamps.md", NOTE)
    assert commit(hooked, "--all").code == 1
    assert ".kbindex" not in hooked.git("diff", "--cached", "--name-only")


def test_init_may_be_repeated_and_chains_no_shim_to_itself(hooked: Repo) -> None:
    before = {f.name: f.read_bytes() for f in (hooked.root / ".git/hooks").iterdir()}
    assert run(hooked, "init", "--hooks", "native").code == 0
    assert {f.name: f.read_bytes() for f in (hooked.root / ".git/hooks").iterdir()} == before
    assert hooked.git("status", "--porcelain") == ""


def test_a_push_hook_that_was_there_leaves_the_refs_to_read(hooked: Repo, remote: str) -> None:
    hook = hooked.root / ".git/hooks/pre-push"
    hook.unlink()
    executable(hook, "#!/bin/sh\nwhile read -r a b c d; do echo $c; done\n")
    assert run(hooked, "init", "--hooks", "native").code == 0
    make_stale(hooked)
    done = hooked.try_git("push", "origin", "main")
    assert done.code == 1
    assert "its index is stale" in done.err


def test_a_repository_s_own_hooks_folder_is_used_as_it_is(hooked: Repo) -> None:
    for shim in (hooked.root / ".git/hooks").iterdir():
        shim.unlink()
    for name in ("pre-commit", "pre-merge-commit", "post-commit", "pre-push"):
        executable(hooked.root / "hooks" / name, f'#!/bin/sh\nexec kbindex hook {name} "$@"\n')
    hooked.git("config", "core.hooksPath", "hooks")
    hooked.git("add", "hooks")
    before = hooked.git("ls-files", "--stage", "hooks")
    assert run(hooked, "init", "--hooks", "native").code == 0
    hooked.git("add", "hooks")
    assert hooked.git("ls-files", "--stage", "hooks") == before
    assert list((hooked.root / ".git/hooks").iterdir()) == []
    hooked.write("bundle/lamps.md", NEW_TEXT)
    assert commit(hooked, "--all").code == 0
    assert_committed(hooked)
    make_stale_text = NOTE.replace("paraffin", "colza")
    hooked.write("bundle/lamps.md", make_stale_text)
    assert "stale" in commit(hooked, "--all", "--no-verify").err


@pytest.mark.parametrize("argument", ["pre-comit", "--help-me", ""])
def test_an_unknown_hook_is_a_user_s_error(hooked: Repo, argument: str) -> None:
    assert run(hooked, "hook", argument).code == 2


# Speed


def test_a_hook_with_nothing_to_do_imports_nothing_heavy(hooked: Repo) -> None:
    hooked.write("README.md", "Read me.\n")
    hooked.git("add", "README.md")
    for name in ("pre-commit", "post-commit", "pre-merge-commit"):
        imported = imported_modules(hooked, "hook", name)
        assert "kbindex.commands.hook" in imported
        assert not imported & {"lancedb", "pyarrow", "numpy", "tiktoken", "markdown_it", "yaml"}


# The pre-commit framework


@pytest.fixture
def framed(from_template: Template) -> Repo:
    """A copy of a repository of two documents, their index committed through the framework."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/plain.md", "Just a paragraph.\n")
        done = repo.call("init", "--hooks", "pre-commit")
        assert done.code == 0, done.err
        repo.commit("first")

    return from_template("framed", fill)


def test_the_framework_s_configuration_is_made_installed_and_committed(framed: Repo) -> None:
    config = yaml.safe_load((framed.root / ".pre-commit-config.yaml").read_text())
    (entry,) = config["repos"]
    assert [hook["stages"] for hook in entry["hooks"]] == [
        ["pre-commit"],
        ["pre-merge-commit"],
        ["post-commit"],
        ["pre-push"],
    ]
    assert all(hook["always_run"] and not hook["pass_filenames"] for hook in entry["hooks"])
    assert config["exclude"] == r"^\.kbindex/"
    for name in ("pre-commit", "pre-merge-commit", "post-commit", "pre-push"):
        assert "pre-commit" in (framed.root / ".git/hooks" / name).read_text()
    assert ".pre-commit-config.yaml" in framed.files()
    assert_committed(framed)


def test_a_framework_commit_holds_document_and_index(framed: Repo) -> None:
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "bundle")
    done = commit(framed)
    assert done.code == 0, done.out + done.err
    assert ".kbindex/outline/lamps.md.tsv" in committed(framed)
    assert_committed(framed)


def test_a_framework_commit_of_deletions_drops_the_outlines(framed: Repo) -> None:
    framed.git("rm", "--quiet", "bundle/lamps.md")
    assert commit(framed).code == 0
    assert ".kbindex/outline/lamps.md.tsv" in committed(framed)
    assert_committed(framed)


def test_unstaged_edits_survive_a_framework_commit(framed: Repo) -> None:
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "bundle")
    later = NEW_TEXT.replace("each morning", "each evening")
    framed.write("bundle/lamps.md", later)
    framed.write("bundle/plain.md", "Edited, not staged.\n")
    done = commit(framed)
    assert done.code == 0, done.out + done.err
    assert (framed.root / "bundle/lamps.md").read_text() == later
    assert (framed.root / "bundle/plain.md").read_text() == "Edited, not staged.\n"
    assert_committed(framed, " M bundle/lamps.md", " M bundle/plain.md")


def test_unstaged_edits_survive_where_the_index_has_unstaged_edits_too(framed: Repo) -> None:
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "bundle")
    later = NEW_TEXT.replace("each morning", "each evening")
    framed.write("bundle/lamps.md", later)
    assert run(framed, "update", "--worktree").code == 0  # outlines of what is on disk, unstaged
    commit(framed)
    assert (framed.root / "bundle/lamps.md").read_text() == later


def test_a_framework_commit_of_one_path_heals_git_s_index(framed: Repo) -> None:
    framed.write("bundle/plain.md", "Another paragraph.\n")
    framed.git("add", "bundle")
    framed.write("bundle/lamps.md", NEW_TEXT)
    done = commit(framed, "bundle/lamps.md")
    assert done.code == 0, done.out + done.err
    assert_committed(framed, "M  bundle/plain.md")


def test_the_framework_refuses_to_push_a_stale_branch(framed: Repo) -> None:
    root = framed.root.parent / "remote.git"
    framed.git("init", "--quiet", "--bare", str(root))
    framed.git("remote", "add", "origin", str(root))
    make_stale(framed)
    done = framed.try_git("push", "origin", "main")
    assert done.code == 1
    assert "its index is stale" in done.out + done.err


EXISTING = """\
# Ours, with a comment.
default_stages: [pre-commit]
repos:
- repo: local
  hooks:
  - id: note
    name: note
    entry: sh -c 'echo ran >>.git/ran'
    language: system
    always_run: true
    pass_filenames: false
"""


def test_a_configuration_that_is_there_is_extended(framed: Repo) -> None:
    framed.write(".pre-commit-config.yaml", EXISTING)
    for _ in range(2):  # safe to repeat
        done = framed.call("init")
        assert done.code == 0, done.err
    text = (framed.root / ".pre-commit-config.yaml").read_text()
    added = "# Other hooks must leave the index alone.\nexclude: ^\\.kbindex/\n"
    added += "default_install_hook_types: [pre-commit, pre-merge-commit, post-commit, pre-push]\n"
    assert text.replace(added, "").startswith(EXISTING.rstrip())
    config = yaml.safe_load(text)
    assert len(config["repos"]) == 2
    assert config["default_stages"] == ["pre-commit"]
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "--all")
    done = commit(framed)
    assert done.code == 0, done.out + done.err
    assert (framed.root / ".git/ran").exists()
    assert_committed(framed)


def test_a_configuration_that_can_t_be_extended_safely_is_left_alone(framed: Repo) -> None:
    text = EXISTING + "ci:\n  autofix_prs: false\n"
    framed.write(".pre-commit-config.yaml", text)
    done = framed.call("init", "--hooks", "pre-commit")
    assert done.code == 2
    assert "entry: kbindex hook pre-commit" in done.err
    assert (framed.root / ".pre-commit-config.yaml").read_text() == text


def test_the_hooks_of_others_leave_the_index_alone(framed: Repo) -> None:
    fixer = (
        "import sys\n"
        "for name in sys.argv[1:]:\n"
        "    content = open(name, 'rb').read()\n"
        "    fixed = content.rstrip(b'\\n') + b'\\n'\n"
        "    if fixed != content: open(name, 'wb').write(fixed)\n"
    )
    framed.write("fix.py", fixer)
    entry = "  hooks:\n  - id: fix\n    name: fix\n    entry: python fix.py\n"
    framed.write(
        ".pre-commit-config.yaml",
        f"repos:\n- repo: local\n{entry}    language: system\n    types: [text]\n",
    )
    assert framed.call("init", "--hooks", "pre-commit").code == 0
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "--all")
    assert run(framed, "update").code == 0
    done = commit(framed)
    assert done.code == 0, done.out + done.err
    assert_committed(framed)


def test_without_staging_the_commit_stops_and_names_the_command(framed: Repo) -> None:
    config = framed.root / ".pre-commit-config.yaml"
    text = config.read_text().replace("hook pre-commit\n", "hook pre-commit --no-stage\n")
    config.write_text(text)
    framed.write("bundle/lamps.md", NEW_TEXT)
    framed.git("add", "--all")
    done = commit(framed)
    assert done.code == 1
    assert "git add -A -- .kbindex" in done.out + done.err
    assert ".kbindex" not in framed.git("diff", "--cached", "--name-only")
    framed.git("add", "-A", "--", ".kbindex")
    done = commit(framed)
    assert done.code == 0, done.out + done.err
    assert_committed(framed)


def test_a_partial_commit_through_the_framework_keeps_other_edits(framed: Repo) -> None:
    """The framework hides unstaged edits after a commit, too, while git's index is put right."""
    edit = "Just a paragraph. An edit of which there is no copy.\n"
    framed.write("bundle/plain.md", edit)
    framed.write("bundle/lamps.md", NEW_TEXT)
    done = commit(framed, "bundle/lamps.md")
    assert done.code == 0, done.err
    assert (framed.root / "bundle/plain.md").read_text() == edit
    assert framed.git("status", "--porcelain").splitlines() == [" M bundle/plain.md"]
    assert framed.call("check", "--strict").code == 0
    assert framed.call("check", "--rev", "HEAD").code == 0
