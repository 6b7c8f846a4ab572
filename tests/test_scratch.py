"""Scratch folders, small local files and the lock: what killed processes and garbage leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbindex.embed.servers.approvals import approve_origin, approved_origins
from kbindex.embed.servers.facts import Facts
from kbindex.git.staging import read_unstaged
from kbindex.local.files import parse_json, read_strings
from kbindex.local.lock import hold_lock, is_held
from kbindex.local.scratch import scratch_folder, write_whole
from testing.repositories import Repo, run

LONG_AGO = time.time() - 100_000

WORKER = """
import sys, time
from pathlib import Path
from kbindex.local.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "content").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def grow_old(*places: Path) -> None:
    for place in places:
        os.utime(place, (LONG_AGO, LONG_AGO))


def test_a_scratch_folder_is_ours_alone_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as one, scratch_folder(tmp_path) as other:
        assert one != other
        assert one.parent == tmp_path / "tmp"
        assert names(one) == ["lock"]
    assert names(tmp_path / "tmp") == []
    with pytest.raises(ZeroDivisionError), scratch_folder(tmp_path):
        _ = 1 / 0
    assert names(tmp_path / "tmp") == []


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not(
    tmp_path: Path,
) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    places = [Path((worker.stdout or sys.stdin).readline().strip()) for worker in workers]
    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait()
    half_written, recent = tmp_path / "tmp/seal.1-2", tmp_path / "tmp/seal.3-4"
    half_written.write_text("{")
    recent.write_text("{")
    grow_old(half_written, *places)
    with scratch_folder(tmp_path):
        assert not places[0].exists()
        assert not half_written.exists()
        assert recent.exists(), "may yet be written"
        assert (places[1] / "content").read_text() == "x"
    workers[1].kill()
    workers[1].wait()


def test_scratch_folders_are_the_systems_where_ours_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "tmp").write_text("a file stands in the way")
    with scratch_folder(tmp_path) as folder:
        assert tmp_path not in folder.parents
        assert folder.is_dir()
    assert not folder.exists()


def test_a_command_leaves_no_scratch(indexed: Repo) -> None:
    dead = indexed.root / ".git/kbindex/tmp/kbindex-dead"
    dead.mkdir(parents=True)
    grow_old(dead)
    indexed.write("bundle/new.md", "# New\n\nThe tern.\n")
    indexed.git("add", "--all")
    assert run(indexed, "update").code == 0
    assert run(indexed, "update", "--worktree", "--no-stage").code == 0
    assert names(indexed.root / ".git/kbindex/tmp") == []


def test_a_small_file_is_written_whole_or_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "note.json"
    write_whole(file, "before")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no space"):
            write_whole(file, "after")
    assert file.read_text() == "before"
    assert names(tmp_path / "tmp") == []


def test_a_folder_or_link_in_the_locks_place_keeps_no_one_from_locking(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for number, make in enumerate(
        (lambda lock: lock.mkdir(), lambda lock: lock.symlink_to(victim))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        make(folder / "lock")
        with hold_lock(folder):
            assert is_held(folder)
        assert not is_held(folder)
    assert victim.read_text() == "untouched"


# Garbage

GARBAGE: dict[str, Callable[[Path], object]] = {
    "no JSON": lambda file: file.write_text("{"),
    "another type": lambda file: file.write_text("[1, 2]"),
    "a number": lambda file: file.write_text("1e999"),
    "wrong nesting": lambda file: file.write_text('{"a": {"b": [1]}, "c": null}'),
    "deep nesting": lambda file: file.write_text("[" * 100_000),
    "NUL bytes": lambda file: file.write_bytes(b'{"a": "b"}' + bytes(100)),
    "no UTF-8": lambda file: file.write_bytes(b"\xff\xfe{}"),
    "huge": lambda file: (file.touch(), os.truncate(file, 1 << 28)),
    "a folder": lambda file: file.mkdir(),
    "a link to nowhere": lambda file: file.symlink_to("nowhere"),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_garbled_local_file_is_as_if_it_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: Callable[[Path], object]
) -> None:
    folder = tmp_path / "kbindex"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("servers.json", "unstaged.json", "trusted-hosts"):
        garbage(folder / name)
    assert Facts(folder).recall("a") is None
    assert read_unstaged(folder) == {}
    assert not {o for o in approved_origins() if o.startswith("http")}
    Facts(folder).note("a", "1")
    assert Facts(folder).recall("a") == "1"


def test_strings_are_told_from_what_else_stands_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "facts"
    file.write_text('{"a": "1", "b": 2, "c": null, "d": ["x"], "e": {"f": "g"}}')
    assert read_strings(file) == {"a": "1"}
    assert parse_json("[" * 100_000) is None


def test_approvals_survive_what_else_stands_in_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = approve_origin("http://a:1")
    file.write_bytes(file.read_bytes() + b"\0")
    assert approved_origins() == set()
    approve_origin("http://b:1")
    assert approved_origins() == {"http://b:1"}
