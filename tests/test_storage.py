"""Rows on disk: the WAL's bytes, the table's versions, other clients, and every kind of damage."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.embed import load_embedder
from kbindex.outline.states import Proven
from kbindex.storage.columns import checksum
from kbindex.storage.tree import open_index
from kbindex.storage.wal import decode_wal, encode_wal
from testing.documents import NOTE
from testing.index import (
    commit_versions_and_wal,
    table_rows,
    write_table,
)
from testing.repositories import Repo, Template, run

DIMENSION = 16


def make_rows(n_rows: int, first: int = 0) -> tuple[list[Row], NDArray[np.float16]]:
    """Return rows of every odd kind, and unit vectors."""
    vectors = np.random.default_rng(first).normal(size=(n_rows, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    halves = vectors.astype(np.float16)
    headings = [(), ("One",), ("Ein › Weg", "東京", ""), ('"quoted"\t',)]
    rows = []
    for number in range(n_rows):
        key = hashlib.sha256(f"{first + number}".encode()).hexdigest()[:32]
        rows.append(
            Row(
                key=key,
                embedder="0123456789ab",
                path=["bundle/a.md", "bundle/new\nline – é.md", "bundle/\udcff.md"][number % 3],
                ordinal=number,
                blob="f" * 40,
                char_start=number * 10,
                char_end=2**40 + number,
                heading=headings[number % 4],
                n_tokens=number,
                sum=checksum(key, halves[number]),
            )
        )
    return rows, halves


# WAL and rows


def test_the_order_of_rows_does_not_change_a_wal_file() -> None:
    rows, vectors = make_rows(12)
    expected = encode_wal(rows, vectors)
    for seed in range(5):
        order = random.Random(seed).sample(range(12), 12)
        assert encode_wal([rows[i] for i in order], vectors[order]) == expected


def test_another_process_writes_the_same_wal_file() -> None:
    name, _ = encode_wal(*make_rows(7))
    program = "from test_storage import encode_wal, make_rows; print(encode_wal(*make_rows(7))[0])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == name


def test_a_wal_file_is_named_by_its_content() -> None:
    rows, vectors = make_rows(3)
    name, content = encode_wal(rows, vectors)
    assert name == f"{hashlib.sha256(content).hexdigest()[:32]}.arrow"
    others = [
        encode_wal(rows[:2], vectors[:2]),
        encode_wal([replace(rows[0], ordinal=9), *rows[1:]], vectors),
        encode_wal(rows, vectors[::-1]),
    ]
    assert len({name, *(other for other, _ in others)}) == 4


@pytest.mark.parametrize("n_rows", [1, 12])
def test_rows_come_back_from_a_wal_file_as_they_were(n_rows: int) -> None:
    rows, vectors = make_rows(n_rows)
    read, read_vectors = decode_wal(encode_wal(rows, vectors)[1])
    order = sorted(range(n_rows), key=lambda number: rows[number].key)
    assert read == [as_stored(rows[number]) for number in order]
    assert read_vectors.dtype == np.float16
    assert read_vectors.tobytes() == vectors[order].tobytes()


def as_stored(row: Row) -> Row:
    """Arrow's strings are UTF-8: bytes that aren't are escaped in a row's path."""
    return replace(row, path=row.path.replace("\udcff", "\\xff"))


def test_every_flipped_bit_of_a_vector_changes_its_checksum() -> None:
    rows, vectors = make_rows(1)
    content = vectors[0].tobytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        other = np.frombuffer(bytes(flipped), np.float16)
        assert checksum(rows[0].key, other) != rows[0].sum
    assert checksum(rows[0].key[::-1], vectors[0]) != rows[0].sum


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\xff" * 64, b"ARROW1\0\0", b"PAR1" + b"\0" * 40]
)
def test_what_is_no_wal_file_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="Arrow"):
        decode_wal(content)


