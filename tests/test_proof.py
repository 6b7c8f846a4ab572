"""What is recorded as fresh, or believed because it was read before, is what was proven."""

from __future__ import annotations

import pytest
from conftest import Done, Repo
from typer.testing import CliRunner

from kbindex.cli import app


def run(repo: Repo, *arguments: str) -> Done:
    """Run the command line in this process, where LanceDB needs to be imported only once."""
    done = CliRunner().invoke(app, ["--repo", str(repo.root), *arguments], env=repo.environment)
    return Done(done.exit_code, done.stdout, done.stderr)


def push(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Done:
    """Ask the hook of a push of HEAD, as the pre-commit framework does."""
    monkeypatch.setenv("PRE_COMMIT_REMOTE_BRANCH", "refs/heads/main")
    monkeypatch.setenv("PRE_COMMIT_TO_REF", repo.git("rev-parse", "HEAD").strip())
    return run(repo, "hook", "pre-push")


# Known by its content


def test_a_wal_file_under_a_wrong_name_is_damage_even_where_its_content_was_read(
    indexed: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.write("bundle/plain.md", "Another paragraph, without any heading.\n")
    indexed.git("add", "--all")
    assert run(indexed, "update").code == 0
    indexed.commit("an edit", "--no-verify")
    assert run(indexed, "query", "paragraph").code == 0  # reads the file
    (path,) = [path for path in indexed.files(".kbindex/wal") if path.endswith(".arrow")]
    indexed.git("mv", path, f".kbindex/wal/{'0' * 32}.arrow")
    indexed.git("commit", "--quiet", "--no-verify", "--message", "renamed")
    assert run(indexed, "check").code == 3
    assert push(indexed, monkeypatch).code == 1

    updated = run(indexed, "update")
    assert updated.code == 0, updated.err
    assert "is not the content that its name stands for" in updated.out
    assert " 0 embedded" in updated.out
    indexed.git("commit", "--quiet", "--no-verify", "--message", "mended")
    assert run(indexed, "check").code == 0
    assert push(indexed, monkeypatch).code == 0
