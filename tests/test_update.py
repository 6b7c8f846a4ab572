"""``kbindex update`` and ``checkpoint``: what is embedded, what changes, what survives a kill."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbindex.outline.file import parse_outline
from kbindex.storage.table import UnreadTableError
from testing.commands import Done, run_program
from testing.documents import NOTE
from testing.index import assert_fresh, forget_local_state, init_and_commit, n_embedded
from testing.kills import count_calls, killed_at, restored
from testing.repositories import Repo, Template, run

# Helpers


def update(repo: Repo, *options: str) -> Done:
    """Stage everything and update."""
    repo.git("add", "--all")
    return run(repo, "update", *options)


def documents(done: Done) -> str:
    """Return the part of a report that counts documents."""
    found = re.search(r"^documents: (.*)$", done.out, re.MULTILINE)
    assert found, done.out
    return found.group(1)


def staged(repo: Repo, folder: str = ".kbindex") -> dict[str, str]:
    """Return the object id of every staged file below ``folder``."""
    entries = repo.git("ls-files", "--stage", "-z", "--", folder, check=False).split("\0")
    return {path: meta.split()[1] for meta, path in (e.split("\t", 1) for e in entries if e)}


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, set[str]]:
    return {
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
        "changed": {path for path in before.keys() & after.keys() if before[path] != after[path]},
    }


def wal(repo: Repo) -> list[str]:
    return sorted(path for path in staged(repo) if path.endswith(".arrow"))


def live_keys(repo: Repo, path: str) -> list[str]:
    outline = (repo.root / f".kbindex/outline/{path}.tsv").read_text(encoding="utf-8")
    return [entry.key for entry in parse_outline(outline) if entry.key != "-"]


def prose(n_paragraphs: int, seed: int = 0, heading_every: int = 0) -> list[str]:
    """Return paragraphs of about 60 words, each different."""
    dice = random.Random(seed)
    words = [
        "the",
        "lamp",
        "keeper",
        "wrote",
        "every",
        "evening",
        "of",
        "wind",
        "tide",
        "oil",
        "rope",
    ]
    paragraphs = []
    for number in range(n_paragraphs):
        sentences = [
            " ".join(dice.choice(words) for _ in range(12)).capitalize()
            + f" {dice.randrange(10**6)}."
            for _ in range(5)
        ]
        heading = f"## Day {number}\n\n" if heading_every and number % heading_every == 0 else ""
        paragraphs.append(heading + " ".join(sentences))
    return paragraphs


def document(paragraphs: list[str], title: str = "Log") -> str:
    return f"# {title}\n\n" + "\n\n".join(paragraphs) + "\n"


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A copy of a repository with three documents and their index, committed; no hooks."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/log.md", document(prose(30)))
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        init_and_commit(repo)

    return from_template("built", fill)


# First build


def test_the_first_build_writes_a_table_and_no_wal_file(repo: Repo) -> None:
    repo.write("bundle/lamps.md", NOTE)
    repo.write("bundle/plain.md", "A paragraph.\n")
    done = update(repo)
    assert documents(done) == "2 added, 0 changed, 0 renamed, 0 deleted"
    assert n_embedded(done) == 6
    assert wal(repo) == []
    names = {path.split("/")[1] for path in staged(repo)}
    assert names == {
        ".gitattributes",
        "chunks.lance",
        "lineage",
        "outline",
        "recipe.json",
        "wal",
    }
    assert_fresh(repo)
    assert_fresh(repo, "--strict")


def test_without_a_bundle_the_message_says_what_to_do(repo: Repo) -> None:
    done = update(repo)
    assert done.code == 2
    assert "no Markdown file under 'bundle/'" in done.err
    assert "kbindex init --bundle" in done.err


@pytest.mark.parametrize("arguments", [("init",), ("update", "--worktree")])
def test_without_a_bundle_folder_the_message_says_what_to_do(
    repo: Repo, arguments: tuple[str, ...]
) -> None:
    done = run(repo, *arguments)
    assert done.code == 2
    assert "no Markdown file under 'bundle/'" in done.err


def test_a_repository_that_is_the_bundle_is_indexed(repo: Repo) -> None:
    repo.write("kbindex.toml", 'embedder = "hash"\nbundle = "."\n')
    repo.write("lamps.md", NOTE)
    assert documents(update(repo)).startswith("1 added")
    assert_fresh(repo)


def test_a_repository_that_is_the_bundle_is_found_and_indexed_from_disk(repo: Repo) -> None:
    repo.write("kbindex.toml", 'embedder = "hash"\nbundle = "."\n')
    repo.write("lamps.md", NOTE)
    assert update(repo).code == 0
    found = run(repo, "query", "paraffin", "--mode", "lexical")
    assert run(repo, "update", "--worktree").code == 0
    assert found.code == 0
    assert "lamps.md" in found.out


def test_a_document_without_text_is_indexed_too(repo: Repo) -> None:
    repo.write("bundle/empty.md", "")
    repo.write("bundle/blank.md", "\n \n")
    repo.write("bundle/lamps.md", NOTE)
    assert update(repo).code == 0
    assert_fresh(repo)


# What an edit costs


def test_nothing_to_do_writes_nothing(built: Repo) -> None:
    def state() -> dict[Path, int]:
        files = [f for f in (built.root / ".kbindex").rglob("*") if f.is_file()]
        return {f: f.stat().st_mtime_ns for f in [*files, built.root / ".git/index"]}

    before = state()
    done = run(built, "update")
    assert n_embedded(done) == 0
    assert documents(done) == "0 added, 0 changed, 0 renamed, 0 deleted"
    assert state() == before
    assert built.git("status", "--porcelain") == ""


@pytest.mark.parametrize("number", [0, 7, 15, 29])
def test_an_edited_sentence_embeds_at_most_three_chunks(built: Repo, number: int) -> None:
    paragraphs = prose(30)
    paragraphs[number] = paragraphs[number].replace(".", " and a new clause.", 1)
    built.write("bundle/log.md", document(paragraphs))
    before = staged(built)
    done = update(built)
    assert 1 <= n_embedded(done) <= 3
    changed = changes(before, staged(built))
    assert changed["changed"] == {".kbindex/outline/log.md.tsv"}
    assert changed["removed"] == set()
    assert len(changed["added"]) == 1
    assert changed["added"] == set(wal(built))
    assert_fresh(built)
    assert_fresh(built, "--strict")


def test_the_same_edit_in_two_clones_makes_the_same_files(built: Repo, tmp_path: Path) -> None:
    shutil.copytree(built.root, tmp_path / "other", symlinks=True)
    other = Repo(tmp_path / "other", built.environment)
    forget_local_state(other)
    for clone in (built, other):
        clone.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
        update(clone)
    assert staged(built) == staged(other)


def test_a_rename_embeds_nothing_and_is_reported(built: Repo) -> None:
    built.git("mv", "bundle/log.md", "bundle/keeper log.md")
    before = staged(built)
    done = update(built)
    assert n_embedded(done) == 0
    assert documents(done) == "0 added, 0 changed, 1 renamed, 0 deleted"
    changed = changes(before, staged(built))
    assert changed["added"] == {".kbindex/outline/keeper log.md.tsv"}
    assert changed["removed"] == {".kbindex/outline/log.md.tsv"}
    assert changed["changed"] == set()
    assert_fresh(built)


def test_a_renamed_folder_embeds_nothing(built: Repo) -> None:
    (built.root / "bundle/deep/er").mkdir(parents=True)
    for name in ("log", "lamps", "plain"):
        built.git("mv", f"bundle/{name}.md", f"bundle/deep/er/{name}.md")
    done = update(built)
    assert n_embedded(done) == 0
    assert documents(done) == "0 added, 0 changed, 3 renamed, 0 deleted"
    assert not (built.root / ".kbindex/outline/log.md.tsv").exists()
    assert_fresh(built)


def test_a_deleted_document_leaves_nothing_live(built: Repo) -> None:
    built.git("rm", "--quiet", "bundle/log.md")
    done = update(built)
    assert n_embedded(done) == 0
    assert documents(done) == "0 added, 0 changed, 0 renamed, 1 deleted"
    assert not (built.root / ".kbindex/outline/log.md.tsv").exists()
    assert ".kbindex/outline/log.md.tsv" not in staged(built)
    assert_fresh(built)
    found = run(built, "query", "keeper wrote every evening", "--format", "json")
    assert "bundle/log.md" not in {hit["path"] for hit in found.json()["hits"]}


def test_the_last_document_can_be_deleted(built: Repo) -> None:
    built.git("rm", "--quiet", "-r", "bundle")
    done = update(built)
    assert documents(done) == "0 added, 0 changed, 0 renamed, 3 deleted"
    assert [path for path in staged(built) if "/outline/" in path] == []
    assert_fresh(built)
    built.write("bundle/lamps.md", NOTE)
    assert n_embedded(update(built)) == 0
    assert_fresh(built)


def test_two_equal_documents_that_go_are_counted_as_two(built: Repo) -> None:
    for name in ("one", "two"):
        built.write(f"bundle/{name}.md", "# Same\n\nThe same text.\n")
    update(built)
    built.git("rm", "--quiet", "--force", "bundle/one.md", "bundle/two.md")
    assert documents(update(built)) == "0 added, 0 changed, 0 renamed, 2 deleted"


def test_a_reverted_document_finds_its_old_rows(built: Repo) -> None:
    before = staged(built, ".kbindex/outline")
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    update(built)
    built.commit()
    forget_local_state(built)  # the rows, not the cache
    built.write("bundle/lamps.md", NOTE)
    n_files = len(wal(built))
    assert n_embedded(update(built)) == 0
    assert staged(built, ".kbindex/outline") == before
    assert len(wal(built)) == n_files + 1  # the old row again: nothing had needed it
    assert_fresh(built)


def test_from_twelve_chunks_to_five_leaves_exactly_five(built: Repo) -> None:
    def sections(n_sections: int) -> str:
        return "".join(f"# S{n}\n\nText of section {n}.\n\n" for n in range(n_sections))

    built.write("bundle/sections.md", sections(12))
    update(built)
    assert len(live_keys(built, "sections.md")) == 12
    built.write("bundle/sections.md", sections(5))
    assert n_embedded(update(built)) <= 1  # the last one ends otherwise
    assert len(live_keys(built, "sections.md")) == 5
    assert_fresh(built)
    assert run(built, "checkpoint").code == 0
    found = run(built, "query", "section 11", "--per-doc", "99", "-k", "99", "--format", "json")
    hits = [hit for hit in found.json()["hits"] if hit["path"] == "bundle/sections.md"]
    assert len(hits) == 5


def test_equal_text_in_two_documents_is_embedded_once(built: Repo) -> None:
    text = "# Shared\n\nThe same passage in two places.\n"
    built.write("bundle/one.md", text)
    built.write("bundle/two.md", text)
    done = update(built)
    assert n_embedded(done) == 1
    assert live_keys(built, "one.md") == live_keys(built, "two.md")
    built.git("rm", "--quiet", "--force", "bundle/one.md")
    assert n_embedded(update(built)) == 0
    assert_fresh(built)


# What counts


def test_the_staged_text_counts_not_the_work_tree(built: Repo) -> None:
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "colza oil"))
    built.git("add", "bundle/lamps.md")
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "electricity"))
    built.write("bundle/unstaged.md", "Not staged.\n")
    assert run(built, "update").code == 0
    built.git("commit", "--quiet", "--message", "staged part")
    assert_fresh(built, "--rev", "HEAD")
    assert "electricity" in (built.root / "bundle/lamps.md").read_text()
    outlines = {path for path in staged(built) if "/outline/" in path}
    assert ".kbindex/outline/unstaged.md.tsv" not in outlines
    found = run(built, "query", "colza", "--mode", "lexical")
    assert "bundle/lamps.md" in found.out
    assert run(built, "query", "electricity", "--mode", "lexical").code == 1


def test_an_intended_addition_is_no_document_for_check_nor_query(built: Repo) -> None:
    built.write("bundle/intended.md", "Some day.\n")
    built.git("add", "--intent-to-add", "bundle/intended.md")
    assert documents(run(built, "update")).startswith("0 added")
    assert_fresh(built)
    found = run(built, "query", "lenses", "--format", "json").json()
    assert found["retrieval"]["coverage"]["documents"] == 3


def test_a_link_in_the_bundle_is_no_document(built: Repo) -> None:
    (built.root / "bundle/link.md").symlink_to("lamps.md")
    assert documents(update(built)).startswith("0 added")
    assert_fresh(built)


def test_the_work_tree_counts_when_asked_for_and_nothing_is_staged(built: Repo) -> None:
    built.write("bundle/new.md", "# New\n\nOnly on disk.\n")
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    (built.root / "bundle/plain.md").unlink()
    before = staged(built)
    done = run(built, "update", "--worktree")
    assert documents(done) == "1 added, 1 changed, 0 renamed, 1 deleted"
    assert "git add -A -- .kbindex" in done.err
    assert staged(built) == before
    assert (built.root / ".kbindex/outline/new.md.tsv").exists()
    assert not (built.root / ".kbindex/outline/plain.md.tsv").exists()
    built.git("add", "--all")
    assert_fresh(built)


def test_the_work_tree_s_index_can_be_staged_at_once(built: Repo) -> None:
    built.write("bundle/new.md", "# New\n\nOnly on disk.\n")
    assert run(built, "update", "--worktree", "--stage").code == 0
    assert ".kbindex/outline/new.md.tsv" in staged(built)
    built.git("add", "bundle")
    assert_fresh(built)


def test_without_staging_the_files_are_written_and_the_command_printed(built: Repo) -> None:
    built.write("bundle/new.md", "# New\n\nText.\n")
    before = staged(built)
    done = update(built, "--no-stage")
    assert done.code == 0
    assert staged(built) == before
    (command,) = re.findall(r"git (add -A -- \.kbindex)", done.err)
    built.git(*command.split())
    assert_fresh(built)


def test_a_dry_run_says_the_same_and_changes_nothing(built: Repo) -> None:
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    built.write("bundle/new.md", "# New\n\nText.\n")
    built.git("add", "--all")
    before = staged(built), built.git("status", "--porcelain")
    dry = run(built, "update", "--dry-run")
    assert (staged(built), built.git("status", "--porcelain")) == before
    assert run(built, "check").code == 1
    done = run(built, "update")
    assert n_embedded(dry) == n_embedded(done) == 2
    assert documents(dry) == documents(done) == "1 added, 1 changed, 0 renamed, 0 deleted"


# Documents that can't be indexed


def test_a_document_that_is_not_utf_8_is_named_by_line_and_the_rest_indexed(built: Repo) -> None:
    old_outline = staged(built)[".kbindex/outline/lamps.md.tsv"]
    built.write("bundle/lamps.md", NOTE.encode().replace(b"paraffin", b"paraff\xefn"))
    built.write("bundle/new.md", "# New\n\nText.\n")
    done = update(built)
    assert done.code == 1
    line = NOTE[: NOTE.index("paraffin")].count("\n") + 1
    assert f"bundle/lamps.md:{line}: it is not UTF-8" in done.err
    assert documents(done) == "1 added, 0 changed, 0 renamed, 0 deleted"
    assert staged(built)[".kbindex/outline/lamps.md.tsv"] == old_outline
    assert ".kbindex/outline/new.md.tsv" in staged(built)

    checked = run(built, "check", "--format", "json").json()
    assert [(p["rule"], p["path"]) for p in checked["problems"]] == [
        ("unreadable-document", "bundle/lamps.md")
    ]
    built.write("bundle/lamps.md", NOTE)
    assert n_embedded(update(built)) == 0
    assert_fresh(built)


def test_an_unreadable_document_does_not_let_a_recipe_advance(built: Repo) -> None:
    built.write("bundle/bad.md", b"\xff\n")
    built.write("kbindex.toml", 'embedder = "hash"\nchunk_tokens = 64\n')
    before = staged(built)
    done = update(built)
    assert done.code == 1
    assert "bundle/bad.md:1: it is not UTF-8" in done.err
    assert staged(built) == before


# Recipes


def test_a_changed_recipe_replaces_the_index_at_once_and_reuses_vectors(built: Repo) -> None:
    built.write("bundle/more.md", "# More\n\nText.\n")
    update(built)
    built.commit()
    built.write("kbindex.toml", 'embedder = "hash"\nchunk_tokens = 64\n')
    stale = run(built, "check")
    built.git("add", "--all")
    assert stale.code == 0
    assert run(built, "check").code == 3

    done = run(built, "update")
    assert "recipe: chunk_tokens: 256 → 64" in done.out
    n_short = 5 + 1 + 1  # the passages of all documents but the long one stay as they are
    n_long = len(live_keys(built, "log.md"))
    assert n_embedded(done) == n_long
    assert f"{n_short + n_long} in all, 0 kept, {n_short} reused" in done.out
    assert len(wal(built)) == 2  # vectors of one embedder stay comparable: the table stands
    assert_fresh(built)
    assert_fresh(built, "--strict")
    built.commit()
    assert n_embedded(run(built, "update")) == 0


@pytest.mark.parametrize("setting", ['bundle = "dokcs"', 'exclude = ["**"]', 'include = ["*.txt"]'])
def test_a_setting_that_loses_sight_of_the_bundle_is_refused(built: Repo, setting: str) -> None:
    built.write("kbindex.toml", f'embedder = "hash"\n{setting}\n')
    built.git("add", "--all")
    done = run(built, "update")
    assert done.code == 1
    assert "the index would be emptied" in done.err
    assert built.files(".kbindex/outline")


def test_a_recipe_set_back_embeds_nothing(built: Repo) -> None:
    for tokens in (64, 256):
        built.write("kbindex.toml", f'embedder = "hash"\nchunk_tokens = {tokens}\n')
        done = update(built)
    assert n_embedded(done) == 0
    assert_fresh(built)


# Local state


def test_a_deleted_cache_costs_nothing_that_is_committed(built: Repo) -> None:
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    update(built)
    expected = staged(built)
    built.commit()
    forget_local_state(built)
    done = run(built, "update")
    assert n_embedded(done) == 0
    assert staged(built) == expected
    assert_fresh(built)


def test_a_damaged_cache_is_replaced(built: Repo) -> None:
    for file in (built.root / ".git/kbindex").glob("cache-*.sqlite"):
        file.write_bytes(b"no database at all" * 100)
    built.write("bundle/new.md", "# New\n\nText.\n")
    assert n_embedded(update(built)) == 1
    assert_fresh(built)


def as_mortal(*command: str) -> list[str]:
    """Return a command that permission bits bind, even where the tests run as root."""
    if os.geteuid() != 0:
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("root is bound by no permissions here")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]


def run_as_mortal(repo: Repo, *arguments: str) -> Done:
    command = as_mortal(sys.executable, "-m", "kbindex", *arguments)
    environment = repo.environment | {"TMPDIR": str(repo.root.parent)}
    return run_program(*command, cwd=repo.root, environment=environment)


def test_a_cache_that_can_t_be_written_does_not_stop_an_update(built: Repo) -> None:
    built.write("bundle/new.md", "# New\n\nText.\n")
    built.git("add", "--all")
    local = built.root / ".git/kbindex"
    for file in local.iterdir():
        file.chmod(0o444)
    local.chmod(0o555)
    done = run_as_mortal(built, "update")
    local.chmod(0o755)
    assert done.code == 0, done.err
    assert_fresh(built)


def test_a_read_only_repository_can_be_checked(built: Repo) -> None:
    folders = [built.root / ".git", *(f for f in (built.root / ".git").rglob("*") if f.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    done = run_as_mortal(built, "check")
    for folder in folders:
        folder.chmod(0o755)
    assert done.code == 0, done.err
    assert "fresh" in done.out


def test_a_read_only_repository_can_be_queried(built: Repo) -> None:
    forget_local_state(built)
    folders = [built.root / ".git", *(f for f in (built.root / ".git").rglob("*") if f.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    done = run_as_mortal(built, "query", "lenses")
    for folder in folders:
        folder.chmod(0o755)
    assert done.code == 0, done.err
    assert "bundle/lamps.md" in done.out


# Killed, or not alone


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_update_killed_at_any_call_of_git_leaves_the_old_index_or_the_new(
    built: Repo, tmp_path: Path, when: str
) -> None:
    head = built.git("rev-parse", "HEAD").strip()

    def edit() -> None:
        built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
        built.git("mv", "bundle/plain.md", "bundle/deep.md")
        built.git("add", "--all")

    edit()
    old = staged(built)
    assert run(built, "update").code == 0
    new = staged(built)
    restored(built, head)
    edit()
    n_calls = count_calls(built, tmp_path, "update")
    seen = set()
    for call in [3, *range(n_calls - 8, n_calls + 1)]:  # it writes at the end
        restored(built, head)
        edit()
        assert killed_at(built, tmp_path, call, when, "update") == -signal.SIGKILL
        assert staged(built) in (old, new)
        is_old = staged(built) == old
        seen.add(is_old)
        if is_old:
            assert run(built, "check").code == 1
        assert n_embedded(run(built, "update")) <= 1
        assert staged(built) == new
        assert built.git("diff", "--name-only") == ""
    assert_fresh(built)
    assert seen == {True, False}


def test_a_killed_checkpoint_leaves_the_old_index_or_the_new(built: Repo, tmp_path: Path) -> None:
    built.write("bundle/new.md", "# New\n\nText.\n")
    assert update(built).code == 0
    head = built.commit()
    assert run(built, "checkpoint").code == 0
    restored(built, head)
    n_calls = count_calls(built, tmp_path, "checkpoint")
    for call in range(n_calls - 6, n_calls + 1):
        restored(built, head)
        assert killed_at(built, tmp_path, call, "after", "checkpoint") == -signal.SIGKILL
        checked = run(built, "check")
        assert checked.code == 0 or "not what is staged" in checked.out, checked.out
        assert run(built, "checkpoint").code == 0
        assert wal(built) == []
        assert_fresh(built)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_commit_killed_with_its_hook_leaves_the_old_state_or_the_new(
    built: Repo, share: float
) -> None:
    assert run(built, "init", "--hooks", "native").code == 0
    built.git("commit", "--quiet", "--allow-empty", "--message", "warm up")
    head = built.git("rev-parse", "HEAD").strip()

    def commit(number: int) -> subprocess.Popen[bytes]:
        built.write("bundle/new.md", f"# New\n\nText {number}.\n")
        built.git("add", "--all")
        return subprocess.Popen(
            ["git", "commit", "--quiet", "--message", "new"],
            cwd=built.root,
            env=built.environment | {"TMPDIR": str(built.root.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    began = time.monotonic()
    assert commit(1).wait() == 0
    duration = time.monotonic() - began
    built.git("reset", "--quiet", "--hard", head)

    process = commit(2)
    time.sleep(duration * share)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for lock in (built.root / ".git").rglob("*.lock"):
        lock.unlink()  # of git's index or of a ref: git leaves them, and says so
    assert run(built, "check", "--rev", "HEAD").code == 0
    assert run(built, "check").code in (0, 1, 3)
    assert run(built, "update").code == 0
    assert_fresh(built)
    built.git("commit", "--quiet", "--allow-empty", "--message", "again")
    assert_fresh(built, "--rev", "HEAD")
    assert built.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "verbs", [("update", "update"), ("checkpoint", "checkpoint"), ("update", "checkpoint")]
)
def test_two_at_once_take_turns(built: Repo, verbs: tuple[str, str]) -> None:
    built.write("bundle/new.md", "# New\n\nText.\n")
    update(built)
    if "update" in verbs:
        built.commit()
        built.write("bundle/newer.md", "# Newer\n\nText.\n")
        built.git("add", "--all")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "kbindex", verb],
            cwd=built.root,
            env=built.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for verb in verbs
    ]
    for process in processes:
        _, words = process.communicate(timeout=60)
        assert process.returncode == 0, words
    assert_fresh(built)
    assert built.git("diff", "--name-only") == ""
    expected = {"update": 1 + (verbs[0] == "update"), "checkpoint": 0}
    assert len(wal(built)) <= expected[verbs[1]] + ("update" in verbs)


# Checkpoints


def test_a_checkpoint_folds_the_wal_and_embeds_nothing(built: Repo) -> None:
    for number in range(3):
        built.write(f"bundle/new{number}.md", f"# New\n\nText {number}.\n")
        update(built)
        built.commit()
    assert len(wal(built)) == 3
    before = staged(built)
    done = run(built, "checkpoint")
    assert done.code == 0
    assert "folded" in done.out
    changed = changes(before, staged(built))
    assert changed["removed"] == {p for p in before if p.endswith(".arrow")}
    assert changed["changed"] == {
        ".kbindex/chunks.lance/_versions/latest_version_hint.json",
        ".kbindex/lineage",
    }
    assert {path.split("/")[2] for path in changed["added"]} == {
        "_transactions",
        "_versions",
        "data",
    }
    assert ".kbindex/wal/README" in staged(built)
    assert_fresh(built)
    forget_local_state(built)
    assert n_embedded(run(built, "update")) == 0
    assert_fresh(built)


def test_a_checkpoint_of_an_empty_wal_changes_nothing(built: Repo) -> None:
    before = staged(built)
    done = run(built, "checkpoint")
    assert done.code == 0
    assert done.out == "the WAL is empty\n"
    assert staged(built) == before
    assert built.git("status", "--porcelain") == ""


def test_a_second_checkpoint_changes_nothing(built: Repo) -> None:
    built.write("bundle/new.md", "# New\n\nText.\n")
    update(built)
    assert run(built, "checkpoint").code == 0
    before = staged(built)
    assert "empty" in run(built, "checkpoint").out
    assert staged(built) == before


def test_a_checkpoint_during_a_merge_is_refused(built: Repo) -> None:
    built.git("checkout", "--quiet", "-b", "side")
    built.write("bundle/side.md", "Side.\n")
    update(built)
    built.commit()
    built.git("checkout", "--quiet", "main")
    built.git("commit", "--quiet", "--allow-empty", "--message", "main")
    built.git("merge", "--quiet", "--no-commit", "side", check=False)
    before = staged(built)
    done = run(built, "checkpoint")
    assert done.code == 1
    assert "merge" in done.err
    assert staged(built) == before


def test_an_update_never_checkpoints(built: Repo) -> None:
    built.write("kbindex.toml", 'embedder = "hash"\ncheckpoint_every = 1\n')
    built.write("bundle/new.md", "# New\n\nText.\n")
    done = update(built)
    assert "checkpoint" not in done.out
    assert len(wal(built)) == 1


@pytest.mark.parametrize(
    ("every", "branch", "expected"),
    [
        (3, "main", [1, 2, 0, 1]),
        (1, "main", [0, 0]),
        (0, "main", [1, 2]),
        (1, "feature", [1, 2]),
        (1, "detached", [1, 2]),
    ],
)
def test_the_hook_checkpoints_when_due_and_only_on_the_default_branch(
    built: Repo, every: int, branch: str, expected: list[int]
) -> None:
    built.write("kbindex.toml", f'embedder = "hash"\ncheckpoint_every = {every}\n')
    built.commit()
    if branch == "feature":
        built.git("checkout", "--quiet", "-b", branch)
    elif branch == "detached":
        built.git("checkout", "--quiet", "--detach")
    n_files = []
    for number in range(len(expected)):
        built.write(f"bundle/new{number}.md", f"# New\n\nText {number}.\n")
        built.git("add", "--all")
        assert run(built, "hook", "pre-commit").code == 0
        built.git("commit", "--quiet", "--message", "new")
        n_files.append(len(wal(built)))
        assert_fresh(built, "--rev", "HEAD")
    assert n_files == expected


def test_the_hook_does_not_checkpoint_where_two_branches_could_be_the_default(
    built: Repo,
) -> None:
    built.git("branch", "master")
    built.write("kbindex.toml", 'embedder = "hash"\ncheckpoint_every = 1\n')
    built.write("bundle/new.md", "# New\n\nText.\n")
    built.git("add", "--all")
    assert run(built, "hook", "pre-commit").code == 0
    assert len(wal(built)) == 1


def test_a_repeated_update_folds_its_own_wal_file(built: Repo) -> None:
    for number in range(3):
        built.write("bundle/new.md", f"# New\n\nText {number}.\n")
        assert update(built).code == 0
        assert len(wal(built)) == 1
    assert_fresh(built)


# Odd repositories


def test_a_hidden_bundle_is_updated_after_it_was_fresh(repo: Repo) -> None:
    repo.write("kbindex.toml", 'embedder = "hash"\nbundle = ".notes"\n')
    repo.write(".notes/a.md", "# A\n\nText.\n")
    assert update(repo).code == 0
    repo.commit()
    assert run(repo, "hook", "pre-commit").code == 0
    repo.write(".notes/a.md", "# A\n\nOther text.\n")
    repo.git("add", "--all")
    assert run(repo, "hook", "pre-commit").code == 0
    assert_fresh(repo)


def test_a_sha256_repository_can_lose_a_document(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    repo = Repo(tmp_path / "sha256", environment)
    repo.root.mkdir()
    repo.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repo.write("kbindex.toml", 'embedder = "hash"\n')
    repo.write("bundle/a.md", "# A\n\nText.\n")
    repo.write("bundle/b.md", "# B\n\nText.\n")
    assert update(repo).code == 0
    assert_fresh(repo)
    repo.commit()
    repo.git("mv", "bundle/a.md", "bundle/c.md")
    assert documents(update(repo)) == "0 added, 0 changed, 1 renamed, 0 deleted"
    assert_fresh(repo)


def test_an_index_that_was_only_touched_is_fresh_and_nothing_is_stale(built: Repo) -> None:
    for path in (".kbindex/recipe.json", "bundle/lamps.md"):
        os.utime(built.root / path, (1, 1))
    checked = run(built, "check")
    found = run(built, "query", "lenses", "--format", "json").json()
    assert checked.code == 0, checked.out
    assert found["index"]["stale_documents"] == 0


def test_what_a_killed_compaction_left_in_the_work_tree_goes_with_the_next_update(
    built: Repo,
) -> None:
    for part in ("chunks.lance/data/old.lance", "outline/gone.md.tsv", "wal/old.arrow"):
        built.write(f".kbindex/{part}", "left over")
    built.write(".kbindex/notes.txt", "a user's own")
    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    built.git("add", "bundle")
    assert run(built, "update").code == 0
    assert built.git("ls-files", "--others").split() == [".kbindex/notes.txt"]


def test_a_table_that_cannot_be_read_back_leaves_its_rows_in_the_wal(
    built: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> None:
        raise UnreadTableError("an encoding of tomorrow")

    built.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    assert update(built).code == 0
    monkeypatch.setattr("kbindex.storage.table.append_rows", unread)
    done = run(built, "checkpoint")
    assert (done.code, done.out) == (0, "the rows stay in the WAL\n"), done.err
    assert "an encoding of tomorrow" in done.err
    assert_fresh(built)
    monkeypatch.undo()
    assert run(built, "checkpoint").out == "the WAL was folded into the table\n"
    assert run(built, "checkpoint").out == "the WAL is empty\n"
    assert_fresh(built)
