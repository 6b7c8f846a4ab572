"""Damage to committed index files, by the hundred: it is named, never believed, and mended."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbindex.configuration.recipe import key_of
from kbindex.embed.hashing import HashEmbedder
from kbindex.storage.columns import checksum
from kbindex.storage.wal import decode_wal
from testing.commands import Done
from testing.documents import NOTE
from testing.index import (
    commit_versions_and_wal,
    forget_local_state,
    table_rows,
)
from testing.repositories import Repo, Template, run

N_MUTATIONS = int(os.environ.get("KBINDEX_STRESS_MUTATIONS", "1000"))
QUESTIONS = ("lenses each morning", "number 33", "東京", "text of two")


@pytest.fixture
def stored(from_template: Template) -> Repo:
    """A repository with two versions of the table and two WAL files."""

    def fill(repo: Repo) -> None:
        table = "".join(f"| {n} | the value of row number {n} |\n" for n in range(60))
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/table.md", f"# Table\n\n| number | value |\n|---|---|\n{table}")
        repo.write("bundle/tokyo.md", "\ufeff# Größe\r\n\r\n東京 🗼 tower.\r\n")
        commit_versions_and_wal(repo)

    return from_template("stored-for-damage", fill)


def index_files(repo: Repo) -> list[Path]:
    return sorted(f for f in (repo.root / ".kbindex").rglob("*") if f.is_file())


Mutation = Callable[[random.Random, Path, list[Path]], None]


def flip(rng: random.Random, file: Path, _: list[Path]) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    for _number in range(rng.choice((1, 1, 1, 5))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def cut(rng: random.Random, file: Path, _: list[Path]) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.randrange(len(content) + 1)])


def append(rng: random.Random, file: Path, _: list[Path]) -> None:
    file.write_bytes(file.read_bytes() + rng.choice((b"\n", b"\0" * 9, rng.randbytes(40))))


def drop_a_part(rng: random.Random, file: Path, _: list[Path]) -> None:
    content = file.read_bytes()
    at = rng.randrange(len(content) + 1)
    file.write_bytes(content[:at] + content[at + rng.randrange(1, 80) :])


def delete(_rng: random.Random, file: Path, _: list[Path]) -> None:
    file.unlink()


def rename(rng: random.Random, file: Path, _: list[Path]) -> None:
    name = rng.choice((f"x{file.name}", f"{'0' * 32}{file.suffix}", file.name.upper()))
    file.rename(file.with_name(name))


def take_another(rng: random.Random, file: Path, files: list[Path]) -> None:
    file.write_bytes(rng.choice(files).read_bytes())


def copy_elsewhere(rng: random.Random, file: Path, files: list[Path]) -> None:
    shutil.copyfile(file, rng.choice(files).parent / f"{rng.randrange(10**9):032d}{file.suffix}")


def end_lines_otherwise(_rng: random.Random, file: Path, _: list[Path]) -> None:
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))


def conflict(_rng: random.Random, file: Path, _: list[Path]) -> None:
    content = file.read_bytes()
    file.write_bytes(b"<<<<<<< HEAD\n" + content + b"=======\n" + content + b">>>>>>> other\n")


def point_elsewhere(_rng: random.Random, file: Path, _: list[Path]) -> None:
    file.write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    )


def link(_rng: random.Random, file: Path, _: list[Path]) -> None:
    file.unlink()
    file.symlink_to("/etc/hostname")


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, flip, flip, cut, append, drop_a_part, delete, rename, take_another),
    *(copy_elsewhere, end_lines_otherwise, conflict, point_elsewhere, link),
)


def is_right(repo: Repo, *, counts: bool = True) -> bool:
    """Whether the index is that of the documents by another way than the checks go.

    The outlines are those of a repository that was never damaged, and each live key has a vector
    that is what the embedder makes of a text. Token ``counts`` in outlines are what only
    ``check --strict`` proves.
    """
    embedder = HashEmbedder()
    known: dict[str, bytes] = {}
    for text in json.loads((repo.root.parent / "shown.json").read_text()):
        vector = embedder.embed_query(text).astype(np.float16)
        known[key_of(embedder.identity, text)] = vector.tobytes()
    outlines = json.loads((repo.root.parent / "outlines.json").read_text())
    found = outlines_of(repo)
    if found != outlines and (counts or without_counts(found) != without_counts(outlines)):
        return False
    parts = [decode_wal(file.read_bytes()) for file in (repo.root / ".kbindex/wal").glob("*.arrow")]
    if (repo.root / ".kbindex/chunks.lance").exists():
        parts.append(table_rows(repo.root / ".kbindex"))
    right = {
        row.key
        for rows, vectors in parts
        for row, vector in zip(rows, vectors, strict=True)
        if checksum(row.key, vector) == row.sum and known.get(row.key) == vector.tobytes()
    }
    live = {
        line.split("\t")[0]
        for text in outlines.values()
        for line in text.splitlines()
        if line and not line.startswith("-")
    }
    return live <= right


def without_counts(outlines: dict[str, str]) -> dict[str, list[list[str]]]:
    return {
        name: [[*fields[:2], *fields[3:]] for fields in map(_fields, text.split("\n"))]
        for name, text in outlines.items()
    }


def _fields(line: str) -> list[str]:
    return line.split("\t")


def outlines_of(repo: Repo) -> dict[str, str]:
    folder = repo.root / ".kbindex/outline"
    return {  # blank lines only keep merges apart
        file.relative_to(folder).as_posix(): re.sub(
            r"\n+", "\n", file.read_bytes().decode("utf-8", "replace")
        ).strip("\n")
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


def note_truth(repo: Repo) -> None:
    """Write down what is right, before anything is damaged."""
    from kbindex.outline.states import Proven
    from kbindex.storage.tree import open_index

    states = open_index(repo.root, None).compare(HashEmbedder.identity)
    proven = [state for state in states if isinstance(state, Proven)]
    shown = [entry.shown for state in proven for entry in state.entries if entry.shown is not None]
    (repo.root.parent / "shown.json").write_text(json.dumps(shown))
    (repo.root.parent / "outlines.json").write_text(json.dumps(outlines_of(repo)))


def assert_documented(done: Done, codes: tuple[int, ...]) -> None:
    assert done.code in codes, (done.code, done.out, done.err)
    assert "Traceback" not in done.err
    assert "bug" not in done.err


def try_mutation(repo: Repo, seed: int) -> str:
    """Damage one file and commit it; return what the check said."""
    rng = random.Random(seed)
    files = index_files(repo)
    mutation = rng.choice(MUTATIONS)
    mutation(rng, rng.choice(files), files)
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", "damage")
    if rng.random() < 0.5:
        forget_local_state(repo)
    checked = run(repo, "check")
    assert_documented(checked, (0, 1, 3))
    if checked.code == 0:
        assert is_right(repo, counts=False), f"{mutation.__name__} was called fresh"
    for question in QUESTIONS:
        done = run(repo, "query", question, "--text", "--format", "json")
        assert_documented(done, (0, 1, 3))
        for hit in done.json()["hits"] if done.code == 0 else ():
            text = repo.blob(hit["path"]).decode()
            assert text[slice(*hit["span"])] == hit["text"]
    updated = run(repo, "update")
    if "is a symbolic link" in updated.err:  # nothing writes through one; the remedy is to
        for file in (repo.root / ".kbindex").rglob("*"):
            if file.is_symlink():
                file.unlink()
        updated = run(repo, "update")
    assert_documented(updated, (0,))
    if "without older versions" in run(repo, "check", "--strict").out:
        assert run(repo, "compact").code == 0
    assert run(repo, "check", "--strict").code == 0, updated.out
    assert is_right(repo), f"{mutation.__name__} was not mended"
    return {0: "fresh", 1: "stale", 3: "damaged"}[checked.code]


def try_many(repo: Repo, scratch: Path, seeds: range) -> Counter[str]:
    note_truth(repo)
    found: Counter[str] = Counter()
    for seed in seeds:
        root = scratch / f"damaged-{seed}"
        shutil.copytree(repo.root, root, symlinks=True)
        damaged = Repo(root, repo.environment)
        damaged.git("update-index", "--refresh", "-q", check=False)
        try:
            found[try_mutation(damaged, seed)] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        shutil.rmtree(root)
    return found


def test_damage_is_named_and_mended(stored: Repo, tmp_path: Path) -> None:
    found = try_many(stored, tmp_path, range(10))
    assert found["damaged"] > 0


@pytest.mark.stress
@pytest.mark.parametrize("part", range(8))
def test_much_damage_is_named_and_mended(stored: Repo, tmp_path: Path, part: int) -> None:
    size = N_MUTATIONS // 8
    found = try_many(stored, tmp_path, range(1000 + part * size, 1000 + (part + 1) * size))
    print(dict(found))
    assert found["damaged"] > size // 4
