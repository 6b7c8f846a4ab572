"""What is left out of the index is said, and a bare repository answers from its HEAD."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbindex.configuration.config import Config
from kbindex.repo.left_out import left_out
from kbindex.repo.snapshot import make_snapshot
from testing.repositories import Repo, run

FILE, LINK, SUBMODULE = "100644", "120000", "160000"


@pytest.mark.parametrize(
    ("mode", "path", "words"),
    [
        (LINK, "bundle/a.md", "symbolic link"),
        (LINK, "bundle/guide", "symbolic link"),
        (LINK, "bundle", "symbolic link"),
        (SUBMODULE, "bundle/parts", "submodule"),
        (SUBMODULE, "bundle", "submodule"),
        (FILE, "bundle/a.markdown", "'include' leaves it out"),
        (FILE, "bundle/README.MD", "'include' leaves it out"),
        (FILE, "bundle/x/page.mdx", "'include' leaves it out"),
        (FILE, "bundle/a.txt", None),
        (LINK, "bundle/a.png", None),
        (LINK, "elsewhere/a.md", None),
        (SUBMODULE, "elsewhere", None),
        (LINK, "bundle/out/a.md", None),
        (SUBMODULE, "bundle/out", None),
        (LINK, "bundle/out", None),
        (FILE, "bundle/out/a.markdown", None),
    ],
)
def test_what_looks_like_a_document_and_is_none_is_named(
    mode: str, path: str, words: str | None
) -> None:
    problem = left_out(Config(exclude=("out/",)), mode, path)
    assert (words is None) == (problem is None)
    if problem and words:
        assert words in problem.message
        assert "'exclude'" in (problem.remedy or "")


def test_a_file_that_is_included_on_purpose_or_not_is_not_said() -> None:
    assert not make_snapshot("", [(FILE, "0", "bundle/a.MD")], Config(include=("*.MD",))).left_out
    narrow = Config(include=("guides/*.md",))
    assert not make_snapshot("", [(FILE, "0", "bundle/a.md")], narrow).left_out


def test_of_millions_only_the_first_are_named() -> None:
    files = ((LINK, "0" * 40, f"bundle/{number}.md") for number in range(5000))
    snapshot = make_snapshot("", files, Config())
    assert (len(snapshot.left_out), snapshot.n_left_out) == (100, 5000)


def test_status_and_check_say_what_is_left_out_and_the_index_is_fresh(
    indexed: Repo, tmp_path: Path
) -> None:
    inner = Repo(tmp_path / "inner", indexed.environment)
    inner.root.mkdir()
    inner.git("init", "--quiet")
    inner.commit()
    allowed = ("-c", "protocol.file.allow=always")
    indexed.git(*allowed, "submodule", "--quiet", "add", str(inner.root), "bundle/parts")
    (indexed.root / "bundle/link.md").symlink_to("lamps.md")
    for number in range(6):
        indexed.write(f"bundle/{number}.markdown", "# A page\n")
    indexed.commit("odd files", "--no-verify")
    done = run(indexed, "status")
    assert "left out:" in done.out
    assert "bundle/link.md: is a symbolic link" not in done.out  # after the first five
    facts = run(indexed, "status", "--format", "json").json()["left_out"]
    assert (facts["files"], len(facts["first"])) == (8, 5)
    assert facts["first"][0].startswith("bundle/0.markdown: looks like Markdown")
    checked = run(indexed, "check", "--format", "json")
    assert (checked.code, checked.json()["fresh"]) == (0, True)
    notices = {notice["path"] for notice in checked.json()["notices"]}
    assert {"bundle/parts", "bundle/link.md", "bundle/5.markdown"} <= notices
    assert {notice["rule"] for notice in checked.json()["notices"]} == {"left-out"}
    assert run(indexed, "check", "--fail-on-notices").code == 1
    toml = 'embedder = "hash"\ninclude = ["*.md", "*.markdown"]\nexclude = ["parts", "link.md"]\n'
    indexed.write("kbindex.toml", toml)  # the remedies
    indexed.git("add", "--all")
    assert run(indexed, "update").code == 0
    assert run(indexed, "check", "--fail-on-notices").code == 0


def test_a_bundle_that_is_a_link_is_said_to_be_one(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.md").write_text("# A\n")
    (repo.root / "bundle").symlink_to(tmp_path / "elsewhere")
    repo.git("add", "--all")
    for verb in ("update", "check", "init"):
        done = run(repo, verb)
        assert done.code == 2
        assert "'bundle' is a symbolic link" in done.err


# A bare repository


@pytest.fixture
def bare(indexed: Repo, tmp_path: Path) -> Repo:
    indexed.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    indexed.git("remote", "add", "origin", str(tmp_path / "bare.git"))
    return Repo(tmp_path / "bare.git", indexed.environment)


def test_a_bare_repository_answers_from_its_head(indexed: Repo, bare: Repo) -> None:
    before = sorted(file.name for file in bare.root.iterdir())
    answer = run(bare, "query", "lenses", "--format", "json").json()
    assert answer == run(indexed, "query", "lenses", "--format", "json").json()
    assert answer["hits"][0]["id"] == "lamps"
    assert run(bare, "get", "lamps").out == run(indexed, "get", "lamps").out
    for verb in ("related lamps", "context lenses --budget 300", "status", "check"):
        done = run(bare, *verb.split())
        assert done.code == 0, (verb, done)
    assert sorted({*before, "kbindex"}) == sorted(file.name for file in bare.root.iterdir())


def test_what_is_pushed_to_a_bare_repository_is_found_at_once(indexed: Repo, bare: Repo) -> None:
    (bare.root / "index").write_bytes(b"an index from before it was bare")
    assert run(bare, "query", "zeppelin").code == 0  # by meaning alone
    indexed.write("bundle/new.md", "# New\n\nA zeppelin over the tower.\n")
    indexed.commit("with the hook")
    indexed.git("push", "--quiet", "--no-verify", "origin", "main")
    hit = run(bare, "query", "zeppelin", "-k", "1", "--format", "json").json()["hits"][0]
    assert hit["id"] == "new"
    settings = 'embedder = "hash"\nexclude = ["new.md"]\n'
    indexed.write("kbindex.toml", settings)
    indexed.commit("with the hook")
    indexed.git("push", "--quiet", "--no-verify", "origin", "main")
    assert run(bare, "get", "new").code == 2  # HEAD's configuration counts


@pytest.mark.parametrize("verb", ["init", "update", "update --worktree", "checkpoint", "compact"])
def test_a_bare_repository_builds_nothing(bare: Repo, verb: str) -> None:
    before = sorted(file.name for file in bare.root.iterdir())
    done = run(bare, *verb.split())
    assert done.code == 2
    assert "is a bare repository" in done.err
    assert "remedy: run this in a clone" in done.err
    assert sorted(file.name for file in bare.root.iterdir()) == before


def test_a_bare_repository_without_an_index_is_told_where_to_make_one(
    repo: Repo, tmp_path: Path
) -> None:
    empty = Repo(tmp_path / "empty.git", repo.environment)
    repo.git("init", "--quiet", "--bare", str(empty.root))
    done = run(empty, "query", "lamps")
    assert done.code == 3
    assert "remedy: kbindex init in a clone; then commit, and push to here" in done.err
    assert run(empty, "doctor").code == 1
