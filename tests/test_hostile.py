"""Repositories made to harm who reads them: nothing runs, nothing leaves, nothing is written."""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kbindex.core.names import admit, is_plain_path
from kbindex.storage.manifest import read_manifest, write_manifest
from kbindex.storage.protobuf import read_fields, write_fields
from kbindex.storage.wal import encode_wal
from testing.commands import Done
from testing.index import init_and_commit, table_rows, update_and_commit
from testing.repositories import Repo, Template, run

NOTE = "# Lamps\n\nThe lamps burn paraffin.\n\n## Cleaning\n\nWipe the lenses each morning.\n"
SECONDS = 5
MEMORY = 1 << 30


def run_bounded(repo: Repo, *arguments: str) -> Done:
    """Run the command line within a gigabyte of memory, and see that it ends within seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kbindex", *arguments],
        cwd=repo.root,
        env=repo.environment | {"OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    assert time.monotonic() - began < 3 * SECONDS, "a busy machine gets three times as long"
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A repository with a table and a WAL file, committed."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        init_and_commit(repo)
        repo.write("bundle/more.md", "# More\n\nAnother text.\n")
        update_and_commit(repo)

    return from_template("hostile", fill)


def everything_below(folder: Path) -> dict[str, bytes | str]:
    """Return what stands below a folder, but for git's objects and our local state."""
    found: dict[str, bytes | str] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if name.startswith((".git/objects", ".git/kbindex", "objects", "kbindex")):
            continue
        found[name] = (
            str(file.readlink())
            if file.is_symlink()
            else file.read_bytes()
            if file.is_file()
            else ""
        )
    return found


# Trees


def tree_of(repo: Repo, entries: list[tuple[str, str, str, str]]) -> str:
    """Write a tree of (mode, type, object id, name) entries, whatever their names."""
    content = b"".join(
        f"{mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(oid)
        for mode, _, oid, name in sorted(entries, key=lambda entry: entry[3])
    )
    options = ("-t", "tree", "--literally", "-w", "--stdin")
    return repo.git("hash-object", *options, stdin=content).strip()


def entries_of(repo: Repo, tree: str) -> list[tuple[str, str, str, str]]:
    listing = repo.git("ls-tree", "-z", tree)
    found = []
    for entry in filter(None, listing.split("\0")):
        meta, name = entry.split("\t", 1)
        mode, kind, oid = meta.split(" ")
        found.append((mode, kind, oid, name))
    return found


def with_entry(repo: Repo, tree: str, folders: list[str], entry: tuple[str, str, str, str]) -> str:
    """Return ``tree`` with an entry put into a folder of it, in place of one of that name."""
    entries = entries_of(repo, tree)
    if folders:
        below = next((oid for _, _, oid, name in entries if name == folders[0]), None)
        below = below or tree_of(repo, [])
        entry = ("040000", "tree", with_entry(repo, below, folders[1:], entry), folders[0])
    kept = [other for other in entries if other[3] != entry[3]]
    return tree_of(repo, [*kept, entry])


def committed(repo: Repo, tree: str) -> str:
    return repo.git("commit-tree", tree, "-p", "HEAD", "-m", "a gift").strip()


def blob(repo: Repo, content: bytes) -> str:
    return repo.git("hash-object", "-w", "--stdin", stdin=content).strip()


HOOK = b"#!/bin/sh\necho written by a stranger\n"
UPWARDS = [
    ([".kbindex", "chunks.lance", "..", "..", ".git", "hooks"], "pre-commit"),
    ([".kbindex", "chunks.lance", "..", "..", "..", ".."], "outside"),
    ([".kbindex", "chunks.lance", "data", ".."], "x.lance"),
    ([".kbindex", "chunks.lance", "."], "x"),
    ([".kbindex", "chunks.lance", ".git"], "config"),
    ([".kbindex", "chunks.lance", ".GIT"], "config"),
    ([".kbindex", "chunks.lance", "git~1"], "config"),
    ([".kbindex", "outline", ".."], "recipe.json"),
    ([".kbindex", "outline", ".git", "hooks"], "pre-commit"),
    ([".kbindex", "wal", ".."], f"{'0' * 32}.arrow"),
    ([".kbindex", "..", ".git", "hooks"], "pre-commit"),
    ([".kbindex", "chunks.lance", "data"], "/etc/passwd"),
    ([".kbindex", "chunks.lance", "data"], "../../../x.lance"),
    ([".kbindex", "chunks.lance", "_indices"], "x.idx"),
    ([".kbindex", "chunks.lance", "_deletions"], "0-1-5.arrow"),
    ([".kbindex", "chunks.lance", "_refs"], "branch"),
]


