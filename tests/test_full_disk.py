"""A disk that is full or fails: one sentence, a documented exit code, and answers all the same."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kbindex.local.scratch import scratch_folder
from kbindex.output.console import begin_run, note_once
from testing.commands import Done
from testing.damage import EDIT, EDITED, QUERIES, fill
from testing.index import forget_local_state
from testing.repositories import Repo, Template, run


@pytest.fixture
def repo(from_template: Template) -> Repo:
    return from_template("damage", fill)


def run_without_room(repo: Repo, *arguments: str) -> Done:
    """Run the command line where no file may have any bytes, as if the disk were full."""
    done = subprocess.run(
        [sys.executable, "-m", "kbindex", *arguments],
        cwd=repo.root,
        env=repo.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("has_view", [True, False])
def test_a_query_answers_on_a_full_disk(repo: Repo, has_view: bool) -> None:
    before = run(repo, *QUERIES[0])
    if not has_view:
        forget_local_state(repo)
    done = run_without_room(repo, *QUERIES[0])
    assert done.code == 0, done.err
    assert done.out == before.out
    assert done.err.count("can't be written") == (0 if has_view else 2), "view and cache"


@pytest.mark.parametrize("verb", [("update",), ("hook", "pre-commit"), ("checkpoint",)])
def test_a_writer_stops_on_a_full_disk_and_loses_nothing(repo: Repo, verb: tuple[str, ...]) -> None:
    file = repo.root / EDITED
    file.write_text(file.read_text() + EDIT)
    repo.git("add", "--all")
    staged = repo.git("write-tree")
    done = run_without_room(repo, *verb)
    assert done.code == 2, done
    assert done.err.count("the local cache can't be written") == 1
    assert "remedy: make room" in done.err
    assert repo.git("write-tree") == staged
    assert run(repo, "update").code == 0
    assert run(repo, "check").code == 0


def nowhere(*_: object, **__: object) -> None:
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_scratch_that_can_be_written_nowhere_is_a_refusal_of_the_system(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", nowhere)
    with pytest.raises(OSError, match="nowhere"), scratch_folder(None):
        pass
    done = run(repo, "update", "--worktree")
    assert done.code == 2
    assert "remedy: make room" in done.err


def test_a_bug_is_reported_where_no_report_can_be_written(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", nowhere)
    monkeypatch.setattr("kbindex.commands.status.put", lambda _: 1 / 0)
    done = run(repo, "status")
    assert done.code == 70
    assert "ZeroDivisionError: division by zero" in done.err
    assert "Traceback" not in done.err


def test_a_sentence_is_said_once_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        begin_run()
        for _ in range(3):
            note_once("there is no room")
    assert capsys.readouterr().err == "kbindex: there is no room\n" * 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_messages_that_cannot_be_written_end_no_command(repo: Repo) -> None:
    repo.write("bundle/new.md", "# New\n\nNot staged, which a query says.\n")
    assert "differ from what is indexed" in run(repo, *QUERIES[0]).err
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a stream for the process
        done = subprocess.run(
            [sys.executable, "-m", "kbindex", *QUERIES[0]],
            cwd=repo.root,
            # Unbuffered, Python keeps nothing that it could try to write at its end.
            env={n: v for n, v in repo.environment.items() if n != "PYTHONUNBUFFERED"},
            stdout=subprocess.DEVNULL,
            stderr=full,
        )
    assert done.returncode == 0
