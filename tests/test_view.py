"""The view is believed as long as it is sealed, proven otherwise, and made anew when damaged."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbindex.repo.repository import Repository, open_repository
from kbindex.view import files as view_files
from kbindex.view import open as current
from kbindex.view import seal, upkeep
from kbindex.view import update as view_update
from kbindex.view.database import DamagedView, View
from kbindex.view.files import DATABASE, SEAL, open_to_read, open_to_write
from kbindex.view.open import use_view
from kbindex.view.proof import prove
from kbindex.view.seal import Seal, is_intact, make_seal, read_seal, write_seal
from testing.damage import fill, reseal
from testing.repositories import Repo, Template, run

QUERY = ("query", "--format", "json", "--text", "-k", "5", "who wipes the lenses at dawn")
LEXICAL = ("query", "--format", "json", "--mode", "lexical", "gull")


@pytest.fixture
def repo(from_template: Template) -> Repo:
    """A repository with a sealed view."""

    def make(repo: Repo) -> None:
        fill(repo)
        assert run(repo, *QUERY).code == 0

    copy = from_template("viewed", make)
    assert run(copy, *QUERY).code == 0  # a copied file is another file
    return copy


@pytest.fixture
def folder(repo: Repo) -> Path:
    return repo.root / ".git/kbindex"


@pytest.fixture
def n_proofs(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """Collects the views that are proven."""
    proven: list[View] = []

    def count(view: View) -> None:
        proven.append(view)
        prove(view)

    monkeypatch.setattr(upkeep, "prove", count)
    return proven


def edit(repo: Repo, words: str = "The gull took the wick.") -> None:
    file = repo.root / "bundle/notes/4.md"
    file.write_text(f"{file.read_text()}\n## Later\n\n{words}\n")
    repo.git("add", "--all")


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as db:
        yield db


def matrix(folder: Path) -> Path:
    (file,) = folder.glob("matrix-*.f32")
    return file


# What is believed


def test_a_sealed_view_is_not_proven_again(repo: Repo, n_proofs: list[View]) -> None:
    for _ in range(3):
        assert run(repo, *QUERY).code == 0
    edit(repo)
    assert run(repo, "update").code == 0
    for _ in range(3):
        assert run(repo, *QUERY).code == 0
    repo.git("update-index", "--refresh", "-q", "--force-write-index", check=False)
    assert run(repo, *QUERY).code == 0
    assert not n_proofs


def touch(folder: Path) -> None:
    os.utime(folder / DATABASE)


def copy_back(folder: Path) -> None:
    """Do what restoring a backup does."""
    aside = folder.with_name("aside")
    shutil.copytree(folder, aside)
    shutil.rmtree(folder)
    shutil.copytree(aside, folder)


def reboot(folder: Path) -> None:
    sealed = read_seal(folder / SEAL)
    assert sealed
    write_seal(folder / SEAL, replace(sealed, boot="another"))


@pytest.mark.parametrize(
    "disturb", [touch, copy_back, reboot, lambda folder: (folder / SEAL).unlink()]
)
def test_a_sound_view_without_its_seal_is_proven_once_and_silently(
    repo: Repo, folder: Path, n_proofs: list[View], disturb: Callable[[Path], None]
) -> None:
    before = run(repo, *QUERY)
    disturb(folder)
    for _ in range(3):
        assert run(repo, *QUERY) == before
    assert len(n_proofs) == 1


def test_a_seal_outlives_a_boot_once_the_files_are_on_the_disk(
    repo: Repo, folder: Path, n_proofs: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_seal(folder / SEAL)
    assert before
    monkeypatch.setattr(time, "time_ns", lambda: before.files[DATABASE][-1] + 301 * 10**9)
    run(repo, *QUERY)
    after = read_seal(folder / SEAL)
    assert after == replace(before, boot="")
    monkeypatch.setattr(seal, "_boot", lambda: "another")
    run(repo, *QUERY)
    assert not n_proofs


def test_a_writer_killed_before_its_seal_costs_one_proof(
    repo: Repo, folder: Path, n_proofs: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(repo)
    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "write_seal", lambda *_: sys.exit(9))
        assert run(repo, *LEXICAL).code == 9
    assert '"notes/4"' in run(repo, *LEXICAL).out
    assert len(n_proofs) == 1
    assert run(repo, *LEXICAL).code == 0
    assert len(n_proofs) == 1


def test_a_writer_killed_in_its_transaction_leaves_the_view_of_before(
    repo: Repo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(repo, *QUERY)
    edit(repo)
    assert run(repo, "update").code == 0
    with monkeypatch.context() as patched:
        patched.setattr(view_update, "_count", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        pid = os.fork()
        if pid == 0:
            run(repo, *LEXICAL)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    repo.git("reset", "--quiet", "--hard")
    assert run(repo, *QUERY) == before


def test_an_index_that_changes_while_it_is_looked_at_is_looked_at_again(
    repo: Repo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(repo, *QUERY)
    index = repo.root / ".git/index"
    content = index.read_bytes()
    file = repo.root / "bundle/notes/4.md"
    document = file.read_bytes()
    (folder / SEAL).unlink()
    read = current.read_staged_snapshot

    def read_late(*arguments: Any) -> Any:
        edit(repo)
        return read(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(current, "read_staged_snapshot", read_late)
        assert run(repo, *QUERY).out != before.out
    index.write_bytes(content)
    file.write_bytes(document)
    assert run(repo, *QUERY).out == before.out


# What isn't

SQL = {
    "a text": "UPDATE chunk SET text = replace(text, 'tar', 'oil') WHERE id = 7",
    "a span": "UPDATE chunk SET char_end = char_end + 1 WHERE id = 7",
    "a document of a chunk": "UPDATE chunk SET document = document + 1 WHERE id = 7",
    "a path": "UPDATE document SET path = X'61' WHERE id = 2",
    "a lost chunk": "DELETE FROM chunk WHERE id = 7",
    "a lost document": "DELETE FROM document WHERE id = 2",
    "lost words": "DELETE FROM words WHERE rowid = 7",
    "words of another": "UPDATE words SET rowid = 7000 WHERE rowid = 7",
    "other words": "UPDATE words_content SET c2 = 'heron' WHERE id = 7",
    "a slot": "UPDATE chunk SET slot = 1 WHERE id = 7",
    "a slot's key": "UPDATE slot SET slot = slot + 1 WHERE slot = 3",
    "a slot beyond the matrix": "UPDATE slot SET slot = 70000 WHERE slot = 3",
    "a note": "UPDATE meta SET value = '[]' WHERE name = 'languages'",
    "a number": "UPDATE meta SET value = 'many' WHERE name = 'slots'",
    "an array": "UPDATE meta SET value = zeroblob(8) WHERE name = 'chunk_slots'",
    "no notes": "DELETE FROM meta",
    "a view that was never completed": "DELETE FROM meta WHERE name = 'revision'",
    "a lost table": "DROP TABLE slot",
    "another type": "UPDATE chunk SET slot = 'x' WHERE id = 7",
    "no UTF-8": "UPDATE chunk SET heading = CAST(X'FF' AS TEXT) WHERE id = 7",
}


def is_damaged(view: View) -> bool:
    try:
        prove(view)
    except DamagedView:
        return True
    return False


def test_every_change_behind_our_back_is_found(repo: Repo, folder: Path) -> None:
    with closing(open_to_write(folder)) as view:
        prove(view)
        for name, statement in SQL.items():
            view.db.execute("BEGIN")
            assert view.db.execute(statement).rowcount or name == "a lost table"
            assert is_damaged(view), name
            view.db.execute("ROLLBACK")
        prove(view)


def test_a_page_that_nothing_leads_to_is_found(repo: Repo, folder: Path) -> None:
    with database(folder) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'chunk_document'")
    with closing(open_to_write(folder)) as view:
        assert is_damaged(view)


@pytest.mark.parametrize("name", ["a text", "another type", "no notes"])
def test_a_damaged_view_is_made_again_and_that_is_said_once(
    repo: Repo, folder: Path, name: str
) -> None:
    before = run(repo, *QUERY)
    name_before = matrix(folder).name
    with database(folder) as db:
        db.execute(SQL[name])
    done = run(repo, *QUERY)
    assert done.out == before.out
    assert done.err.count("damaged") == 1
    assert matrix(folder).name != name_before, "who reads the old view must not take this for its"
    assert run(repo, *QUERY) == before


@pytest.mark.parametrize("byte", [0, 500, -1])
def test_a_flipped_bit_in_the_matrix_is_found(repo: Repo, folder: Path, byte: int) -> None:
    before = run(repo, *QUERY)
    file = matrix(folder)
    content = bytearray(file.read_bytes())
    content[byte] ^= 0x40
    file.write_bytes(content)
    done = run(repo, *QUERY)
    assert done.out == before.out
    assert "damaged" in done.err


def test_what_lies_behind_the_matrix_does_no_harm(repo: Repo, folder: Path) -> None:
    before = run(repo, *QUERY)
    with matrix(folder).open("ab") as file:
        file.write(b"\xff" * 9000)
    assert run(repo, *QUERY) == before
    edit(repo)
    assert run(repo, "update").code == 0
    assert run(repo, *QUERY).json()["retrieval"]["coverage"]["dense"] == 58


@pytest.mark.parametrize("name", ["a text", "a span", "a document of a chunk", "a path"])
def test_a_hit_is_proven_though_the_seal_holds(repo: Repo, folder: Path, name: str) -> None:
    wide = (*QUERY[:-2], "100", QUERY[-1])
    before = run(repo, *wide)
    with database(folder) as db:
        db.execute(SQL[name])
    reseal(folder)
    done = run(repo, *wide)
    assert done.out == before.out
    assert "damaged" in done.err


@pytest.mark.parametrize("statement", ["DROP TABLE words_idx", "UPDATE document SET tags = '{'"])
def test_an_error_in_a_sealed_but_damaged_view_is_no_bug(
    repo: Repo, folder: Path, statement: str
) -> None:
    query = (*LEXICAL, "--tag", "tower")
    before = run(repo, *query)
    with database(folder) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(statement)
    reseal(folder)
    done = run(repo, *query)
    assert done.out == before.out
    assert "damaged" in done.err


def test_an_error_with_a_sound_view_stays_what_it_is(repo: Repo, folder: Path) -> None:
    calls = []

    def fail(view: View) -> None:
        calls.append(view)
        raise ZeroDivisionError

    before = read_seal(folder / SEAL)
    with pytest.raises(ZeroDivisionError):
        use_view(repository(repo), fail)
    assert len(calls) == 1
    assert read_seal(folder / SEAL) == before


def repository(repo: Repo) -> Repository:
    return open_repository(repo.root)


def test_a_view_that_is_damaged_again_and_again_is_made_in_memory(repo: Repo, folder: Path) -> None:
    n_rounds = []

    def read(view: View) -> int:
        n_rounds.append(view.folder)
        if view.folder:
            raise DamagedView("again")
        return view.coverage().dense

    assert use_view(repository(repo), read) == 57
    assert n_rounds == [folder, folder, None]


def test_similarities_that_are_no_numbers_come_from_damage(repo: Repo, folder: Path) -> None:
    related = ("related", "--format", "json", "lamps")
    expected = {query: run(repo, *query).out for query in (QUERY, related)}
    for value in (np.nan, np.inf, -np.inf):
        for query, right in expected.items():
            vectors = np.fromfile(matrix(folder), np.float32)
            vectors[300] = value
            vectors.tofile(matrix(folder))
            reseal(folder)
            done = run(repo, *query)
            assert done.out == right
            assert "damaged" in done.err


# Side by side


def test_a_reader_keeps_its_state_and_the_seal_while_another_writes(
    repo: Repo, folder: Path, n_proofs: list[View]
) -> None:
    view = open_to_read(folder)
    before = [part.tobytes() for part in view.chunk_arrays()]
    edit(repo)
    assert run(repo, "update").code == 0
    assert run(repo, *QUERY).code == 0  # writes while the view is held
    assert [part.tobytes() for part in view.chunk_arrays()] == before
    prove_reading(view)
    assert run(repo, *QUERY).code == 0
    view.close()  # the last one, which must leave the files as they are
    assert run(repo, *QUERY).code == 0
    assert not n_proofs
    assert read_seal(folder / SEAL)


def prove_reading(view: View) -> None:
    vectors = view.matrix(256)
    for key, slot, stored in view.db.execute("SELECT key, slot, sum FROM slot"):
        from kbindex.view.database import slot_sum

        assert slot_sum(key, slot, vectors[slot]) == stored


def test_a_reader_does_not_discard_what_another_has_made_meanwhile(
    repo: Repo, folder: Path
) -> None:
    seals = []

    def read(view: View) -> int:
        if not seals:
            seals.append(read_seal(folder / SEAL))
            edit(repo)
            assert run(repo, *LEXICAL).code == 0
            seals.append(read_seal(folder / SEAL))
            raise DamagedView("the matrix was replaced meanwhile")
        return view.coverage().lexical

    assert use_view(repository(repo), read) == 58
    assert seals[0] != seals[1]
    assert read_seal(folder / SEAL) == seals[1]


WORKER = """
import json, sys
from typer.testing import CliRunner
from kbindex.cli import app
for _ in range(int(sys.argv[2])):
    done = CliRunner().invoke(app, ["--repo", sys.argv[1], "query", "--format", "json", "gull"])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["retrieval"]["coverage"]
    assert found["lexical"] == found["chunks"], found