def test_a_wal_file_cut_anywhere_is_a_value_error() -> None:
    rows, vectors = make_rows(3)
    _, content = encode_wal(rows, vectors)
    for length in range(0, len(content) - 8, 16):  # the last 8 bytes only mark the end
        with pytest.raises(ValueError, match=r"Arrow|columns|message"):
            decode_wal(content[:length])


# The table


def test_appending_makes_one_version_and_keeps_the_old_ones(tmp_path: Path) -> None:
    import lancedb

    rows, vectors = make_rows(9)
    before: dict[str, bytes] = {}
    for first in (0, 3, 6):
        write_table(tmp_path, rows[first : first + 3], vectors[first : first + 3])
        after = content_of(tmp_path / "chunks.lance")
        rewritten = {name for name, content in before.items() if after.get(name) != content}
        assert {Path(name).name for name in rewritten} <= {"latest_version_hint.json"}
        before = after
    table = lancedb.connect(tmp_path).open_table("chunks")
    assert [version["version"] for version in table.list_versions()] == [1, 2, 3]
    for version in (1, 2, 3):
        table.checkout(version)
        assert table.count_rows() == 3 * version
    read, read_vectors = table_rows(tmp_path)
    assert read == [as_stored(row) for row in rows]
    assert read_vectors.tobytes() == vectors.tobytes()


