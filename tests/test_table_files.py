"""The strict readers of table and WAL: they read what is written, and nothing else."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.core.paths import TABLE
from kbindex.storage.arrow_stream import read_stream
from kbindex.storage.columns import checksum, read_rows
from kbindex.storage.encodings import decode_levels, decode_numbers
from kbindex.storage.manifest import read_manifest, write_manifest
from kbindex.storage.protobuf import read_fields, write_fields
from kbindex.storage.table_files import prove_versions, read_table
from kbindex.storage.wal import decode_wal, encode_wal
from testing.index import table_rows, write_table

SIZES = (1, 2, 3, 5, 8, 13, 30, 60, 100, 300, 700, 1000, 1024, 1025, 2048, 4097)
LETTERS = "abcdefghijklmnopqrstuvwxyzáéñ字🗼 ./"


def made_rows(seed: int, n_rows: int | None = None) -> tuple[list[Row], NDArray[np.float16]]:
    """Return rows of one of many shapes: LanceDB chooses its encodings by what it sees."""
    rng = random.Random(seed)
    n_rows = n_rows or rng.choice(SIZES)
    dimension = rng.choice((3, 16, 64, 256, 384, 768))
    n_documents = max(1, n_rows // rng.choice((1, 2, 10, 50, 1000)))
    longest = rng.choice((8, 60, 2000))

    def text(least: int = 1) -> str:
        return "".join(rng.choices(LETTERS, k=rng.randint(least, longest)))

    paths = [f"bundle/{text()}.md" for _ in range(min(n_documents, 400))]
    headings = [
        tuple(text(0) for _ in range(rng.choice((0, 0, 1, 2, 6))))
        for _ in range(rng.choice((1, 2, 300)))
    ]
    vectors = np.random.default_rng(seed).standard_normal((n_rows, dimension)).astype(np.float16)
    if rng.random() < 0.2:
        vectors[:] = vectors[0]
    numbers = [numbers_of(rng, n_rows) for _ in range(3)]
    embedders = ["0123456789ab"] * 4 + ["ba9876543210"] * rng.randint(0, 1)
    rows = []
    for number in range(n_rows):
        key = hashlib.sha256(f"{seed} {number}".encode()).hexdigest()[:32]
        document = number * len(paths) // n_rows
        start, size, count = (found[number] for found in numbers)
        rows.append(
            Row(
                key=key,
                embedder=rng.choice(embedders),
                path=paths[document],
                ordinal=count % (1 << 31),
                blob=hashlib.sha1(paths[document].encode()).hexdigest(),  # noqa: S324
                char_start=start,
                char_end=start + size,
                heading=headings[number // 3 % len(headings)],
                n_tokens=size % (1 << 31),
                sum=checksum(key, vectors[number]),
            )
        )
    return rows, vectors


def numbers_of(rng: random.Random, n_rows: int) -> list[int]:
    """Return numbers of one of many kinds: small, large, few different ones, in runs, equal."""
    largest = 1 << rng.choice((1, 4, 9, 16, 31, 40, 60))
    some = [rng.randrange(largest) for _ in range(rng.choice((1, 2, 3, 7, 40)))]
    kind = rng.randrange(5)
    if kind == 0:
        return [rng.randrange(largest) for _ in range(n_rows)]
    if kind == 1:
        return [rng.choice(some) for _ in range(n_rows)]
    if kind == 2:
        return [some[number // rng.choice((3, 30)) % len(some)] for number in range(n_rows)]
    if kind == 3:
        return sorted(rng.randrange(largest) for _ in range(n_rows))
    return [some[0]] * n_rows


def lance_rows(folder: Path) -> list[dict[str, Any]]:
    import lancedb

    found: list[dict[str, Any]] = (
        lancedb.connect(folder).open_table("chunks").to_arrow().to_pylist()
    )
    return found


@pytest.mark.parametrize("seed", range(16))
def test_a_table_is_read_as_lancedb_reads_it(tmp_path: Path, seed: int) -> None:
    rows, vectors = made_rows(seed)
    write_table(tmp_path, rows, vectors)
    read, read_vectors = table_rows(tmp_path)
    assert read == rows
    assert read_vectors.tobytes() == vectors.tobytes()
    theirs = lance_rows(tmp_path)
    assert [as_row(found) for found in theirs] == read
    assert theirs[-1]["vector"] == vectors[-1].tolist()


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_many_tables_are_read_as_they_were_written(tmp_path: Path, seed: int) -> None:
    rows, vectors = made_rows(seed, random.Random(seed).choice((*SIZES, 30_000)))
    write_table(tmp_path, rows, vectors)
    read, read_vectors = table_rows(tmp_path)
    assert read == rows
    assert read_vectors.tobytes() == vectors.tobytes()


def test_several_versions_are_one_table(tmp_path: Path) -> None:
    rows, vectors = made_rows(3, 90)
    for first in (0, 30, 60):
        write_table(tmp_path, rows[first : first + 30], vectors[first : first + 30])
    assert table_rows(tmp_path)[0] == rows == [as_row(found) for found in lance_rows(tmp_path)]


def as_row(found: dict[str, Any]) -> Row:
    values = {name: value for name, value in found.items() if name not in ("vector", "tokens")}
    return Row(**values | {"heading": tuple(found["heading"]), "n_tokens": found["tokens"]})


# What the writer never writes


def files_of(folder: Path) -> dict[str, bytes]:
    table = folder / TABLE
    return {
        f.relative_to(table).as_posix(): f.read_bytes() for f in table.rglob("*") if f.is_file()
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a table of two versions."""
    folder = tmp_path_factory.mktemp("table")
    rows, vectors = made_rows(1, 40)
    write_table(folder, rows[:30], vectors[:30])
    write_table(folder, rows[30:], vectors[30:])
    return files_of(folder)


