"""Random damage to the local state of a small repository, and what has to hold all the same.

Shared by the short run of ``test_damage.py`` and the long one of ``stress/test_local_damage.py``.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kbindex.view.files import SEAL
from kbindex.view.seal import make_seal, read_seal, write_seal
from testing.commands import Done
from testing.documents import NOTE
from testing.repositories import Repo, run

NAMES = ("view", "view-wal", "view-shm", "matrix", "cache", "cache-journal", "seal", "servers",
         "unstaged", "refused", "lock")  # fmt: skip
_GLOBS = {
    "view": "view-*.sqlite",
    "view-wal": "view-*.sqlite-wal",
    "view-shm": "view-*.sqlite-shm",
    "matrix": "matrix-*.f32",
    "cache": "cache-*.sqlite",
    "cache-journal": "cache-*.sqlite-journal",
    "seal": "seal*",
    "servers": "servers.json",
    "unstaged": "unstaged.json",
    "refused": "refused",
    "lock": "lock",
}
_ASIDE = {"view-wal": ("view", "-wal"), "view-shm": ("view", "-shm"),
          "cache-journal": ("cache", "-journal")}  # fmt: skip
QUERIES = (
    ("query", "--format", "json", "--text", "--explain", "-k", "6", "who wipes the lenses at dawn"),
    ("query", "--format", "json", "--mode", "dense", "--text", "-k", "20", "barrels of tar"),
    ("query", "--format", "json", "--mode", "lexical", "--tag", "tower", "paraffin cellar"),
    ("related", "--format", "json", "lamps"),
    ("get", "--format", "json", "notes/3#part-2"),
)
DOCUMENTED = {1, 2, 3, 4}
LIVE = "live"
"""Files as they are when no process is at work; KILLED, as one left them that was killed."""
KILLED = "killed"


def fill(repo: Repo) -> None:
    """Write a bundle of 14 documents, index and commit it."""
    repo.write("bundle/lamps.md", NOTE)
    words = "tar barrel keeper lens dawn paraffin wick oil rope sail gull harbour"
    chance = random.Random(5)
    for number in range(13):
        parts = [f"# Notes {number}\n"]
        for part in range(4):
            sentence = " ".join(chance.choices(words.split(), k=40))
            parts.append(f"\n## Part {part}\n\n{sentence} of {number} and {part}.\n")
        repo.write(f"bundle/notes/{number}.md", "".join(parts))
    done = repo.call("init", "--hooks", "none")
    assert done.code == 0, done.err
    repo.commit("first")


EDITED = "bundle/notes/4.md"
EDIT = "\n## Later\n\nThe gull took the wick.\n\n## Last\n\nNobody saw the sail.\n"


@dataclass
class Victim:
    """A repository whose local state is damaged again and again, and what it says unharmed."""

    repo: Repo
    answers: list[str] = field(default_factory=list)
    edited_tree: str = ""
    edited_answers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Note what is said before and after an edit whose vectors only the cache holds."""
        self.answers = [run(self.repo, *query).out for query in QUERIES]
        self._keep("live")
        self._leave_as_killed()
        self._keep("killed")
        self._reset()
        self._edit()
        assert run(self.repo, "update").code == 0
        self.edited_tree = self.repo.git("write-tree").strip()
        self.edited_answers = [run(self.repo, *query).out for query in QUERIES]
        self._keep("other")
        self._reset()
        for name in (LIVE, KILLED):  # the edit's vectors are known, but not committed
            for file in self._local.glob("cache-*.sqlite"):
                shutil.copy2(file, self._kept(name) / file.name)

    @property
    def _local(self) -> Path:
        return self.repo.root / ".git/kbindex"

    def _kept(self, name: str) -> Path:
        return self.repo.root.parent / f"kept-{self.repo.root.name}-{name}"

    def _keep(self, name: str) -> None:
        shutil.copytree(self._local, self._kept(name))

    def _edit(self) -> None:
        file = self.repo.root / EDITED
        file.write_text(file.read_text() + EDIT)
        self.repo.git("add", EDITED)

    def _reset(self) -> None:
        self.repo.git("reset", "--quiet", "--hard")

    def _leave_as_killed(self) -> None:
        """Change the view and leave what a killed process leaves: its log beside the view."""
        (view,) = self._local.glob("view-*.sqlite")
        reader = sqlite3.connect(view, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        self._edit()
        run(self.repo, *QUERIES[2])
        self._reset()
        run(self.repo, *QUERIES[2])
        aside = self._local.with_name("aside")
        shutil.copytree(self._local, aside)
        reader.close()
        self._restore(aside)
        shutil.rmtree(aside)

    def _restore(self, kept: Path) -> None:
        remove(self._local)
        shutil.copytree(kept, self._local)

    def suffer(self, seed: int) -> str:
        """Damage the local state once; return what was done. Fails where something is wrong."""
        chance = random.Random(seed)
        state = chance.choice((LIVE, LIVE, LIVE, KILLED))
        self._restore(self._kept(state))
        if state == LIVE:
            reseal(self._local)
        done = [self._mutate(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        return f"{seed} {state}: " + "; ".join(done)

    def _mutate(self, chance: random.Random) -> str:
        name = chance.choice(NAMES)
        file = self._file(name)
        mutation = chance.choice(MUTATIONS)
        if not file.exists():
            file.write_bytes(chance.randbytes(chance.choice((0, 32, 4120, 70_000))))
            return f"{name} made up"
        if mutation is swap:
            other = self._file(chance.choice(NAMES))
            if other.exists():
                swap(file, other)
            return f"{name} and {other.name} swapped"
        if mutation is exchange:
            found = list(self._kept("other").glob(_GLOBS[name]))
            if found and file.is_file():
                shutil.copyfile(found[0], file)
            return f"{name} from another time"
        mutation(file, chance)
        return f"{name} {mutation.__name__}"

    def _file(self, name: str) -> Path:
        found = sorted(self._local.glob(_GLOBS[name]))
        if name in ("view", "cache"):
            found = [file for file in found if file.suffix == ".sqlite"]
        if found:
            return found[0]
        if name in _ASIDE:
            base, suffix = _ASIDE[name]
            beside = self._file(base)
            return beside.with_name(beside.name + suffix)
        return self._local / _GLOBS[name].replace("*", "x")

    def answer(self, chance: random.Random, n_queries: int, *, edited: bool = False) -> None:
        """Ask some questions, each answered as if nothing had happened."""
        expected = self.edited_answers if edited else self.answers
        for number in chance.sample(range(len(QUERIES)), n_queries):
            done = run(self.repo, *QUERIES[number])
            assert_said(done)
            assert done.code == 0, f"{QUERIES[number]}: {done}"
            assert done.out == expected[number], f"another answer to {QUERIES[number]}: {done.out}"

    def prove(self, *, strict: bool = True) -> None:
        """Check the commit, then update an edit from the cache: the index is the right one."""
        if strict:
            done = run(self.repo, "check", "--strict")
            assert done.code == 0, f"check: {done}"
        self._edit()
        try:
            done = run(self.repo, "update")
            assert_said(done)
            assert done.code == 0, f"update: {done}"
            found = self.repo.git("write-tree").strip()
            assert found == self.edited_tree, f"another index is committed: {done}"
            self.answer(random.Random(1), 1, edited=True)
        finally:
            self._reset()


def reseal(folder: Path) -> None:
    """Let changed files look as if they were proven, as they do when no program changed them."""
    seal = read_seal(folder / SEAL)
    assert seal
    now = make_seal(folder, seal.files, seal.revision)
    write_seal(folder / SEAL, replace(now, index=seal.index))


def assert_said(done: Done) -> None:
    """Assert that what was said is a few sentences of ours."""
    lines = done.err.splitlines()
    assert done.code != 70, f"exit 70: {done}"
    assert all(line.startswith("kbindex: ") for line in lines), f"said: {done.err}"
    assert len(lines) <= 5, f"said too much: {done.err}"


# Mutations


def flip(file: Path, chance: random.Random) -> None:
    _flip(file, chance, 1)


def flip_some(file: Path, chance: random.Random) -> None:
    _flip(file, chance, chance.randint(2, 40))


def _flip(file: Path, chance: random.Random, n_bits: int) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(n_bits if content else 0):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def flip_unseen(file: Path, chance: random.Random) -> None:
    """Flip a bit and put the times back, as far as a program can."""
    before = file.stat()
    with file.open("r+b") as stream:
        if before.st_size:
            at = chance.randrange(before.st_size)
            stream.seek(at)
            byte = stream.read(1)[0] ^ 1 << chance.randrange(8)
            stream.seek(at)
            stream.write(bytes([byte]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randint(0, file.stat().st_size))


def empty(file: Path, _: random.Random) -> None:
    file.write_bytes(b"")


def append(file: Path, chance: random.Random) -> None:
    with file.open("ab") as stream:
        stream.write(chance.randbytes(chance.randint(1, 9000)))


def to_crlf(file: Path, _: random.Random) -> None:
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))


def lose_page(file: Path, chance: random.Random) -> None:
    """Overwrite a page with zeros, garbage or another page."""
    content = bytearray(file.read_bytes())
    n_pages = len(content) // 4096
    if n_pages:
        at, other = (4096 * chance.randrange(n_pages) for _ in range(2))
        page = chance.choice((bytes(4096), chance.randbytes(4096), content[other : other + 4096]))
        content[at : at + 4096] = page
    file.write_bytes(content)


GARBAGE = (
    b"garbage " * 600,
    b"null",
    b"[" * 30_000,
    b'{"a": {"b": [1e999, null]}}',
    b"\0" * 900,
    b"a" * 40,
)


def scribble(file: Path, chance: random.Random) -> None:
    file.write_bytes(chance.choice(GARBAGE))


def remove(file: Path, _: random.Random | None = None) -> None:
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def become_folder(file: Path, _: random.Random) -> None:
    remove(file)
    file.mkdir()


def swap(file: Path, other: Path) -> None:
    aside = file.with_name("aside")
    file.rename(aside)
    if other.exists():
        other.rename(file)
    aside.rename(other)


def exchange(file: Path, chance: random.Random) -> None:
    """Stands for the same file of another moment."""


def _on_files(mutation: Callable[[Path, random.Random], None]) -> Callable[..., None]:
    def mutate(file: Path, chance: random.Random) -> None:
        if file.is_file():
            mutation(file, chance)

    mutate.__name__ = mutation.__name__
    return mutate


MUTATIONS: tuple[Callable[..., None], ...] = (
    *map(_on_files, (flip, flip, flip, flip_some, flip_unseen, flip_unseen)),
    *map(_on_files, (truncate, empty, append, append, to_crlf, lose_page, lose_page, scribble)),
    remove,
    become_folder,
    swap,
    exchange,
)


def kind_of(line: str) -> str:
    """Return what was done without its numbers, to count by."""
    return re.sub(r"^\d+ ", "", line)
