"""The local cache: what is damaged in it is as if it were not there, and the work goes on."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.local import database as local_database
from kbindex.local.cache import Cache, pack_keys
from testing.documents import NOTE
from testing.index import init_and_commit
from testing.repositories import Repo, Template, run

FILE = "cache-2.sqlite"
KEYS = [f"{number:032x}" for number in range(1, 13)]
PAIRS = {("d1", "o1"): KEYS[:3], ("d2", "o2"): KEYS[3:5]}


def vector(number: int) -> NDArray[np.float16]:
    made = np.random.default_rng(number).standard_normal(64)
    return (made / np.linalg.norm(made)).astype(np.float16)


VECTORS = {key: vector(number) for number, key in enumerate(KEYS)}


class Said(list[str]):
    """What a cache has said."""

    def __call__(self, message: str) -> None:
        self.append(message)


def filled(folder: Path) -> Path:
    with Cache(folder) as cache:
        cache.replace_vectors(VECTORS)
        cache.add_source("table", pack_keys(KEYS[:6]))
        cache.add_pairs("recipe", PAIRS)
        cache.add_fresh("a state")
    return folder / FILE


def assert_nothing_wrong(cache: Cache) -> int:
    """Read everything; return how much is still there."""
    found = cache.vectors(KEYS)
    for key, content in found.items():
        assert content.tobytes() == VECTORS[key].tobytes()
    source = cache.source_keys("table")
    assert source in (None, pack_keys(KEYS[:6]))
    pairs = cache.pairs("recipe")
    assert all(packed == pack_keys(PAIRS[pair]) for pair, packed in pairs.items())
    assert not cache.is_fresh("another state")
    return len(found) + len(pairs) + (source is not None)


@pytest.mark.parametrize(
    ("table", "column"), [("vector", "vector"), ("source", "keys"), ("pair", "keys")]
)
def test_one_flipped_bit_loses_its_row_alone_and_is_said_once(
    tmp_path: Path, table: str, column: str
) -> None:
    db = sqlite3.connect(filled(tmp_path))
    (content,) = db.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
    changed = bytes([content[0] ^ 0x80]) + content[1:]
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (changed, content))
    db.commit()
    db.close()
    said = Said()
    with Cache(tmp_path, said) as cache:
        assert assert_nothing_wrong(cache) == 14
        assert assert_nothing_wrong(cache) == 14
    assert len(said) == 1
    assert "damaged" in said[0]


def test_a_row_under_another_rows_name_is_not_believed(tmp_path: Path) -> None:
    db = sqlite3.connect(filled(tmp_path))
    one, other = (bytes.fromhex(key) for key in KEYS[:2])
    db.execute("DELETE FROM vector WHERE key = ?", (one,))
    db.execute("UPDATE vector SET key = ? WHERE key = ?", (one, other))
    db.commit()
    db.close()
    with Cache(tmp_path) as cache:
        assert cache.vectors(KEYS[:2]) == {}


def test_no_damage_to_the_file_is_believed(tmp_path: Path) -> None:
    content = filled(tmp_path).read_bytes()
    chance = random.Random(3)
    n_left = 0
    for number in range(150):
        damaged = bytearray(content)
        if number % 3:
            for _ in range(chance.choice((1, 1, 30))):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        else:
            damaged = damaged[: chance.randrange(len(damaged))]
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE).write_bytes(damaged)
        with Cache(folder) as cache:
            n_left += assert_nothing_wrong(cache)
            cache.replace_vectors(VECTORS)
            assert cache.vectors(KEYS).keys() == VECTORS.keys()
        with Cache(folder) as cache:
            assert cache.vectors(KEYS).keys() == VECTORS.keys(), "kept for the next run"
    assert n_left > 150 * 5, "most rows survive most damage"


def test_a_folder_in_the_files_place_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    filled(tmp_path)
    with Cache(tmp_path) as cache:
        assert assert_nothing_wrong(cache) == 15


def test_a_full_disk_keeps_what_is_known_and_takes_the_rest_into_memory(tmp_path: Path) -> None:
    filled(tmp_path)
    said = Said()
    more = {f"{number:032x}": vector(number) for number in range(100, 400)}
    with Cache(tmp_path, said) as cache:
        db = cache._db._db
        (n_pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {n_pages}")
        cache.replace_vectors(more)
        cache.replace_vectors(more)
        assert cache.vectors([*KEYS, *more]).keys() == VECTORS.keys() | more.keys()
        assert assert_nothing_wrong(cache) == 15
    assert len(said) == 1
    assert "full" in said[0]
    with Cache(tmp_path, said) as cache:
        assert assert_nothing_wrong(cache) == 15, "the file is whole"
        assert not cache.vectors(more)
    assert len(said) == 1


def test_a_file_that_another_process_keeps_locked_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(filled(tmp_path), isolation_level=None)
    monkeypatch.setattr(local_database, "_BUSY_SECONDS", 0.05)
    with Cache(tmp_path) as cache:
        other.execute("BEGIN EXCLUSIVE")
        cache.replace_vectors(VECTORS)
        assert cache.vectors(KEYS).keys() == VECTORS.keys()
    other.close()
    with Cache(tmp_path) as cache:
        assert assert_nothing_wrong(cache) == 15


def test_a_write_keeps_no_one_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_database, "_BUSY_SECONDS", 0)
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        one.add_pairs("recipe", PAIRS)
        other.add_source("table", pack_keys(KEYS))
        one.replace_vectors(VECTORS)
    with Cache(tmp_path) as cache:
        assert len(cache.pairs("recipe")) == 2
        assert cache.source_keys("table") == pack_keys(KEYS)
        assert cache.vectors(KEYS).keys() == VECTORS.keys()


def test_a_run_never_sees_less_of_a_source_than_at_first(tmp_path: Path) -> None:
    file = filled(tmp_path)
    with Cache(tmp_path) as cache:
        assert cache.source_keys("table") == pack_keys(KEYS[:6])
        db = sqlite3.connect(file, isolation_level=None)
        db.execute("DELETE FROM source")
        db.close()
        # Whoever would take it for empty now would remove its file from the index.
        assert cache.source_keys("table") == pack_keys(KEYS[:6])
        cache.forget_sources()
        assert cache.source_keys("table") is None


# The version before


OLD_SCHEMA = """
CREATE TABLE vector (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE source (name TEXT PRIMARY KEY, keys BLOB NOT NULL);
"""


def old_cache(folder: Path) -> Path:
    file = folder / "cache-1.sqlite"
    db = sqlite3.connect(file)
    db.executescript(OLD_SCHEMA)
    rows = [(bytes.fromhex(key), content.tobytes()) for key, content in VECTORS.items()]
    rows[11] = (rows[11][0], b"\xff" * 128)
    db.executemany("INSERT INTO vector VALUES (?, ?)", rows)
    db.execute("INSERT INTO source VALUES ('table', ?)", (pack_keys(KEYS[:4]),))
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    return file


def test_vectors_that_only_an_older_cache_holds_are_taken_over(tmp_path: Path) -> None:
    file = old_cache(tmp_path)
    with Cache(tmp_path) as cache:
        # What was read from a commit can be read again and proven; NaN is no vector.
        assert cache.vectors(KEYS).keys() == set(KEYS[4:11])
        assert assert_nothing_wrong(cache) == 7
    assert not file.exists()


def test_an_older_cache_that_is_damaged_gives_what_can_be_read(tmp_path: Path) -> None:
    file = old_cache(tmp_path)
    file.write_bytes(file.read_bytes()[:5000])
    with Cache(tmp_path) as cache:
        assert_nothing_wrong(cache)
        cache.replace_vectors(VECTORS)
        assert cache.vectors(KEYS).keys() == VECTORS.keys()


def test_an_older_cache_that_is_in_use_is_taken_over_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(old_cache(tmp_path), isolation_level=None)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **o: connect(*a, **o | {"timeout": 0}))
    other.execute("BEGIN EXCLUSIVE")
    with Cache(tmp_path) as cache:
        assert not cache.vectors(KEYS)
    other.close()
    with Cache(tmp_path) as cache:
        assert cache.vectors(KEYS).keys() == set(KEYS[4:11])


# What is committed


EDIT = "\n## Oil\n\nWhale oil is dear.\n"


@pytest.fixture
def embedded(from_template: Template) -> Repo:
    """A repository whose cache holds the vector of an edit that is staged, but not its index."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/rota.md", "# Rota\n\nInes has Monday.\n")
        init_and_commit(repo)
        repo.write("bundle/lamps.md", NOTE + EDIT)
        repo.git("add", "--all")
        assert run(repo, "update").code == 0
        repo.git("reset", "--quiet", "HEAD", "--", ".kbindex")
        repo.git("checkout", "--quiet", "--", ".kbindex")

    return from_template("embedded", fill)


