"""git takes no file of the index for a rename of another: a merge would find conflicts in that."""

from __future__ import annotations

import hashlib
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.storage.columns import checksum
from kbindex.storage.rows import to_arrow
from kbindex.storage.table import append_rows
from kbindex.storage.wal import decode_wal, encode_wal
from kbindex.storage.writer import in_document_order, stack_vectors
from testing.index import update_and_commit
from testing.repositories import Repo, Template

SIZES = [*range(1, 13), 16, 20, 25, 30]
Made = tuple[list[Row], NDArray[np.float16]]


def make_rows(n_rows: int, dimension: int, seed: int, n_words: int | None = None) -> Made:
    """Return rows of one document and their vectors; with ``n_words`` all but so many are zero."""
    dice = np.random.default_rng(seed)
    vectors = dice.standard_normal((n_rows, dimension)).astype(np.float32)
    if n_words is not None:
        order = dice.random((n_rows, dimension)).argsort(axis=1)
        vectors = np.where(order < n_words, np.sign(vectors), 0)
    stored = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    rows = []
    for number in range(n_rows):
        key = hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:32]
        at, heading = number * 700, ("Rotation", "On the primary")
        note = ("bundle/procedures/rotate-keys.md", number, "3f1c" * 10, at, at + 700, heading)
        rows.append(Row(key, "a1b2c3d4e5f6", *note, 175, checksum(key, stored[number])))
    return rows, stored


def as_before(rows: list[Row], vectors: NDArray[np.float16]) -> bytes:
    """Return a WAL file as versions wrote it that did not pad."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].key)
    table = to_arrow([rows[i] for i in order], vectors[order])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def renames(folder: Path, gone: Mapping[str, bytes], come: Mapping[str, bytes]) -> list[str]:
    """Return what git takes for a rename where all of ``gone`` went and ``come`` came."""
    for name, files in (("gone", gone), ("come", come)):
        (folder / name).mkdir()
        for path, content in files.items():
            (folder / name / f"{name} {path}").write_bytes(content)
    done = subprocess.run(
        ["git", "diff", "--no-index", "-M50%", "-l0", "--raw", folder / "gone", folder / "come"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    return [line for line in done.stdout.splitlines() if " R" in line]


KINDS = [(256, None), (256, 14), (256, 90), (384, None), (1024, None)]


@pytest.mark.parametrize(("dimension", "n_words"), KINDS)
def test_no_two_wal_files_are_alike(tmp_path: Path, dimension: int, n_words: int | None) -> None:
    gone = [make_rows(n, dimension, n, n_words) for n in SIZES]
    come = [make_rows(n, dimension, 1000 + n, n_words) for n in SIZES]
    old = {f"old {n}": as_before(*made) for n, made in zip(SIZES, gone, strict=True)}
    new = {f"new {n}": encode_wal(*made)[1] for n, made in zip(SIZES, gone, strict=True)}
    added = {f"{n}": encode_wal(*made)[1] for n, made in zip(SIZES, come, strict=True)}
    assert renames(tmp_path, old | new, added) == []


@pytest.mark.parametrize(("dimension", "n_words"), KINDS)
def test_no_wal_file_is_like_the_data_file_that_its_rows_move_to(
    tmp_path: Path, dimension: int, n_words: int | None
) -> None:
    wal, data = {}, {}
    for n_rows in (2, 7, 12, 60):
        rows, vectors = decode_wal(encode_wal(*make_rows(n_rows, dimension, n_rows, n_words))[1])
        wal[f"{n_rows}"] = encode_wal(rows, vectors)[1]
        by_key = {row.key: vector for row, vector in zip(rows, vectors, strict=True)}
        rows = in_document_order(rows)
        files = append_rows(rows, stack_vectors(rows, by_key), None)
        (data[f"{n_rows}"],) = (files[name] for name in files if name.endswith(".lance"))
    assert renames(tmp_path, wal, data) == []


@pytest.mark.parametrize("n_rows", SIZES[:4])
def test_a_padded_file_holds_the_same_rows_at_the_same_cost(n_rows: int) -> None:
    rows, vectors = make_rows(n_rows, 384, 5)
    before, (name, content) = as_before(rows, vectors), encode_wal(rows, vectors)
    assert len(content) >= len(before)
    assert len(zlib.compress(content)) - len(zlib.compress(before)) <= 150
    found, stored = decode_wal(content)
    assert sorted(found, key=lambda row: row.ordinal) == rows
    assert {v.tobytes() for v in stored} == {v.tobytes() for v in vectors}
    assert encode_wal(found, stored) == (name, content)


# On a server


@pytest.fixture
def started(from_template: Template) -> Repo:
    def fill(repo: Repo) -> None:
        repo.write("bundle/log.md", "# Log\n\nThe keeper writes the log.\n")
        update_and_commit(repo, "base")

    return from_template("alike", fill)


def add(repo: Repo, name: str) -> str:
    """Commit a new document with its index; return the commit."""
    repo.write(f"bundle/{name}.md", f"# {name}\n\nText of {name}.\n")
    repo.git("add", "--all")
    assert repo.call("update").code == 0
    return repo.commit(name)


def test_a_commit_that_is_reverted_here_and_checkpointed_there_merges_fresh(
    started: Repo,
) -> None:
    first = add(started, "first")
    assert started.call("checkpoint").code == 0
    started.commit("checkpoint")
    add(started, "second")
    started.git("checkout", "--quiet", "-b", "topic", first)
    started.git("revert", "--no-edit", first)
    tree: Any = started.git("merge-tree", "--write-tree", "main", "topic").strip()
    checked = started.call("check", "--rev", tree)
    assert checked.code == 0, checked.out