def manifest_of(table: dict[str, bytes]) -> str:
    return min(name for name in table if name.endswith(".manifest"))


def test_a_manifest_written_anew_says_the_same(table: dict[str, bytes]) -> None:
    read = read_manifest(table[manifest_of(table)])
    assert read_manifest(write_manifest(read)) == read
    assert [fragment.n_rows for fragment in read.fragments] == [30, 10]


Fields = list[tuple[int, Any]]


def changed(content: bytes, change: Callable[[Fields], Fields]) -> bytes:
    """Return a manifest file with other fields in its message."""
    message = content[4:-16] if content[-16:-8] == bytes(8) else b""
    listed = [(n, value) for n, values in read_fields(message).items() for value in values]
    message = write_fields(change(listed))
    return len(message).to_bytes(4, "little") + message + content[-16:]


def fragment_with(**extra: Any) -> Callable[[Fields], Fields]:
    """Return what gives the first data file's entry, or its fragment, further fields."""

    def change(fields: Fields) -> Fields:
        at = next(index for index, (number, _) in enumerate(fields) if number == 2)
        fragment = {n: v[0] for n, v in read_fields(fields[at][1]).items()}
        file = {n: v[0] for n, v in read_fields(fragment[2]).items()}
        file |= {int(n[1:]): v for n, v in extra.items() if n.startswith("f")}
        fragment |= {int(n[1:]): v for n, v in extra.items() if n.startswith("x")}
        fragment[2] = write_fields(sorted(file.items()))
        return [*fields[:at], (2, write_fields(sorted(fragment.items()))), *fields[at + 1 :]]

    return change