def test_rows_that_can_t_be_read_back_from_a_table_stay_beside_it(
    stored: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LanceDB that encodes them otherwise must stop nobody's work."""

    def unread(*_: object) -> None:
        raise ValueError("in a new way")

    monkeypatch.setattr("kbindex.storage.table.read_data_file", unread)
    before = stored.git("ls-files", ".kbindex/chunks.lance")
    done = run(stored, "checkpoint")
    assert done.code == 0
    assert "in a new way" in done.err
    assert "folded" not in done.out
    assert stored.git("ls-files", ".kbindex/chunks.lance") == before
    assert len(stored.git("ls-files", ".kbindex/wal/*.arrow").split()) == 1
    assert run(stored, "check", "--strict").code == 0
    done = run(stored, "compact")
    assert done.code == 0
    assert stored.git("ls-files", ".kbindex/chunks.lance") == ""
    assert run(stored, "check", "--strict").code == 0
    assert run(stored, "query", "lenses").code == 0


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


# What is committed. Two checkpoints, two WAL files.


@pytest.fixture
def stored(from_template: Template) -> Repo:
    """A copy of a repository whose index has two table versions and two WAL files, committed."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write(
            "bundle/bom.md", "\ufeff# Größe\r\n\r\n東京 🗼 tower.\r\n\r\n## Höhe\r\n\r\n333 m.\r\n"
        )
        repo.write("bundle/table.md", long_table())
        commit_versions_and_wal(repo)

    return from_template("stored", fill)


def long_table() -> str:
    rows = "".join(f"| {n} | the value of row number {n} |\n" for n in range(80))
    return f"# Table\n\nIntro.\n\n| number | value |\n|---|---|\n{rows}"


def table_of(repo: Repo) -> Any:
    import lancedb

    return lancedb.connect(str(repo.root / ".kbindex")).open_table("chunks")


def test_a_plain_client_sees_searches_and_lists_versions(stored: Repo) -> None:
    table = table_of(stored)
    assert {"vector", "heading", "char_start", "char_end", "path"} <= set(table.schema.names)
    assert [version["version"] for version in table.list_versions()] == [1, 2]
    vector = load_embedder("hash").embed_query("Wipe the lenses each morning")
    (found,) = table.search(vector).metric("cosine").limit(1).to_list()
    assert found["path"] == "bundle/lamps.md"
    assert found["heading"] == ["Cleaning"]
    assert "Wipe the lenses" in NOTE[found["char_start"] : found["char_end"]]
    assert table.search().where("path = 'bundle/bom.md'").limit(10).to_list()
    table.checkout(1)
    assert table.count_rows() < table_of(stored).count_rows()


def test_reading_by_a_plain_client_writes_nothing(stored: Repo) -> None:
    before = content_of(stored.root / ".kbindex")
    table_of(stored).search(load_embedder("hash").embed_query("lamps")).limit(3).to_list()
    assert content_of(stored.root / ".kbindex") == before


def test_a_row_s_span_in_its_blob_is_the_text_that_was_embedded(stored: Repo) -> None:
    for name in ("one", "two"):  # everything into the table
        assert (stored.root / f"bundle/{name}.md").exists()
    assert run(stored, "checkpoint").code == 0
    shown = shown_by_key(stored)
    rows = table_of(stored).to_arrow().to_pylist()
    n_bodies = 0
    for row in rows:
        blob = stored.git("cat-file", "blob", row["blob"])
        passage = blob[row["char_start"] : row["char_end"]]
        if row["key"] not in shown:
            continue  # a passage of an older version
        if passage.startswith("---"):
            assert "How the lamps of the tower are kept." in shown[row["key"]]
            continue
        n_bodies += 1
        assert passage
        assert shown[row["key"]].rstrip().endswith(passage.rstrip())
        if row["heading"] and passage.startswith("#"):
            assert row["heading"][-1] in passage.split("\n")[0]
    assert n_bodies >= 10
    assert {row["key"] for row in rows} >= shown.keys()


def shown_by_key(repo: Repo) -> dict[str, str]:
    """Return what the embedder was shown for each live key, derived from documents and outlines."""
    shown = {}
    for state in open_index(repo.root, None).compare(load_embedder("hash").identity):
        assert isinstance(state, Proven), state
        shown |= {entry.key: entry.shown for entry in state.entries if entry.shown is not None}
    return shown


# Damage


@dataclass(frozen=True)
class Damage:
    """What happens to one file of the index, and how the check names it."""

    name: str
    pattern: str
    """Below .kbindex/; the last match is damaged."""
    change: Callable[[bytes], bytes | None]
    named: str
    rule: str = "damaged-file"


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _gone(_content: bytes) -> None:
    return None


def _crlf(content: bytes) -> bytes:
    return content.replace(b"\n", b"\r\n")


def _pointer(content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    ).encode()


def _garbage(content: bytes) -> bytes:
    return bytes(range(256)) * (len(content) // 256 + 1)


def _empty(_content: bytes) -> bytes:
    return b""


def _flip_vector(content: bytes) -> bytes:
    """Flip one bit of a stored vector: the last one of what the documents hold."""
    vectors = load_embedder("hash").embed_documents(
        [
            "two\n# two\n\nText of two.\n",
            "two\n\n# two\n\nText of two.\n",
            "# two\n\nText of two.\n",
        ]
    )
    for vector in vectors.astype(np.float16):
        at = content.find(vector.tobytes())
        if at >= 0:
            return content[: at + 1] + bytes([content[at + 1] ^ 0x10]) + content[at + 2 :]
    raise AssertionError("the vector was not found")


def _conflict(content: bytes) -> bytes:
    return b"<<<<<<< HEAD\n" + content + b"=======\n" + content + b">>>>>>> theirs\n"


DATA, MANIFEST = "chunks.lance/data/*", "chunks.lance/_versions/*.manifest"
TABLE = ".kbindex/chunks.lance"
DAMAGES = [
    Damage("data file truncated", DATA, _half, TABLE),
    Damage("data file empty", DATA, _empty, TABLE),
    Damage("data file missing", DATA, _gone, TABLE),
    Damage("data file is an LFS pointer", DATA, _pointer, TABLE),
    Damage("data file is garbage", DATA, _garbage, TABLE),
    Damage("manifest with CRLF", MANIFEST, _crlf, TABLE),
    Damage("manifest truncated", MANIFEST, _half, TABLE),
    Damage("manifest empty", MANIFEST, _empty, TABLE),
    Damage("manifest is an LFS pointer", MANIFEST, _pointer, TABLE),
    Damage("manifest is garbage", MANIFEST, _garbage, TABLE),
    Damage("WAL file truncated", "wal/*.arrow", _half, ".kbindex/wal/"),
    Damage("WAL file empty", "wal/*.arrow", _empty, ".kbindex/wal/"),
    Damage("WAL file is garbage", "wal/*.arrow", _garbage, ".kbindex/wal/"),
    Damage("WAL file is an LFS pointer", "wal/*.arrow", _pointer, ".kbindex/wal/"),
    Damage("recipe is garbage", "recipe.json", _garbage, ".kbindex/recipe.json"),
    Damage("recipe truncated", "recipe.json", _half, ".kbindex/recipe.json"),
    Damage("recipe is an LFS pointer", "recipe.json", _pointer, ".kbindex/recipe.json"),
    Damage(
        "recipe in conflict", "recipe.json", _conflict, ".kbindex/recipe.json", "conflict-markers"
    ),
]
BY_NAME = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)


def apply(repo: Repo, damage: Damage) -> str:
    """Damage a file in the work tree and return its path."""
    file = sorted((repo.root / ".kbindex").glob(damage.pattern))[0]
    content = damage.change(file.read_bytes())
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    return file.relative_to(repo.root).as_posix()


def cloned(repo: Repo) -> Repo:
    """Commit what is there and return a fresh clone, without anything local."""
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "damage", "--no-verify")
    root = repo.root.parent / "clone"
    repo.git("clone", "--quiet", str(repo.root), str(root))
    return Repo(root, repo.environment)


@BY_NAME
def test_committed_damage_is_named_by_check_and_by_the_first_query(
    stored: Repo, damage: Damage
) -> None:
    path = apply(stored, damage)
    clone = cloned(stored)
    named = path if damage.named.startswith(".kbindex/wal") else damage.named

    checked = run(clone, "check")
    assert checked.code == 3
    assert damage.rule in checked.out
    assert named in (checked.out + checked.err)
    assert "→" in (checked.out + checked.err)

    asked = run(clone, "query", "lenses")
    assert asked.code == 3
    assert named in (asked.out + asked.err)
    assert "remedy: " in (asked.out + asked.err)
    for output in ((checked.out + checked.err), (asked.out + asked.err)):
        assert "Traceback" not in output
        assert "kbindex-bug" not in output


@pytest.mark.parametrize(
    "damage",
    [pytest.param(damage, id=damage.name) for damage in DAMAGES],
)
def test_an_update_mends_committed_damage(stored: Repo, damage: Damage) -> None:
    apply(stored, damage)
    clone = cloned(stored)
    updated = run(clone, "update")
    assert updated.code == 0, updated.out + updated.err
    checked = run(clone, "check")
    assert checked.code == 0, checked.out + checked.err


@BY_NAME
def test_damage_in_the_work_tree_alone_is_named_and_no_query_reads_it(
    stored: Repo, damage: Damage
) -> None:
    path = apply(stored, damage)
    checked = run(stored, "check")
    assert checked.code == 3
    assert f"{path}: damaged-file" in (checked.out + checked.err)
    assert f"git checkout -- '{path}'" in (checked.out + checked.err)
    assert run(stored, "query", "lenses").code == 0


def test_line_endings_rewritten_on_checkout_do_no_harm(stored: Repo, tmp_path: Path) -> None:
    stored.write(".gitattributes", "* text=auto eol=crlf\n")
    stored.commit()
    root = tmp_path / "crlf"
    stored.git("-c", "core.autocrlf=true", "clone", "--quiet", str(stored.root), str(root))
    clone = Repo(root, stored.environment)
    clone.git("config", "core.autocrlf", "true")
    checked = run(clone, "check")
    assert checked.code == 0, checked.out + checked.err
    assert run(clone, "query", "lenses").code == 0
    assert b"\r\n" not in (root / ".kbindex/recipe.json").read_bytes()


def test_a_panic_of_the_native_code_reaches_no_user(stored: Repo) -> None:
    (damage,) = (damage for damage in DAMAGES if damage.name == "manifest with CRLF")
    apply(stored, damage)
    clone = cloned(stored)
    done = run(clone, "check")
    assert done.code == 3
    assert TABLE in done.out
    assert "Traceback" not in done.err
    assert "panicked" not in done.err


def test_a_flipped_bit_of_a_vector_is_named_by_check(stored: Repo) -> None:
    flip(stored, DATA)
    clone = cloned(stored)
    done = run(clone, "check", "--format", "json")
    assert done.code == 3
    rules = {problem["rule"]: problem for problem in done.json()["problems"]}
    assert rules.keys() == {"bad-vector", "missing-vector"}
    assert "bundle/two.md" in rules["bad-vector"]["message"]
    assert rules["missing-vector"]["path"] == "bundle/two.md"


@pytest.mark.parametrize("pattern", ["wal/*.arrow", DATA])
def test_a_flipped_bit_of_a_vector_is_named_by_the_first_query(stored: Repo, pattern: str) -> None:
    flip(stored, pattern)
    clone = cloned(stored)
    done = run(clone, "query", "lenses")
    assert done.code == 3
    assert ".kbindex/" in (done.out + done.err)


@pytest.mark.parametrize("pattern", ["wal/*.arrow", DATA])
def test_a_flipped_bit_of_a_vector_is_never_ranked(stored: Repo, pattern: str) -> None:
    flip(stored, pattern)
    clone = cloned(stored)
    done = run(clone, "query", "--mode", "dense", "Text of two", "--format", "json")
    if done.code != 3:
        coverage = done.json()["retrieval"]["coverage"]
        assert coverage["dense"] == coverage["chunks"] - 1
        assert "bundle/two.md" not in {hit["path"] for hit in done.json()["hits"]}


@pytest.mark.parametrize(
    "pattern",
    [
        "wal/*.arrow",
        pytest.param(
            DATA,
        ),
    ],
)
def test_an_update_mends_a_flipped_bit(stored: Repo, pattern: str) -> None:
    flip(stored, pattern)
    clone = cloned(stored)
    updated = run(clone, "update")
    assert updated.code == 0, updated.out + updated.err
    checked = run(clone, "check")
    assert checked.code == 0, checked.out + checked.err


def test_any_flipped_bit_of_a_wal_file_is_noticed(stored: Repo) -> None:
    file = sorted((stored.root / ".kbindex/wal").glob("*.arrow"))[0]
    content = file.read_bytes()
    at = content.index(b"bundle/")
    file.write_bytes(content[:at] + b"c" + content[at + 1 :])
    assert run(cloned(stored), "check").code == 3


def flip(repo: Repo, pattern: str) -> None:
    """Flip a bit of the vector of ``bundle/two.md``, in the WAL or, after a checkpoint, there."""
    if pattern == DATA:
        assert run(repo, "checkpoint").code == 0
    for file in sorted((repo.root / ".kbindex").glob(pattern)):
        try:
            file.write_bytes(_flip_vector(file.read_bytes()))
            return
        except AssertionError:
            continue
    raise AssertionError("the vector was not found in any file")


@pytest.mark.parametrize("change", [_pointer, _conflict, _garbage, _half, _empty])
def test_a_damaged_outline_is_named_and_mended(
    stored: Repo, change: Callable[[bytes], bytes]
) -> None:
    file = stored.root / ".kbindex/outline/lamps.md.tsv"
    file.write_bytes(change(file.read_bytes()))
    clone = cloned(stored)
    checked = run(clone, "check")
    assert checked.code == (3 if change is _conflict else 1)
    assert "bundle/lamps.md" in (checked.out + checked.err)
    assert run(clone, "query", "lenses").code == 0
    assert run(clone, "update").code == 0
    assert run(clone, "check").code == 0
    assert clone.git("diff", "--cached", "--name-only", "HEAD~1") == ""