@pytest.mark.parametrize(("folders", "name"), UPWARDS, ids=["/".join([*f, n]) for f, n in UPWARDS])
def test_a_tree_with_names_that_no_checkout_writes_is_refused_and_writes_nothing(
    built: Repo, tmp_path: Path, folders: list[str], name: str
) -> None:
    tree = built.git("rev-parse", "HEAD^{tree}").strip()
    entry = ("100755", "blob", blob(built, HOOK), name)
    commit = committed(built, with_entry(built, tree, folders, entry))
    before = everything_below(tmp_path)
    done = run(built, "check", "--rev", commit, "--format", "json")
    assert done.code == 3, done.out + done.err
    assert not done.json()["fresh"]
    assert "damaged-file" in {problem["rule"] for problem in done.json()["problems"]}
    assert run(built, "diff", "HEAD", commit).code in (0, 2)
    assert everything_below(tmp_path) == before


def test_a_fetched_tree_writes_nothing_into_a_bare_repository(built: Repo, tmp_path: Path) -> None:
    folders, name = UPWARDS[0]
    tree = built.git("rev-parse", "HEAD^{tree}").strip()
    entry = ("100755", "blob", blob(built, HOOK), name)
    commit = committed(built, with_entry(built, tree, folders, entry))
    built.git("branch", "gift", commit)
    bare = Repo(tmp_path / "bare.git", built.environment)
    built.git("clone", "--quiet", "--bare", ".", str(bare.root))
    before = everything_below(tmp_path)
    assert run(bare, "check", "--rev", "gift").code == 3
    assert everything_below(tmp_path) == before


def test_a_document_whose_name_leads_elsewhere_is_no_document(built: Repo) -> None:
    tree = built.git("rev-parse", "HEAD^{tree}").strip()
    entry = ("100644", "blob", blob(built, b"# Evil\n\ntext\n"), "evil.md")
    commit = committed(built, with_entry(built, tree, ["bundle", "..", ".git"], entry))
    done = run(built, "check", "--rev", commit)
    assert done.code == 1
    assert "leads out of its folder" in done.out


PLAIN = ["a", "a/b.md", "..a", "a..b/...", ".gitignore", "git~10", "über/é.md", "back\\slash.md"]
NOT_PLAIN = [
    *("", "/", "a//b", "/etc", "a/..", "../a", "a/./b", ".git", "a/.GIT/b", "x\\..\\y", "\\.git"),
    *("git~1", ".git ", ".git.", ".git...", ".g\u200cit", ".git::$INDEX_ALLOCATION", "a\0b"),
]


def test_names_are_plain_or_not() -> None:
    assert [path for path in PLAIN if not is_plain_path(path)] == []
    assert [path for path in NOT_PLAIN if is_plain_path(path)] == []


def test_a_tree_of_millions_of_strange_names_is_refused_in_a_few_words() -> None:
    entries = (("120000", "0" * 40, f".kbindex/{number}") for number in range(300_000))
    assert len(admit(entries, ".kbindex").refused) == 20