BASE_PATH = write_fields([(1, 1), (3, 1), (4, b"s3://bucket/of/a/stranger")])
HOSTILE_MANIFESTS: dict[str, Callable[[Fields], Fields]] = {
    "base paths": lambda fields: [*fields, (18, BASE_PATH)],
    "a data file elsewhere": fragment_with(f7=1),
    "a data file above": fragment_with(f1=b"../../../secret.lance"),
    "an absolute data file": fragment_with(f1=b"/etc/passwd.lance"),
    "a deletion file": fragment_with(x3=write_fields([(1, 0), (2, 1), (3, 5), (4, 1)])),
    "row ids in a file": fragment_with(x6=write_fields([(1, b"/etc/passwd"), (2, 0), (3, 9)])),
    "an overlay": fragment_with(x11=b""),
    "an index section": lambda fields: [*fields, (6, 0)],
    "configuration": lambda fields: [*fields, (16, write_fields([(1, b"a"), (2, b"b")]))],
    "a branch": lambda fields: [*fields, (20, b"other")],
    "feature flags": lambda fields: [*fields, (9, 16)],
    "an unknown field": lambda fields: [*fields, (999, b"new")],
    "another format": lambda fields: [
        (n, write_fields([(1, b"lance"), (2, b"legacy")])) if n == 15 else (n, v) for n, v in fields
    ],
    "another column": lambda fields: [*fields, (1, write_fields([(2, b"x"), (5, b"null")]))],
    "a version twice": lambda fields: [*fields, (3, 7)],
    "a number for a message": lambda fields: [(n, 5 if n == 2 else v) for n, v in fields],
}


@pytest.mark.parametrize("change", HOSTILE_MANIFESTS.values(), ids=HOSTILE_MANIFESTS)
def test_a_manifest_with_anything_more_is_refused(
    table: dict[str, bytes], change: Callable[[Fields], Fields]
) -> None:
    ours = write_manifest(read_manifest(table[manifest_of(table)]))
    read_manifest(changed(ours, lambda fields: fields))
    with pytest.raises(ValueError, match=r"."):
        read_manifest(changed(ours, change))


def test_a_table_with_more_rows_than_bytes_is_refused_at_once(table: dict[str, bytes]) -> None:
    name = manifest_of(table)
    huge = fragment_with(x4=10**9)
    content = changed(write_manifest(read_manifest(table[name])), huge)
    with pytest.raises(ValueError, match="more rows than it has room for"):
        read_table(table, {**table, name: content}.__getitem__)


def test_every_version_and_transaction_is_proven(table: dict[str, bytes]) -> None:
    prove_versions(table, table.__getitem__)
    old = max(name for name in table if name.endswith(".manifest"))
    base = changed(
        write_manifest(read_manifest(table[old])), lambda fields: [*fields, (18, BASE_PATH)]
    )
    (hint,) = (name for name in table if name.endswith(".json"))
    transaction = min(name for name in table if name.endswith(".txn"))
    hostile = write_fields([(2, b"7f75d803-00ff-45c9-bdcd-500a2dfbfbb5"), (108, b"clone")])
    inline = len(hostile).to_bytes(4, "little") + hostile
    message = write_manifest(read_manifest(table[old]))
    footer = len(inline).to_bytes(8, "little") + message[-8:]
    for name, content in (
        (old, base),
        (old, inline + message[:-16] + footer),
        (transaction, hostile),
        (transaction, b""),
        (hint, b'{"version":1,"path":"s3://"}'),
    ):
        with pytest.raises(ValueError, match=name.split("/")[0]):
            prove_versions(table, {**table, name: content}.__getitem__)


