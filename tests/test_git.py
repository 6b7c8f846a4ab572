"""The Git class on real repositories: odd names, odd places, odd states."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbindex.core.errors import ExitCode, GitError, NotARepositoryError, RefusedError, UsageError
from kbindex.core.names import is_regular
from kbindex.git.client import Git
from kbindex.git.paths import decode_path, encode_path
from testing.repositories import AUTHOR, Repo

NAMES = [
    b"with space.md",
    b" leading and trailing ",
    b"new\nline.md",
    b"tab\t.md",
    b'double"quote.md',
    b"single'quote.md",
    b"back\\slash.md",
    b"-dash.md",
    b"--help",
    b":(top)magic.md",
    b":!negated.md",
    b"star*?[a].md",
    b"#hash.md",
    "café – 東京.md".encode(),
]
if sys.platform != "darwin":  # its file systems hold Unicode only
    NAMES.append(b"\xff\xfe not UTF-8.md")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in AUTHOR.items():
        monkeypatch.setenv(name, value)


def path_of(name: bytes, folder: str = "bundle") -> str:
    return f"{folder}/{decode_path(name)}"


def write_odd_names(repo: Repo) -> list[str]:
    paths = [path_of(name) for name in NAMES]
    for path in paths:
        repo.write(path, f"text of {len(path)}\n")
    return sorted(paths)


def staged(repo: Repo) -> str:
    return repo.git("ls-files", "--stage", "-z", check=False)


# Names


@pytest.mark.parametrize("name", NAMES)
def test_decoding_a_path_gives_its_bytes_back(name: bytes) -> None:
    assert encode_path(decode_path(name)) == name


def test_every_name_is_listed_as_it_is(repo: Repo) -> None:
    paths = write_odd_names(repo)
    git = Git(repo.root)
    assert sorted(git.index.untracked("bundle")) == paths

    repo.git("add", "--all")
    assert git.index.untracked("bundle") == []
    assert sorted(path for _, _, path in git.trees.files(git.index.write_tree(), "bundle")) == paths
    assert sorted(path for _, _, path in git.index.files("bundle")) == paths

    for path in paths:
        repo.write(path, "changed and longer than before\n")
    assert sorted(git.index.changed_in_worktree("bundle")) == paths


def test_every_name_can_be_staged_checked_out_and_removed(repo: Repo) -> None:
    paths = [path_of(name, "made") for name in NAMES]
    git = Git(repo.root)
    oids = git.objects.write_blobs([f"content {number}\n".encode() for number in range(len(paths))])
    git.index.stage(dict(zip(paths, oids, strict=True)))
    git.index.check_out(paths)
    assert {path: oid for _, oid, path in git.index.files("made")} == dict(
        zip(paths, oids, strict=True)
    )
    for number, path in enumerate(paths):
        assert (repo.root / os.fsdecode(encode_path(path))).read_text() == f"content {number}\n"
    assert git.index.changed_in_worktree("made") == []

    git.index.stage(dict.fromkeys(paths))
    assert list(git.index.files("made")) == []


def test_the_object_of_every_name_without_a_newline_is_found(repo: Repo) -> None:
    paths = [path for path in write_odd_names(repo) if "\n" not in path]
    repo.git("add", "--all")
    git = Git(repo.root)
    tree = git.index.write_tree()
    oids = {path: oid for _, oid, path in git.trees.files(tree)}
    assert git.trees.object_ids(tree, *paths) == [oids[path] for path in paths]
    assert git.trees.object_ids(tree, "bundle/no such.md", "missing") == [None, None]


def test_a_folder_is_no_pattern_and_no_prefix(repo: Repo) -> None:
    for folder in ("b*", "bx", "b", "b*x"):
        repo.write(f"{folder}/a.md", "text\n")
    git = Git(repo.root)
    assert git.index.untracked("b*") == ["b*/a.md"]
    repo.git("add", "--all")
    assert [path for _, _, path in git.index.files("b*")] == ["b*/a.md"]
    assert [path for _, _, path in git.trees.files(git.index.write_tree(), "b*")] == ["b*/a.md"]
    assert [path for _, _, path in git.trees.files(git.index.write_tree(), "b")] == ["b/a.md"]


def test_the_whole_repository_can_be_the_folder(repo: Repo) -> None:
    repo.write("a.md", "text\n")
    repo.write("deep/b.md", "text\n")
    repo.git("add", "--all")
    git = Git(repo.root)
    expected = ["a.md", "deep/b.md", "kbindex.toml"]
    assert sorted(path for _, _, path in git.trees.files(git.index.write_tree(), ".")) == expected
    assert sorted(path for _, _, path in git.index.files(".")) == expected
    assert git.index.write_worktree_tree(".") == git.index.write_tree()


@pytest.mark.parametrize(
    "name",
    [
        "it has spaces",
        "-dash",
        pytest.param(
            "new\nline",
        ),
        pytest.param(
            "trailing\n",
        ),
        pytest.param(
            "\udcff",
            marks=pytest.mark.skipif(sys.platform == "darwin", reason="holds Unicode only"),
        ),
    ],
)
def test_the_repository_may_lie_in_a_folder_of_any_name(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    root = tmp_path / name
    root.mkdir()
    repo = Repo(root, environment)
    repo.git("init", "--quiet", "--initial-branch=main")
    repo.write("bundle/a.md", "text\n")
    git = Git(root)
    assert os.fsencode(git.root) == os.fsencode(root)
    assert git.git_dir == root / ".git"
    assert git.index.untracked("bundle") == ["bundle/a.md"]


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        (b"\xff.md", True),
        pytest.param(b"\xff.md", False),
        pytest.param(b"new\nline.md", True),
        pytest.param(b"new\nline.md", False),
    ],
)
def test_the_object_of_a_name_with_any_bytes_is_found_or_missing(
    repo: Repo, name: bytes, is_there: bool
) -> None:
    oids = ["e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"] if is_there else [None]
    git = Git(repo.root)
    if is_there:
        git.index.stage(dict(zip([path_of(name)], git.objects.write_blobs([b""]), strict=True)))
    assert git.trees.object_ids(git.index.write_tree(), path_of(name)) == oids


# Places


def test_a_subfolder_finds_the_root_and_paths_start_there(repo: Repo) -> None:
    repo.write("bundle/ops/a.md", "text\n")
    repo.git("add", "--all")
    git = Git(repo.root / "bundle" / "ops")
    assert git.root == repo.root
    assert [path for _, _, path in git.index.files("bundle")] == ["bundle/ops/a.md"]


def test_a_linked_worktree_has_its_own_index_and_the_common_folder(repo: Repo) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.commit()
    linked = repo.root.parent / "linked tree"
    repo.git("worktree", "add", "--quiet", "-b", "other", str(linked))
    main, git = Git(repo.root), Git(linked)
    assert git.root == linked
    assert git.common_dir == main.git_dir == repo.root / ".git"
    assert git.git_dir != git.common_dir
    assert git.index.file != main.index.file
    assert git.state.branch() == "other"
    assert git.settings.hooks_dir == main.settings.hooks_dir

    (oid,) = git.objects.write_blobs([b"only here\n"])
    git.index.stage({"bundle/b.md": oid})
    assert len(list(git.index.files("bundle"))) == 2
    assert len(list(main.index.files("bundle"))) == 1


def test_a_submodule_is_a_repository_of_its_own(repo: Repo, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner", repo.environment)
    inner.root.mkdir()
    inner.git("init", "--quiet", "--initial-branch=main")
    inner.write("bundle/inner.md", "text\n")
    inner.commit()
    repo.write("bundle/outer.md", "text\n")
    repo.git(
        *("-c", "protocol.file.allow=always", "submodule", "--quiet", "add"),
        *(str(inner.root), "bundle/sub"),
    )
    repo.commit()

    git = Git(repo.root / "bundle" / "sub")
    assert git.root == repo.root / "bundle" / "sub"
    assert git.git_dir == repo.root / ".git/modules/bundle/sub"
    assert [path for _, _, path in git.index.files("bundle")] == ["bundle/inner.md"]

    outer = Git(repo.root)
    listed = {path: mode for mode, _, path in outer.trees.files(outer.index.write_tree(), "bundle")}
    assert set(listed) == {"bundle/outer.md", "bundle/sub"}
    assert not is_regular(listed["bundle/sub"])


def test_a_bare_repository_can_be_read(repo: Repo, tmp_path: Path) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.commit()
    bare = tmp_path / "bare.git"
    repo.git("clone", "--quiet", "--bare", str(repo.root), str(bare))
    git = Git(bare)
    assert git.is_bare
    assert git.root == git.git_dir == bare
    tree = git.trees.resolve("HEAD")
    assert [path for _, _, path in git.trees.files(tree, "bundle")] == ["bundle/a.md"]
    assert not Git(repo.root).is_bare


def test_git_s_environment_counts_where_no_folder_is_named(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.commit()
    other = tmp_path / "next-index-1.lock"
    monkeypatch.chdir(repo.root)
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", str(other))
    repo.write("bundle/b.md", "text\n")
    subprocess.run(["git", "add", "bundle/b.md"], cwd=repo.root, check=True)

    git = Git()
    assert git.root == repo.root
    assert git.index.file == other
    assert [path for _, _, path in git.index.files("bundle")] == ["bundle/b.md"]
    assert [path for _, _, path in git.trees.files(git.index.write_tree())] == ["bundle/b.md"]


def test_a_relative_index_file_is_below_the_root(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo.root)
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/other")
    assert Git().index.file == repo.root / ".git" / "other"


def test_a_named_folder_is_free_of_the_environment_of_another_repository(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.git("add", "--all")
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=other, check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index.lock"))
    git = Git(repo.root)
    assert git.root == repo.root
    assert [path for _, _, path in git.index.files("bundle")] == ["bundle/a.md"]


@pytest.mark.parametrize("name", ["", "missing"])
def test_no_repository_is_a_user_s_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotARepositoryError) as caught:
        Git(tmp_path / name)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "--repo" in str(caught.value.remedy)


@pytest.mark.parametrize("hooks_path", [None, "hooks", "it's/mine"])
def test_the_hooks_folder_is_where_git_looks(repo: Repo, hooks_path: str | None) -> None:
    if hooks_path:
        repo.git("config", "core.hooksPath", hooks_path)
    (repo.root / "deep").mkdir()
    expected = repo.root / (hooks_path or ".git/hooks")
    assert Git(repo.root).settings.hooks_dir == expected
    assert Git(repo.root / "deep").settings.hooks_dir == expected


# States


def test_before_the_first_commit_there_is_an_index_and_no_head(repo: Repo) -> None:
    git = Git(repo.root)
    assert git.trees.head() is None
    assert git.state.branch() == "main"
    assert list(git.trees.files(git.index.write_tree())) == []
    assert list(git.index.files("bundle")) == []
    repo.write("bundle/a.md", "text\n")
    tree = git.index.write_worktree_tree("bundle")
    assert [path for _, _, path in git.trees.files(tree)] == ["bundle/a.md"]
    with pytest.raises(UsageError, match="HEAD"):
        git.trees.resolve("HEAD")


@pytest.mark.parametrize("revision", ["no-such", "--help", "HEAD:nothing", ""])
def test_an_unknown_revision_is_a_user_s_error(repo: Repo, revision: str) -> None:
    repo.commit()
    with pytest.raises(UsageError):
        Git(repo.root).trees.resolve(revision)


def test_the_work_tree_s_tree_leaves_git_s_index_alone(repo: Repo) -> None:
    repo.write(".gitignore", "*.tmp\n")
    repo.write("bundle/kept.md", "old\n")
    repo.write("bundle/gone.md", "old\n")
    repo.commit()
    repo.write("bundle/kept.md", "new\n")
    repo.write("bundle/added.md", "new\n")
    repo.write("bundle/ignored.tmp", "new\n")
    repo.write("outside.md", "new\n")
    (repo.root / "bundle/gone.md").unlink()
    before = (repo.root / ".git/index").read_bytes()

    git = Git(repo.root)
    tree = git.index.write_worktree_tree("bundle")

    assert (repo.root / ".git/index").read_bytes() == before
    assert sorted(path for _, _, path in git.trees.files(tree)) == [
        ".gitignore",
        "bundle/added.md",
        "bundle/kept.md",
        "kbindex.toml",
    ]
    (oid,) = git.trees.object_ids(tree, "bundle/kept.md")
    assert oid is not None
    assert git.objects.read_blob(oid) == b"new\n"


def test_a_tree_with_other_blobs_leaves_git_s_index_alone(repo: Repo) -> None:
    repo.git("config", "core.splitIndex", "true")
    for name in ("kept.md", "gone.md", "other.md"):
        repo.write(name, f"{name}\n")
    repo.commit()
    git = Git(repo.root)
    (new,) = git.objects.write_blobs([b"new"])
    before = sorted(file.name for file in (repo.root / ".git").iterdir())
    staged = repo.git("ls-files", "--stage")
    tree = git.index.tree_with(
        git.index.write_tree(), {"gone.md": None, "other.md": new, "deep/er.md": new}
    )
    found = {path: oid for _, oid, path in git.trees.files(tree)}
    assert found.keys() == {"kbindex.toml", "kept.md", "other.md", "deep/er.md"}
    assert found["other.md"] == found["deep/er.md"] == new
    assert repo.git("ls-files", "--stage") == staged
    assert sorted(file.name for file in (repo.root / ".git").iterdir()) == before


def test_an_intended_addition_is_in_no_tree(repo: Repo) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.commit()
    repo.write("bundle/intended.md", "text\n")
    repo.git("add", "--intent-to-add", "bundle/intended.md")
    git = Git(repo.root)
    assert [path for _, _, path in git.trees.files(git.index.write_tree(), "bundle")] == [
        "bundle/a.md"
    ]


def test_an_intended_addition_is_not_staged(repo: Repo) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.commit()
    repo.write("bundle/intended.md", "text\n")
    repo.git("add", "--intent-to-add", "bundle/intended.md")
    assert [path for _, _, path in Git(repo.root).index.files("bundle")] == ["bundle/a.md"]


def test_a_symbolic_link_is_listed_and_is_no_regular_file(repo: Repo) -> None:
    repo.write("bundle/a.md", "text\n")
    (repo.root / "bundle/link.md").symlink_to("a.md")
    (repo.root / "bundle/run.md").write_text("text\n")
    (repo.root / "bundle/run.md").chmod(0o755)
    repo.git("add", "--all")
    git = Git(repo.root)
    for listing in (git.trees.files(git.index.write_tree(), "bundle"), git.index.files("bundle")):
        regular = {path: is_regular(mode) for mode, _, path in listing}
        assert regular == {"bundle/a.md": True, "bundle/link.md": False, "bundle/run.md": True}


def test_a_file_that_was_only_touched_is_unchanged(repo: Repo) -> None:
    file = repo.write("bundle/a.md", "text\n")
    repo.commit()
    os.utime(file, (1, 1))
    assert Git(repo.root).index.changed_in_worktree("bundle") == []


def test_a_merge_that_is_unresolved_is_refused_by_document(repo: Repo) -> None:
    conflict(repo, "merge")
    git = Git(repo.root)
    with pytest.raises(RefusedError, match=r"bundle/a\.md") as caught:
        git.index.write_tree()
    assert "resolve" in str(caught.value.remedy)
    assert list(git.index.files("bundle")) == []


@pytest.mark.parametrize(
    "operation", ["merge", "cherry-pick", "revert", "rebase", "rebase --apply"]
)
def test_an_operation_under_way_is_noticed(repo: Repo, operation: str) -> None:
    repo.commit()
    assert not Git(repo.root).state.is_mid_operation
    conflict(repo, operation)
    assert Git(repo.root).state.is_mid_operation


def conflict(repo: Repo, operation: str) -> None:
    """Leave ``operation`` stopped in a conflict."""
    repo.write("bundle/a.md", "base\n")
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "theirs")
    repo.write("bundle/a.md", "theirs\n")
    theirs = repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.write("bundle/a.md", "ours\n")
    repo.commit()
    target = {"merge": "theirs", "cherry-pick": theirs, "revert": "HEAD~1"}.get(operation, "theirs")
    repo.git(*operation.split(), target, check=False)
    assert "U" in repo.git("status", "--porcelain", check=False)[:2]


def test_staging_does_all_or_nothing(repo: Repo) -> None:
    repo.write("bundle/a.md", "text\n")
    repo.git("add", "--all")
    git = Git(repo.root)
    before = staged(repo)
    (oid,) = git.objects.write_blobs([b"x"])
    with pytest.raises(GitError):
        git.index.stage({"bundle/b.md": oid, "bundle/c.md": "no object id"})
    assert staged(repo) == before


def test_nothing_to_stage_or_check_out_is_fine(repo: Repo) -> None:
    git = Git(repo.root)
    git.index.stage({})
    git.index.check_out([])
    assert git.objects.write_blobs([]) == []
    assert list(git.objects.read_blobs([])) == []


# Objects


def test_blobs_come_in_the_order_asked_whatever_they_hold(repo: Repo) -> None:
    contents = [f"{number}\n".encode() for number in range(1203)]
    contents += [b"", b"\0", b"no newline", b"\r\n\r\n", b"deadbeef missing\n", b"a\0b\n" * 5000]
    git = Git(repo.root)
    oids = git.objects.write_blobs(contents)
    wanted = [*reversed(oids), oids[0], oids[0]]
    read = list(git.objects.read_blobs(wanted))
    assert [oid for oid, _ in read] == wanted
    assert [content for _, content in read] == [*reversed(contents), contents[0], contents[0]]
    assert git.objects.total_size(oids) == sum(map(len, contents))


def test_blobs_are_stored_as_they_are_whatever_git_would_convert(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.write(".gitattributes", "* text=auto eol=crlf ident filter=missing\n")
    content = b"one\r\ntwo\n$Id$\n"
    git = Git(repo.root)
    (oid,) = git.objects.write_blobs([content])
    assert git.objects.read_blob(oid) == content


def test_a_missing_object_is_git_s_error_with_a_remedy(repo: Repo) -> None:
    with pytest.raises(GitError, match="0123456789012345678901234567890123456789") as caught:
        Git(repo.root).objects.read_blob("0123456789012345678901234567890123456789")
    assert "git fsck" in str(caught.value.remedy)


def test_a_path_can_be_removed_from_a_sha256_repository(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    repo = Repo(tmp_path / "sha256", environment)
    repo.root.mkdir()
    repo.git("init", "--quiet", "--object-format=sha256")
    git = Git(repo.root)
    (oid,) = git.objects.write_blobs([b"text\n"])
    git.index.stage({"bundle/a.md": oid})
    git.index.stage({"bundle/a.md": None})
    assert list(git.index.files("bundle")) == []


# Branches


@pytest.mark.parametrize(
    ("branches", "current", "expected"),
    [
        ([], "main", "main"),
        ([], "master", "master"),
        (["main"], "feature", "main"),
        (["master"], "feature", "master"),
        (["main", "master"], "feature", None),
        ([], "feature", None),
    ],
)
def test_without_a_remote_the_only_usual_name_is_the_default_branch(
    repo: Repo, branches: list[str], current: str, expected: str | None
) -> None:
    repo.git("symbolic-ref", "HEAD", f"refs/heads/{current}")
    repo.commit()
    for branch in branches:
        repo.git("branch", branch)
    assert Git(repo.root).state.default_branch() == expected


def test_the_remote_says_what_the_default_branch_is(repo: Repo, tmp_path: Path) -> None:
    repo.git("checkout", "--quiet", "-b", "team/trunk")
    repo.commit()
    repo.git("branch", "main")
    clone = tmp_path / "clone"
    repo.git("clone", "--quiet", str(repo.root), str(clone))
    git = Git(clone)
    assert git.state.default_branch() == "team/trunk"
    git.run("remote", "set-head", "origin", "--delete")
    assert git.state.default_branch() is None


def test_a_detached_head_is_on_no_branch(repo: Repo) -> None:
    repo.commit()
    repo.git("checkout", "--quiet", "--detach")
    git = Git(repo.root)
    assert git.state.branch() is None
    assert git.state.default_branch() == "main"