@pytest.mark.parametrize("mode", ["120000", "160000"], ids=["symlink", "submodule"])
@pytest.mark.parametrize(
    "path",
    [
        ".kbindex",
        ".kbindex/outline",
        ".kbindex/wal",
        ".kbindex/chunks.lance",
        ".kbindex/chunks.lance/data",
        ".kbindex/recipe.json",
        ".kbindex/outline/lamps.md.tsv",
        ".kbindex/anything",
    ],
)
def test_a_link_in_place_of_a_part_of_the_index_is_refused_by_every_reader(
    built: Repo, tmp_path: Path, path: str, mode: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("do not touch")
    assert run(built, "query", "lamps").code == 0, "a view from before"
    tree = built.git("rev-parse", "HEAD^{tree}").strip()
    kind, oid = ("blob", blob(built, str(outside).encode()))
    if mode == "160000":
        kind, oid = "commit", built.git("rev-parse", "HEAD").strip()
    *folders, name = path.split("/")
    commit = committed(built, with_entry(built, tree, folders, (mode, kind, oid, name)))
    assert run(built, "check", "--rev", commit).code == 3
    built.git("read-tree", commit)
    built.git("checkout-index", "--all", "--force", check=False)
    for verb in (["check"], ["query", "lamps"], ["status"], ["get", "lamps"]):
        done = run(built, *verb)
        assert done.code == 3, (verb, done.out, done.err)
        assert "link" in done.out + done.err or "submodule" in done.out + done.err
    assert (outside / "precious").read_text() == "do not touch"
    assert [file.name for file in outside.iterdir()] == ["precious"]


def test_update_takes_what_does_not_belong_out_of_the_index(built: Repo) -> None:
    oid = blob(built, b"/tmp")
    built.git("update-index", "--add", "--cacheinfo", f"120000,{oid},.kbindex/wal/link")
    built.git("update-index", "--add", "--cacheinfo", f"100644,{oid},.kbindex/chunks.lance/x")
    assert run(built, "check").code == 3
    done = run(built, "update")
    assert done.code == 0, done.err
    assert "symbolic link" in done.out
    assert built.git("ls-files", ".kbindex/wal/link", ".kbindex/chunks.lance/x") == ""
    assert run(built, "check").code == 0


def test_a_stray_file_beside_the_index_is_said_and_hinders_nothing(built: Repo) -> None:
    built.write(".kbindex/.DS_Store", b"\0\0\0\1Bud1")
    built.commit("a Finder was here", "--no-verify")
    done = run(built, "check")
    assert (done.code, "stray-file" in done.out) == (0, True)
    assert run(built, "query", "lamps").code == 0


# The table


def newest_manifest(repo: Repo) -> Path:
    return min((repo.root / ".kbindex/chunks.lance/_versions").glob("*.manifest"))


def rewritten(content: bytes, **extra: bytes) -> bytes:
    """Return a manifest with further fields, as another writer of Lance would give it."""
    ours = write_manifest(read_manifest(content))
    fields = [(n, value) for n, values in read_fields(ours[4:-16]).items() for value in values]
    message = write_fields([*fields, *((int(n[1:]), value) for n, value in extra.items())])
    return len(message).to_bytes(4, "little") + message + ours[-16:]


@pytest.mark.parametrize("target", ["/srv/elsewhere", "s3://bucket/table", "gs://bucket/table"])
def test_a_table_that_points_elsewhere_is_refused_and_nothing_is_asked(
    built: Repo, target: str
) -> None:
    file = newest_manifest(built)
    base = write_fields([(1, 1), (3, 1), (4, target.encode())])
    file.write_bytes(rewritten(file.read_bytes(), f18=base))
    built.commit("a gift", "--no-verify")
    built.git("clean", "-fdx", "-q")
    for verb in (["check"], ["query", "lamps"]):
        built.git("rev-parse", "HEAD")
        done = run_bounded(built, *verb)
        assert done.code == 3, done.out + done.err
        assert "does not write" in done.out + done.err


def test_a_shallow_clone_of_a_table_is_refused(built: Repo, tmp_path: Path) -> None:
    """What LanceDB itself writes when a table is cloned: its rows lie elsewhere."""
    import shutil

    import lancedb

    source = tmp_path / "source"
    shutil.copytree(built.root / ".kbindex/chunks.lance", source / "chunks.lance")
    target = lancedb.connect(tmp_path / "target")
    target.clone_table("chunks", str(source / "chunks.lance"))
    shutil.rmtree(built.root / ".kbindex/chunks.lance")
    shutil.copytree(tmp_path / "target/chunks.lance", built.root / ".kbindex/chunks.lance")
    built.commit("a gift", "--no-verify")
    assert run(built, "check").code == 3
    assert run(built, "query", "lamps").code == 3


def test_nothing_imports_lancedb_or_pyarrow_to_read_an_index(built: Repo) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from kbindex.cli import app\n"
        "for verb in (['check', '--strict'], ['query', 'lamps'], ['status'], ['diff', 'HEAD~1']):\n"
        "    done = CliRunner().invoke(app, verb); assert done.exit_code == 0, done.output\n"
        "print(*({'lancedb', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=built.root,
        env=built.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""


# Bombs


def put_wal(repo: Repo, content: bytes) -> None:
    name = f"{hashlib.sha256(content).hexdigest()[:32]}.arrow"
    repo.write(f".kbindex/wal/{name}", content)


def bomb_of_nulls(repo: Repo) -> None:
    names = "key embedder path ordinal blob char_start char_end heading tokens vector sum"
    table = pa.table({name: pa.nulls(10**8) for name in names.split()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    put_wal(repo, sink.getvalue().to_pybytes())


def bomb_of_zeros(repo: Repo) -> None:
    """A WAL file that is 3 GB, and a few megabytes in git."""
    oid = repo.git("hash-object", "-w", "--stdin", stdin=bytes(1 << 20))
    assert oid
    big = repo.root / "big"
    with big.open("wb") as file:
        file.truncate(3 << 30)
    name = ".kbindex/wal/" + "0" * 32 + ".arrow"
    oid = repo.git("-c", "core.bigFileThreshold=1g", "hash-object", "-w", "big").strip()
    big.unlink()
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{name}")


def bomb_of_rows(repo: Repo) -> None:
    file = newest_manifest(repo)
    ours = read_manifest(file.read_bytes())
    from dataclasses import replace

    many = tuple(replace(fragment, n_rows=10**9) for fragment in ours.fragments)
    file.write_bytes(write_manifest(replace(ours, fragments=many)))


def bomb_in_the_recipe(repo: Repo) -> None:
    repo.write(".kbindex/recipe.json", '{"format": 1, "x": ' + "[" * 100_000)


def bomb_of_digits(repo: Repo) -> None:
    repo.write(".kbindex/recipe.json", '{"format": ' + "9" * 60_000 + "}")


def bomb_in_an_outline(repo: Repo) -> None:
    repo.write(".kbindex/outline/lamps.md.tsv", "-\t0\t0\t0\t\n\n" * 600_000)


def bomb_in_a_document(repo: Repo) -> None:
    repo.write("bundle/lamps.md", "x" * (33 << 20))


BOMBS = [
    bomb_of_nulls,
    bomb_of_rows,
    bomb_in_the_recipe,
    bomb_of_digits,
    bomb_in_an_outline,
    bomb_in_a_document,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_bomb_ends_in_a_message(built: Repo, bomb: Callable[[Repo], None]) -> None:
    bomb(built)
    built.commit("a gift", "--no-verify")
    done = run_bounded(built, "check")
    assert done.code in (1, 3), done.err
    assert "not fresh" in done.out
    asked = run_bounded(built, "query", "lamps")
    assert asked.code in (0, 3), asked.err
    assert "Traceback" not in asked.err


def test_billions_of_files_that_a_few_trees_stand_for_end_in_a_message(built: Repo) -> None:
    tree = tree_of(built, [("100644", "blob", blob(built, b"x"), f"{n}.md") for n in range(10)])
    for _ in range(9):
        tree = tree_of(built, [("040000", "tree", tree, str(number)) for number in range(10)])
    head = built.git("rev-parse", "HEAD^{tree}").strip()
    bomb = committed(built, with_entry(built, head, [], ("040000", "tree", tree, "bundle")))
    for verb in (["check", "--rev", bomb], ["diff", "HEAD", bomb]):
        done = run_bounded(built, *verb)
        assert done.code == 2, done
        assert "a tree has more files than are read" in done.err


@pytest.mark.stress
def test_gigabytes_of_zeros_end_in_a_message(built: Repo) -> None:
    bomb_of_zeros(built)
    built.git("commit", "--quiet", "--no-verify", "-m", "a gift")
    for verb in (["check"], ["query", "lamps"]):
        done = run_bounded(built, *verb)
        assert done.code in (2, 3), done.err


def test_a_long_title_takes_little_room_in_the_local_state(repo: Repo) -> None:
    title = "word " * 40_000
    text = "".join(f"## Part {n}\n\nA few words of part {n}.\n\n" for n in range(6000))
    repo.write("bundle/a.md", f"---\ntitle: {title}\n---\n\n{text}")
    repo.git("add", "--all")
    assert run(repo, "update").code == 0
    asked = run(repo, "query", "part 77", "--mode", "lexical", "--format", "json")
    assert asked.code == 0
    view = sum(file.stat().st_size for file in (repo.root / ".git/kbindex").glob("*-*"))
    assert view < 60_000_000
    hit = run(repo, "query", "word", "--text", "--format", "json").json()["hits"][0]
    got = run(repo, "get", "a", "--span", "{}:{}".format(*hit["span"]), "--format", "json").json()
    assert got["text"] == hit["text"]


@pytest.mark.parametrize("character", [" ", "\t", "\u00a0", "x", "-", "> ", "#"])
def test_a_line_of_a_million_characters_is_indexed(repo: Repo, character: str) -> None:
    repo.write("bundle/a.md", f"# A\n\nfirst {character * 1_000_100} last\n")
    repo.git("add", "--all")
    done = run(repo, "update")
    assert done.code == 0, done.err
    assert run(repo, "check", "--strict").code == 0
    assert run(repo, "query", "last", "--mode", "lexical").code == 0


# Content that must not end in exit 70


def test_rows_of_another_dimension_are_named(built: Repo) -> None:
    """Rows under the recipe's own embedder whose vectors can't be compared with its others."""
    from dataclasses import replace

    from kbindex.storage.columns import checksum

    row = table_rows(built.root / ".kbindex")[0][0]
    for dimension in (128, 512):
        vector = np.zeros((1, dimension), np.float16)
        vector[0, 0] = 1
        strange = replace(row, key="ab" * 16, sum=checksum("ab" * 16, vector[0]))
        put_wal(built, encode_wal([strange], vector)[1])
    built.commit("a gift", "--no-verify")
    done = run(built, "check", "--format", "json")
    assert done.code == 3
    assert [p["rule"] for p in done.json()["problems"]] == ["damaged-file"] * 2
    assert run(built, "query", "lamps").code == 3
    assert run(built, "update").code == 0
    assert run(built, "check").code == 0
    assert run(built, "query", "lamps").code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"model": "x\x1b[31mred"},
        {"model": "x\u202eder"},
        {"model": "m" * 1000},
        {"dimension": 10**6},
        {"dimension": 0},
        {"dimension": True},
        {"query_prefix": "\x07"},
        {"dtype": "float64"},
    ],
    ids=str,
)
def test_a_recipe_with_values_of_no_embedder_is_damaged(
    built: Repo, change: dict[str, object]
) -> None:
    file = built.root / ".kbindex/recipe.json"
    recipe = json.loads(file.read_text())
    recipe["embedder"] |= change
    file.write_text(json.dumps(recipe, indent=2, ensure_ascii=False) + "\n")
    built.commit("a gift", "--no-verify")
    for verb in (["check"], ["query", "lamps"], ["status"]):
        done = run(built, *verb)
        assert done.code == 3, done.out + done.err
        assert "\x1b" not in done.out + done.err
        assert "\u202e" not in done.out + done.err
    assert run(built, "update").code == 0
    assert run(built, "check").code == 0


def test_a_panic_is_a_bug_and_never_says_that_nothing_was_found(
    built: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object) -> None:
        raise PanicException("native code gave up")

    monkeypatch.setattr("kbindex.commands.query.answer_query", panic)
    done = run(built, "query", "lamps")
    assert done.code == 70
    assert "this is a bug in kbindex" in done.err