"""


def test_many_readers_live_with_writers_and_damage(repo: Repo, folder: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(repo.root), "8"],
            env=repo.environment,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    n_changes = 0
    while any(worker.poll() is None for worker in workers):
        n_changes += 1
        edit(repo, f"The gull has egg {n_changes}.")
        run(repo, *LEXICAL)
        if n_changes % 3 == 0:
            with matrix(folder).open("r+b") as file:
                file.write(b"damage")
    said = [worker.communicate()[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    assert n_changes > 3


# Where it can't be written


def test_a_sealed_view_is_read_where_nothing_can_be_written(
    repo: Repo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(repo, *QUERY)
    for ending in ("-wal", "-shm"):
        (folder / f"{DATABASE}{ending}").unlink(missing_ok=True)
    connect = sqlite3.connect

    def refuse(file: object, **options: object) -> sqlite3.Connection:
        if "mode=ro" in str(file):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(file, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(view_files.sqlite3, "connect", refuse)
    assert run(repo, *QUERY) == before


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_view_that_cannot_be_written_is_brought_up_to_date_in_memory(
    repo: Repo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(repo, "A heron stood there.")
    assert run(repo, "update").code == 0
    before = (folder / DATABASE).read_bytes()
    monkeypatch.setattr(view_update, "_append", write_in_memory_alone(view_update._append))
    done = run(repo, "query", "--format", "json", "heron")
    assert done.code == 0
    assert done.json()["hits"][0]["id"] == "notes/4"
    assert done.json()["retrieval"]["coverage"]["dense"] == 58
    assert done.err.count("can't be written") == 1
    assert (folder / DATABASE).read_bytes() == before


def write_in_memory_alone(write: Callable[..., None]) -> Callable[..., None]:
    def attempt(view: View, *arguments: object) -> None:
        if view.folder:
            full()
        write(view, *arguments)

    return attempt


def test_a_seal_that_cannot_be_written_costs_proofs_and_nothing_else(
    repo: Repo, folder: Path, n_proofs: list[View], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(repo, *QUERY)
    (folder / SEAL).unlink()
    monkeypatch.setattr(os, "replace", full)
    assert run(repo, *QUERY) == before
    assert run(repo, *QUERY) == before
    assert len(n_proofs) == 2


# The seal


def test_a_seal_says_what_it_was_told(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
    made = make_seal(tmp_path, ("a", "empty", "none"), "r")
    assert made.files.keys() == {"a"}
    write_seal(tmp_path / "seal", made)
    assert read_seal(tmp_path / "seal") == made
    assert is_intact(made, tmp_path, ("empty", "none"))
    (tmp_path / "none").write_bytes(b"2")
    assert not is_intact(made, tmp_path, ("empty", "none")), "one that wasn't there"


def change_content(file: Path) -> None:
    before = file.stat()
    file.write_bytes(b"2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_file(file: Path) -> None:
    other = file.with_name("other")
    shutil.copy2(file, other)
    other.replace(file)


@pytest.mark.parametrize(
    "change",
    [
        change_content,
        replace_file,
        lambda file: file.write_bytes(b"12"),
        lambda file: file.unlink(),
    ],
)
def test_a_changed_file_breaks_the_seal_whatever_its_times_say(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1")
    os.utime(file, (1, 1))
    made = make_seal(tmp_path, ("a",), "r")
    assert is_intact(made, tmp_path, ())
    change(file)
    assert not is_intact(made, tmp_path, ())


@pytest.mark.parametrize("content", ["", "{}", "\n{}\n", "null", "[" * 50_000, "a\0b"])
def test_a_garbled_seal_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "seal").write_text(content)
    assert read_seal(tmp_path / "seal") is None


def test_a_seal_with_a_flipped_bit_is_none(tmp_path: Path) -> None:
    file = tmp_path / "seal"
    write_seal(file, Seal("r", {"a": (1, 2, 3, 4)}, "b", "i"))
    content = file.read_bytes()
    for place in range(len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        assert read_seal(file) is None