def test_a_manifest_of_another_version_s_name_is_refused(table: dict[str, bytes]) -> None:
    name = manifest_of(table)
    older = max(other for other in table if other.endswith(".manifest"))
    with pytest.raises(ValueError, match="another version"):
        read_table(table, {**table, name: table[older]}.__getitem__)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return ``content`` with some bits flipped, or a part cut out, doubled or overwritten."""
    at, size = rng.randrange(len(content)), rng.randrange(1, 64)
    kind = rng.randrange(5)
    if kind == 0:
        return content[:at] + content[at + size :]
    if kind == 1:
        return content[:at] + content[at : at + size] * 2 + content[at + size :]
    if kind == 2:
        return content[:at] + rng.randbytes(size) + content[at + size :]
    flipped = bytearray(content)
    for _ in range(rng.choice((1, 1, 3))):
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def assert_sound_or_refused(
    read: Callable[[], tuple[list[Row], NDArray[np.float16]]], known: set[Row]
) -> bool:
    """Whether it was read: then each row has its checksum or shows that it hasn't."""
    try:
        rows, vectors = read()
    except ValueError:
        return False
    with np.errstate(all="ignore"):
        sound = [
            row for number, row in enumerate(rows) if checksum(row.key, vectors[number]) == row.sum
        ]
    assert {(row.key, row.sum) for row in sound} <= {(row.key, row.sum) for row in known}
    return True


@pytest.mark.stress
def test_thousands_of_damaged_files_are_read_soundly_or_refused(table: dict[str, bytes]) -> None:
    mutate(table, range(20_000))


def test_damaged_files_are_read_soundly_or_refused(table: dict[str, bytes]) -> None:
    mutate(table, range(300))


def mutate(table: dict[str, bytes], seeds: range) -> None:
    known = set(read_table(table, table.__getitem__)[0])
    rows, vectors = made_rows(1, 40)
    _, wal = encode_wal(rows, vectors)
    names = [name for name in table if name.endswith((".lance", ".manifest"))]
    n_read = 0
    for seed in seeds:
        rng = random.Random(seed)
        if rng.random() < 0.4:
            other = damaged(wal, rng)
            n_read += assert_sound_or_refused(lambda c=other: decode_wal(c), known)
        else:
            name = rng.choice(names)
            files = {**table, name: damaged(table[name], rng)}
            n_read += assert_sound_or_refused(lambda f=files: read_table(f, f.__getitem__), known)
    assert 0 < n_read < len(seeds), "both must happen, or nothing was tried"


# WAL files


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        out.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def ours(n_rows: int = 4) -> pa.Table:
    with pa.ipc.open_stream(encode_wal(*made_rows(2, n_rows))[1]) as reader:
        return reader.read_all()


def with_column(name: str, values: Any, kind: pa.DataType) -> pa.Table:
    table = ours()
    at = table.column_names.index(name)
    return table.set_column(at, pa.field(name, kind), pa.array(values, kind))


def nulls(n_rows: int) -> bytes:
    return stream(pa.table({name: pa.nulls(n_rows) for name in ours().column_names}))


KEYS = ["0" * 32] * 4
STRANGE_STREAMS = {
    "a hundred million rows of nothing": lambda: nulls(10**8),
    "compressed": lambda: stream(ours(300), compression="zstd"),
    "compressed by LZ4": lambda: stream(ours(300), compression="lz4"),
    "a vector of texts": lambda: stream(with_column("vector", ["x"] * 4, pa.string())),
    "a vector of any length": lambda: stream(
        with_column("vector", [[0.5]] * 4, pa.list_(pa.float16()))
    ),
    "a vector of float32": lambda: stream(
        with_column("vector", [[0.5]] * 4, pa.list_(pa.float32(), 1))
    ),
    "keys that are numbers": lambda: stream(with_column("key", range(4), pa.int64())),
    "keys that are null": lambda: stream(with_column("key", [None] * 4, pa.string())),
    "headings that are null": lambda: stream(
        with_column("heading", [None] * 4, pa.list_(pa.string()))
    ),
    "keys of other letters": lambda: stream(with_column("key", ["z" * 32] * 4, pa.string())),
    "keys of odd length": lambda: stream(with_column("key", ["0" * 31] * 4, pa.string())),
    "a dictionary": lambda: stream(ours().set_column(0, "key", pa.array(KEYS).dictionary_encode())),
    "a column less": lambda: stream(ours().drop_columns(["sum"])),
    "a column twice": lambda: stream(ours().append_column("sum", ours()["sum"])),
    "large offsets": lambda: stream(with_column("path", ["a"] * 4, pa.large_string())),
    "negative places": lambda: stream(with_column("char_start", [-1] * 4, pa.int64())),
    "more headings than levels": lambda: stream(
        with_column("heading", [["h"] * 7] * 4, pa.list_(pa.string()))
    ),
    "something behind the end": lambda: encode_wal(*made_rows(2, 4))[1] + b"more",
    "no end": lambda: encode_wal(*made_rows(2, 4))[1][:-8],
    "a file, not a stream": lambda: b"ARROW1\0\0" + encode_wal(*made_rows(2, 4))[1],
}