def change_vectors(repo: Repo, statement: str) -> None:
    db = sqlite3.connect(repo.root / ".git/kbindex" / FILE)
    assert db.execute(statement).rowcount
    db.commit()
    db.close()


def test_a_damaged_vector_is_not_committed_but_embedded_again(embedded: Repo) -> None:
    assert "0 embedded" in run(embedded, "update").out
    right = embedded.git("write-tree")
    embedded.git("reset", "--quiet", "HEAD", "--", ".kbindex")
    change_vectors(embedded, "UPDATE vector SET vector = x'80' || substr(vector, 2)")
    done = run(embedded, "update")
    assert "1 embedded" in done.out
    assert done.err == (
        "kbindex: the local cache was damaged; what is lost is read or computed again\n"
    )
    assert embedded.git("write-tree") == right
    assert run(embedded, "check", "--strict").code == 0


@pytest.mark.parametrize("verb", ["checkpoint", "compact", "query"])
def test_vectors_that_the_cache_has_lost_are_read_from_the_commit(
    embedded: Repo, verb: str
) -> None:
    arguments = ("Ines", "--mode", "dense", "--format", "json") if verb == "query" else ()
    embedded.git("checkout", "--quiet", "HEAD", "--", ".")
    change_vectors(embedded, "DELETE FROM vector")
    done = run(embedded, verb, *arguments)
    assert done.code == 0, done.err
    if verb == "query":
        coverage = done.json()["retrieval"]["coverage"]
        assert coverage["dense"] == coverage["chunks"]
    assert run(embedded, "check", "--strict").code == 0
