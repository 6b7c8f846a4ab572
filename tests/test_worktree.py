"""Writing in a work tree that a stranger has prepared: no link is followed, no file is lost."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from kbindex.core.errors import UnsafePlaceError
from kbindex.git import worktree
from kbindex.git.client import Git
from kbindex.git.worktree import read_file, remove_file, require_plain, write_file
from testing.index import init_and_commit, update_and_commit
from testing.repositories import Repo, Template, run


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A repository with a table, a WAL file and a staged edit that is not yet in the index."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", "# Lamps\n\nThe lamps burn paraffin.\n")
        repo.write("bundle/deep/er/horn.md", "# Horn\n\nThe horn sounds twice.\n")
        init_and_commit(repo)
        repo.write("bundle/more.md", "# More\n\nAnother text.\n")
        update_and_commit(repo)
        repo.write("bundle/lamps.md", "# Lamps\n\nThe lamps burn oil.\n")
        repo.git("rm", "--quiet", "bundle/deep/er/horn.md")
        repo.git("add", "--all")

    return from_template("prepared", fill)


def everything_below(folder: Path) -> dict[str, bytes | str | None]:
    def content(file: Path) -> bytes | str | None:
        return str(file.readlink()) if file.is_symlink() else file.read_bytes()

    return {str(f.relative_to(folder)): content(f) for f in folder.rglob("*") if not f.is_dir()}


def put_outside(repo: Repo, path: str, outside: Path) -> None:
    """Move what stands at ``path`` out of the repository and leave a link in its place."""
    place = repo.root / path
    outside.mkdir()
    shutil.move(place, outside / place.name)
    place.symlink_to(outside / place.name)


WRITERS = ("update --worktree", "update", "checkpoint", "hook pre-commit", "init --hooks none")
PLACES = [
    ".kbindex",
    ".kbindex/outline",
    ".kbindex/outline/deep",
    ".kbindex/wal",
    ".kbindex/wal/README",
    ".kbindex/recipe.json",
    ".kbindex/outline/lamps.md.tsv",
    ".kbindex/chunks.lance",
    ".kbindex/chunks.lance/_versions",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_verb_writes_or_removes_anything_through_a_link(
    built: Repo, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    put_outside(built, place, outside)
    before, inside = everything_below(outside), everything_below(built.root / ".kbindex")
    staged = built.git("ls-files", "--stage")
    codes = {}
    for verb in WRITERS:
        done = run(built, *verb.split())
        codes[verb] = done.code
        assert done.code in (0, 2), (verb, done)
        if done.code == 2:
            assert f"'{place}' in the work tree is a symbolic link" in done.err
            assert f"remedy: rm -- '{place}'" in done.err
            assert built.git("ls-files", "--stage") == staged
            assert everything_below(built.root / ".kbindex") == inside
        assert everything_below(outside) == before, verb
        inside = everything_below(built.root / ".kbindex")
        staged = built.git("ls-files", "--stage")
    assert 2 in codes.values(), codes
    assert run(built, "check").code == 3
    assert everything_below(outside) == before

    (built.root / place).unlink()  # the remedy
    assert run(built, "update").code == 0
    built.commit("mended", "--no-verify")
    assert run(built, "check").code == 0, run(built, "check").out
    assert everything_below(outside) == before


def test_a_link_that_is_committed_in_the_index_is_taken_out_and_what_it_names_stays(
    built: Repo, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    put_outside(built, ".kbindex/wal", outside)
    built.commit("a gift", "--no-verify")
    before = everything_below(outside)
    assert run(built, "check").code == 3
    done = run(built, "update")
    assert done.code == 0, done.err
    assert not (built.root / ".kbindex/wal").is_symlink()
    assert run(built, "check").code == 0
    assert everything_below(outside) == before


@pytest.mark.parametrize("place", [".kbindex", ".kbindex/outline", ".kbindex/recipe.json"])
def test_what_git_checks_out_replaces_a_link_and_not_what_it_names(
    built: Repo, tmp_path: Path, place: str
) -> None:
    """What is relied on where a link is put in place after the look (git 2.39)."""
    outside = tmp_path / "outside"
    put_outside(built, place, outside)
    before = everything_below(outside)
    git = Git(built.root)
    git.index.check_out(git.index.changed_in_worktree(".kbindex"))
    assert not (built.root / place).is_symlink()
    assert git.index.changed_in_worktree(".kbindex") == []
    assert everything_below(outside) == before


@pytest.mark.parametrize("index_dir", ["notes.txt", "notes.txt/index", "src/main.c"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_file_of_the_user_s_is_never_replaced_by_the_index(
    built: Repo, index_dir: str, is_committed: bool
) -> None:
    for path in ("notes.txt", "src/main.c"):
        built.write(path, "the only copy")
    built.write("kbindex.toml", f'embedder = "hash"\nindex_dir = "{index_dir}"\n')
    built.git("add", "--all") if is_committed else built.git("add", "kbindex.toml")
    above = index_dir.endswith("index")
    for verb in ("update", "update --worktree", "hook pre-commit", "init --hooks none"):
        done = run(built, *verb.split())
        assert done.code == (3 if verb.startswith("hook") and is_committed and not above else 2), (
            verb,
            done,
        )
        assert "folder" in done.err
        assert (built.root / "notes.txt").read_text() == "the only copy"
        assert (built.root / "src/main.c").read_text() == "the only copy"
        if is_committed:
            assert "notes.txt\n" in built.git("ls-files")


@pytest.mark.parametrize("mode", ["120000", "160000"])
def test_a_link_or_submodule_above_the_index_stays_staged(built: Repo, mode: str) -> None:
    oid = built.git("rev-parse", "HEAD").strip()
    if mode == "120000":
        oid = built.git("hash-object", "-w", "--stdin", stdin=b"bundle").strip()
    built.write("kbindex.toml", 'embedder = "hash"\nindex_dir = "vendor/index"\n')
    built.git("add", "kbindex.toml")
    built.git("update-index", "--add", "--cacheinfo", f"{mode},{oid},vendor")
    done = run(built, "update")
    assert (done.code, "'vendor' is no folder" in done.err) == (2, True), done.err
    assert built.git("ls-files", "vendor") == "vendor\n"


# git's hooks, and the framework's configuration


def test_hooks_are_not_written_through_links(built: Repo, tmp_path: Path) -> None:
    hooks = built.root / ".git/hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    hooks.mkdir()
    theirs = tmp_path / "theirs"
    theirs.write_text("#!/bin/sh\nexit 0\n")
    theirs.chmod(0o755)
    (hooks / "pre-commit").symlink_to(theirs)
    (hooks / "post-commit").symlink_to(tmp_path / "nowhere")
    ours = tmp_path / "ours"
    assert run(built, "init", "--hooks", "native").code == 0
    shutil.move(hooks / "pre-push", ours)
    (hooks / "pre-push").symlink_to(ours)
    ours.write_text(ours.read_text() + "# kept\n")
    assert run(built, "init", "--hooks", "native").code == 0
    assert theirs.read_text() == "#!/bin/sh\nexit 0\n"
    assert ours.read_text().endswith("# kept\n")
    assert not (tmp_path / "nowhere").exists()
    assert (hooks / "pre-commit.before-kbindex").readlink() == theirs
    assert (hooks / "post-commit.before-kbindex").is_symlink()
    for name in ("pre-commit", "post-commit", "pre-push", "pre-merge-commit"):
        assert stat.S_ISREG((hooks / name).lstat().st_mode)
        assert os.access(hooks / name, os.X_OK)
    assert built.git("commit", "--quiet", "-m", "hooks run") == ""


def test_a_second_hook_that_would_have_to_be_kept_is_not_lost(built: Repo) -> None:
    hooks = built.root / ".git/hooks"
    assert run(built, "init", "--hooks", "native").code == 0
    (hooks / "pre-commit.before-kbindex").write_text("first")
    (hooks / "pre-commit").write_text("second")
    done = run(built, "init", "--hooks", "native")
    assert done.code == 2
    assert "two hooks are there to be kept" in done.err
    assert (hooks / "pre-commit.before-kbindex").read_text() == "first"
    assert (hooks / "pre-commit").read_text() == "second"


@pytest.mark.parametrize("link", ["hooks", "hooks/pre-push"])
def test_a_hooks_folder_of_the_repository_leads_nowhere_else(
    built: Repo, tmp_path: Path, link: str
) -> None:
    built.git("config", "core.hooksPath", "hooks")
    outside = tmp_path / "outside"
    outside.mkdir()
    (built.root / link).parent.mkdir(exist_ok=True)
    (built.root / link).symlink_to(outside)
    done = run(built, "init", "--hooks", "native")
    assert done.code == 2
    assert f"'{link}' in the work tree is a symbolic link" in done.err
    assert list(outside.iterdir()) == []


BOMB = "a: &a [x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join(['*' + b] * 9)}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("content", [None, BOMB + "repos: []\n", "[" * 1200, "#" * 40_000])
def test_the_framework_s_configuration_is_extended_safely_or_by_hand(
    built: Repo, tmp_path: Path, content: str | None
) -> None:
    file = built.root / ".pre-commit-config.yaml"
    outside = tmp_path / "outside.yaml"
    outside.write_text("repos: []\n")
    file.symlink_to(outside) if content is None else file.write_text(content)
    done = run(built, "init", "--hooks", "pre-commit")
    assert done.code == 2, done
    assert "can't be extended safely" in done.err
    assert "kbindex hook pre-commit" in done.err
    assert outside.read_text() == "repos: []\n"


# The functions


def test_files_are_written_whole_and_keep_their_permissions(tmp_path: Path) -> None:
    write_file(tmp_path, "a/b/\udcff.txt", b"one")
    assert read_file(tmp_path, "a/b/\udcff.txt") == b"one"
    assert read_file(tmp_path, "a/b/\udcff.txt", 2) == b"on"
    (tmp_path / "mode").write_bytes(b"")
    (tmp_path / "mode").chmod(0o640)
    write_file(tmp_path, "mode", b"two")
    assert stat.S_IMODE((tmp_path / "mode").stat().st_mode) == 0o640
    write_file(tmp_path, "mode", b"two", executable=True)
    assert os.access(tmp_path / "mode", os.X_OK)
    write_file(tmp_path, "x" * 255, b"a name as long as may be")
    assert {file.name for file in tmp_path.iterdir()} == {"a", "mode", "x" * 255}
    assert remove_file(tmp_path, "a/b/\udcff.txt")
    assert not (tmp_path / "a").exists()
    assert not remove_file(tmp_path, "a/b/\udcff.txt")
    assert read_file(tmp_path, "a/b/none") is None


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", ".git/x", ".GIT/config", "", "a//b"])
def test_no_path_leads_elsewhere(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for act in (
        lambda: write_file(root, path, b""),
        lambda: remove_file(root, path),
        lambda: read_file(root, path),
    ):
        with pytest.raises(UnsafePlaceError):
            act()
    assert list(tmp_path.iterdir()) == [root]


def test_a_folder_that_is_swapped_for_a_link_after_the_look_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "x").write_text("precious")
    (root / "a").symlink_to(outside)
    monkeypatch.setattr(worktree._Place, "require_folder", lambda _: True)
    for act in (
        lambda: write_file(root, "a/x", b"bad"),
        lambda: remove_file(root, "a/x"),
        lambda: read_file(root, "a/x"),
    ):
        with pytest.raises(UnsafePlaceError):
            act()
    assert (outside / "x").read_text() == "precious"


def test_a_file_that_is_swapped_for_a_link_after_the_look_is_replaced_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").write_text("precious")
    root = tmp_path / "root"
    root.mkdir()
    (root / "x").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(worktree._Place, "require_file", lambda _: 0o100644)
    with pytest.raises(OSError, match="symbolic links"):
        read_file(root, "x")
    write_file(root, "x", b"new")
    assert (tmp_path / "outside").read_text() == "precious"
    assert (root / "x").read_text() == "new"


def test_without_handles_of_folders_the_look_must_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    monkeypatch.setattr(worktree, "_HAS_HANDLES", False)
    write_file(tmp_path, "a/b", b"one")
    assert read_file(tmp_path, "a/b") == b"one"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(UnsafePlaceError):
        write_file(tmp_path, "link/b", b"two")
    assert remove_file(tmp_path, "a/b")
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


def test_what_is_looked_at_before_git_writes(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    require_plain(tmp_path, ["real/a", "none/b/c", "link/x", "link"], removed={"link"})
    for path in ("link/x", "link", "real"):
        with pytest.raises(UnsafePlaceError):
            require_plain(tmp_path, ["real/a", path])
