"""``kbindex doctor``: each thing that can be wrong is found, and has its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbindex.embed.servers.approvals import approvals_file, approve_origin, approved_origins
from kbindex.embed.servers.facts import Facts
from kbindex.local.user_folders import cache_folder
from testing.repositories import Repo

CHECKS = [
    "git",
    "hooks",
    "attributes",
    "tokenizer",
    "index",
    "embedder",
    "truncation",
    "identity",
    "view",
]


def findings(repo: Repo, *arguments: str, **variables: str) -> dict[str, dict[str, str]]:
    """Return the finding of each check, the worst where there are several."""
    done = repo.call("doctor", "--format", "json", *arguments, **variables)
    content = done.json()
    assert content["healthy"] is (done.code == 0), done.out
    assert done.code in (0, 1)
    rank = ["ok", "warning", "error"]
    found: dict[str, dict[str, str]] = {}
    for finding in content["findings"]:
        before = found.get(finding["check"])
        if before is None or rank.index(finding["status"]) > rank.index(before["status"]):
            found[finding["check"]] = finding
        assert (finding["status"] == "ok") is ("remedy" not in finding), finding
    return found


def test_a_sound_repository_has_nothing_to_mend(indexed: Repo) -> None:
    done = indexed.call("doctor")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == CHECKS
    assert all(line.startswith("ok ") for line in lines)
    assert done.err == ""
    assert indexed.git("status", "--porcelain") == ""


def test_a_missing_hook_is_found(indexed: Repo) -> None:
    (indexed.root / ".git/hooks/pre-push").unlink()
    (indexed.root / ".git/hooks/post-commit").chmod(0o644)
    finding = findings(indexed)["hooks"]
    assert finding["message"] == "git does not run kbindex at post-commit, pre-push"
    assert finding["remedy"] == "kbindex init --hooks native"
    (indexed.root / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 0\n")
    assert "at pre-commit, post-commit" in findings(indexed)["hooks"]["message"]


def test_hooks_of_the_framework_count_where_it_is_told_to_run_us(repo: Repo) -> None:
    repo.write("bundle/a.md", "# A\n\nText.\n")
    assert repo.call("init", "--hooks", "pre-commit").code == 0
    assert findings(repo)["hooks"]["status"] == "ok"
    repo.write(".pre-commit-config.yaml", "repos: []\n")
    finding = findings(repo)["hooks"]
    assert finding["status"] == "error"
    assert finding["remedy"] == "kbindex init --hooks pre-commit"


def test_a_program_that_is_not_on_path_is_a_warning(indexed: Repo, tmp_path: Path) -> None:
    for name in ("git",):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    if not (tmp_path / "git").exists():
        pytest.skip("git stands elsewhere")
    finding = findings(indexed, PATH=str(tmp_path))["hooks"]
    assert finding["status"] == "warning"
    assert "not on PATH" in finding["message"]


@pytest.mark.parametrize(
    "line",
    ["* text=auto !text", "*.tsv text", "*.lance filter=lfs", "chunks.lance/** filter=lfs text"],
)
def test_attributes_that_change_the_index_are_found(indexed: Repo, line: str) -> None:
    """They win where they stand deeper, or in the user's own file."""
    attributes = indexed.root / ".git/info/attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text(f"{line.replace('*.lance', '.kbindex/chunks.lance/**')}\n")
    if line.startswith("chunks"):
        attributes.write_text(f".kbindex/{line}\n")
    finding = findings(indexed)["attributes"]
    assert finding["status"] == "error"
    assert "git would change" in finding["message"]


def test_an_ignored_index_is_found(indexed: Repo) -> None:
    indexed.write(".gitignore", "*.arrow\n")
    finding = findings(indexed)["attributes"]
    assert finding["status"] == "error"
    assert ".gitignore leaves out wal/a.arrow" in finding["message"]


def test_a_repository_without_an_index_is_told_how_to_get_one(repo: Repo) -> None:
    repo.write("bundle/a.md", "# A\n")
    found = findings(repo)
    assert found["index"]["remedy"] == "kbindex init"
    assert found["view"]["status"] == "error"
    assert found["embedder"]["status"] == "ok"


def test_a_damaged_recipe_is_found(indexed: Repo) -> None:
    indexed.write(".kbindex/recipe.json", "{")
    indexed.git("add", ".kbindex/recipe.json")
    found = findings(indexed)
    assert "is not a recipe" in found["index"]["message"]
    assert "kbindex update" in found["index"]["remedy"]


def test_another_embedder_than_the_index_is_found(indexed: Repo) -> None:
    finding = findings(indexed, KBINDEX_EMBEDDER="builtin")["identity"]
    assert finding["status"] == "error"
    assert "embedder: hash/feature-hashing → builtin/" in finding["message"]
    assert "kbindex update" in finding["remedy"]


def test_a_server_that_is_down_is_found(indexed: Repo) -> None:
    variables = {"KBINDEX_EMBEDDER": "ollama:bge-m3", "OLLAMA_HOST": "127.0.0.1:9"}
    found = findings(indexed, **variables)
    assert "can't be reached" in found["embedder"]["message"]
    assert "ollama serve" in found["embedder"]["remedy"]
    assert found["server"]["message"] == "http://127.0.0.1:9, on this machine"
    assert found["view"]["status"] == "ok"


def test_a_mistake_in_the_configuration_is_a_usage_error(indexed: Repo) -> None:
    indexed.write("kbindex.toml", "embedder = 3\n")
    assert indexed.call("doctor").code == 2
    assert indexed.call("doctor", "--format", "sarif").code == 2


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder without any configuration."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def test_approvals_are_kept_and_sorted(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user / "elsewhere"))
    assert approved_origins() == set()
    approve_origin("http://b:1")
    file = approve_origin("http://a:1")
    approve_origin("http://a:1")
    assert file == user / "elsewhere/kbindex/trusted-hosts"
    assert approved_origins() == {"http://a:1", "http://b:1"}
    assert file.read_text().splitlines()[1:] == ["http://a:1", "http://b:1"]
    file.write_bytes(b"\xff\xfe")
    assert approved_origins() == set()


@pytest.mark.usefixtures("user")
def test_a_relative_folder_of_the_user_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = approvals_file(), cache_folder()
    monkeypatch.setenv("XDG_CONFIG_HOME", "x")
    monkeypatch.setenv("XDG_CACHE_HOME", "x")
    assert (approvals_file(), cache_folder()) == usual
    assert all(place.is_absolute() for place in usual)


def test_approvals_of_an_earlier_version_stay_where_they_are(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = user / ".config/kbindex/trusted-hosts"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("http://a:1\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user / "Library"))  # where a Mac keeps them
    assert approved_origins() == {"http://a:1"}
    assert approve_origin("http://b:1") == earlier
    assert approved_origins() == {"http://a:1", "http://b:1"}


def test_facts_are_kept_bounded_and_survive_damage(tmp_path: Path) -> None:
    facts = Facts(tmp_path / "new")
    assert facts.recall("a") is None
    facts.note("a", "1")
    assert Facts(tmp_path / "new").recall("a") == "1"
    for i in range(70):
        facts.note(f"n{i}", "x")
    assert facts.recall("a") is None
    assert facts.recall("n69") == "x"
    for content in ("{", "[]", '{"n69": 3}'):
        (tmp_path / "new/servers.json").write_text(content)
        assert facts.recall("n69") is None
    facts.note("b", "2")
    assert facts.recall("b") == "2"
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"servers.json", "tmp"}
    assert not list((tmp_path / "new/tmp").iterdir())
