"""An index that lies in no repository: an unpacked archive is read as if it were one."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testing.documents import NOTE
from testing.repositories import Repo, run


@pytest.fixture
def exported(repo: Repo, tmp_path: Path) -> Repo:
    """A folder with the files of a commit and no git dir."""
    repo.write("bundle/lamps.md", NOTE)
    repo.write("bundle/horn.md", "# Horn\n\nThe foghorn sounds twice.\n")
    repo.git("add", "--all")
    assert repo.call("init", "--hooks", "none").code == 0
    repo.commit("first")
    repo.git("archive", "--output", str(tmp_path / "a.zip"), "HEAD")
    folder = tmp_path / "unpacked"
    shutil.unpack_archive(tmp_path / "a.zip", folder)
    return Repo(folder, repo.environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def listing(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_it_is_searched_and_read_and_nothing_in_it_is_written(exported: Repo) -> None:
    before = listing(exported.root)
    done = exported.call("query", "foghorn", "--format", "json", cwd=exported.root / "bundle")
    assert done.code == 0, done.err
    hit = done.json()["hits"][0]
    assert hit["id"] == "horn"
    assert done.json()["index"]["stale_documents"] == 0
    got = exported.call("get", "horn", "--section", hit["matched_section"]["anchor"])
    assert got.out == "# Horn\n\nThe foghorn sounds twice.\n"
    for arguments in (["status"], ["related", "horn"], ["context", "foghorn", "--budget", "200"]):
        assert exported.call(*arguments).code == 0
    assert listing(exported.root) == before


@pytest.mark.parametrize(
    ("name", "content"), [("index", b"DIRC" * 9), ("HEAD", b"?"), ("config", b"[")]
)
def test_a_damaged_git_dir_of_its_own_is_made_again(
    exported: Repo, tmp_path: Path, name: str, content: bytes
) -> None:
    before = run(exported, "query", "foghorn")
    (file,) = (tmp_path / "cache/kbindex").glob(f"*/{name}")
    file.write_bytes(content)
    assert run(exported, "query", "foghorn") == before


def test_what_was_edited_since_is_found_by_its_words_and_said(exported: Repo) -> None:
    assert exported.call("query", "foghorn").code == 0
    exported.write("bundle/horn.md", "# Horn\n\nThe klaxon sounds twice.\n")
    done = exported.call("query", "klaxon", "--format", "json")
    assert done.json()["hits"][0]["id"] == "horn"
    assert done.json()["index"]["stale_documents"] == 1
    assert "bundle/horn.md" in done.err


def test_attributes_in_the_folder_run_no_program(exported: Repo, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(f'[filter "evil"]\n\tclean = touch {tmp_path}/ran; cat\n')
    exported.write(".gitattributes", "* filter=evil\n")
    exported.write("bundle/.gitattributes", "* text eol=crlf filter=evil\n")
    done = exported.call("query", "foghorn", GIT_CONFIG_GLOBAL=str(config))
    assert done.code == 0, done.err
    assert not (tmp_path / "ran").exists()


def test_queries_at_once_do_not_disturb_one_another(exported: Repo, tmp_path: Path) -> None:
    outputs = set()
    for _ in range(5):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda _: exported.kbindex("query", "foghorn"), range(6)))
        assert {done.code for done in results} == {0}, [done.err for done in results]
        outputs |= {done.out for done in results}
    assert len(outputs) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_a_cache_a_temporary_folder_serves(exported: Repo, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    assert exported.call("query", "foghorn").code == 0


def test_a_cache_that_is_no_folder_is_replaced_by_a_temporary_one(
    exported: Repo, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    scratch = Path(exported.environment["TMPDIR"])
    before = set(scratch.iterdir())
    assert exported.call("query", "foghorn").code == 0
    assert set(scratch.iterdir()) == before, "it is removed again"


def test_a_folder_without_an_index_is_still_no_repository(exported: Repo) -> None:
    shutil.rmtree(exported.root / ".kbindex")
    done = exported.call("query", "foghorn")
    assert done.code == 2
    assert "not inside a git repository" in done.err