@pytest.mark.parametrize("make", STRANGE_STREAMS.values(), ids=STRANGE_STREAMS)
def test_a_stream_that_kbindex_never_writes_is_refused_cheaply(make: Callable[[], bytes]) -> None:
    content = make()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"."):
        decode_wal(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_stream_with_notes_beside_its_schema_is_read() -> None:
    rows, _ = made_rows(2, 4)
    table = ours().replace_schema_metadata({"padding": "0" * 500})
    assert read_rows(read_stream(stream(table)))[0] == sorted(rows, key=lambda row: row.key)


def test_several_batches_are_one_file() -> None:
    rows, vectors = made_rows(2, 50)
    whole = ours(50)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as out:
        out.write_table(whole, max_chunksize=7)
    read, read_vectors = decode_wal(sink.getvalue().to_pybytes())
    assert read == sorted(rows, key=lambda row: row.key)
    assert read_vectors.shape == vectors.shape


# Encodings


@given(st.integers(0, 12), st.integers(1, 1024), st.sampled_from((16, 32, 64)), st.integers())
@settings(deadline=None, max_examples=60)
def test_packed_numbers_come_out_as_they_were(
    width: int, n_values: int, bits: int, seed: int
) -> None:
    numbers = np.random.default_rng(abs(seed)).integers(0, 1 << width, n_values)
    packed = pack(numbers, bits, width)
    inline = write_fields([(5, write_fields([(1, bits)]))])
    header = width.to_bytes(bits // 8, "little")
    assert decode_numbers(inline, [header + packed], n_values).tolist() == numbers.tolist()


def pack(numbers: NDArray[np.int64], bits: int, width: int) -> bytes:
    """Pack up to 1,024 numbers as FastLanes does, one after the other."""
    padded = np.zeros(1024, object)
    padded[: len(numbers)] = numbers
    lanes = 1024 // bits
    words = [0] * (1024 * width // bits)
    for row in range(bits):
        for lane in range(lanes):
            order = (0, 4, 2, 6, 1, 5, 3, 7)[row // 8]
            value = int(padded[order * 16 + row % 8 * 128 + lane])
            word, shift = divmod(row * width, bits)
            for part in (0, 1):
                if width and (word + part) * lanes + lane < len(words):
                    moved = value << shift >> (bits * part)
                    words[(word + part) * lanes + lane] |= moved & ((1 << bits) - 1)
    return b"".join(word.to_bytes(bits // 8, "little") for word in words)


@pytest.mark.parametrize("encoding", [b"", b"\x08\x01", write_fields([(99, b"")])])
def test_an_unknown_encoding_is_refused(encoding: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_numbers(encoding, [bytes(64)], 4)
    with pytest.raises(ValueError, match=r"."):
        decode_levels(encoding, bytes(64), 4)


def test_a_row_that_no_document_has_is_refused() -> None:
    rows, vectors = made_rows(2, 4)
    for wrong in (
        {"key": "Z" * 32},
        {"embedder": "x"},
        {"sum": ""},
        {"blob": "--help"},
        {"char_end": 0, "char_start": 1},
        {"heading": ("h" * 40_000,)},
    ):
        with pytest.raises(ValueError, match=r"row"):
            decode_wal(encode_wal([replace(rows[0], **wrong), *rows[1:]], vectors)[1])
