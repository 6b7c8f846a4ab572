"""The index of a repository: made, committed, counted and read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbindex.core.model import Row
from kbindex.core.paths import TABLE
from kbindex.storage.table import append_rows
from kbindex.storage.table_files import latest_manifest, read_table
from testing.commands import Done
from testing.documents import NOTE
from testing.repositories import Repo, run


def run_and_commit(repo: Repo, *arguments: str, message: str = "a change") -> str:
    """Stage everything, run a verb, which must succeed, and commit all. Returns the commit."""
    repo.git("add", "--all")
    done = run(repo, *arguments)
    assert done.code == 0, done.out + done.err
    return repo.commit(message)


def init_and_commit(repo: Repo) -> str:
    """Set the repository up without hooks, and commit everything. Returns the commit."""
    return run_and_commit(repo, "init", "--hooks", "none")


def update_and_commit(repo: Repo, message: str = "a change") -> str:
    """Bring the index up to everything, and commit both. Returns the commit."""
    return run_and_commit(repo, "update", message=message)


def commit_versions_and_wal(repo: Repo) -> None:
    """Commit two versions of the table and two WAL files; ``lamps.md`` is NOTE at first."""
    init_and_commit(repo)
    repo.write("bundle/lamps.md", NOTE.replace("paraffin", "whale oil"))
    update_and_commit(repo)
    run_and_commit(repo, "checkpoint")
    for name in ("one", "two"):
        repo.write(f"bundle/{name}.md", f"# {name}\n\nText of {name}.\n")
        update_and_commit(repo)


def assert_fresh(repo: Repo, *options: str) -> None:
    """Assert that the staged index is that of the staged bundle."""
    checked = run(repo, "check", *options)
    assert checked.code == 0, checked.out + checked.err


def assert_commit_fresh(repo: Repo, revision: str = "HEAD", *options: str) -> None:
    """Assert that the index in a commit or tree is that of its bundle."""
    assert_fresh(repo, "--rev", revision, *options)


def n_embedded(done: Done) -> int:
    """Return how many texts an update embedded, or with ``--dry-run`` would embed."""
    assert done.code == 0, done.out + done.err
    found = re.search(r"(\d+) (?:to embed|embedded) in", done.out)
    assert found, done.out + done.err
    return int(found.group(1))


def forget_local_state(repo: Repo) -> None:
    """Delete the local cache: what isn't committed anywhere would have to be embedded."""
    shutil.rmtree(repo.root / ".git/kbindex")


def table_rows(folder: Path) -> tuple[list[Row], NDArray[np.float16]]:
    """Return the rows of the table in ``folder`` and their vectors."""
    table = folder / TABLE
    names = {f.relative_to(table).as_posix() for f in table.rglob("*") if f.is_file()}
    return read_table(names, lambda name: (table / name).read_bytes())


def write_table(folder: Path, rows: list[Row], vectors: NDArray[np.float16]) -> None:
    """Add rows to the table in ``folder`` as a version, or begin it, as a checkpoint does."""
    table = folder / TABLE
    names = {f.relative_to(table).as_posix() for f in table.rglob("*") if f.is_file()}
    before = None
    if names:
        _, before = latest_manifest(names, lambda name: (table / name).read_bytes())
    for name, content in append_rows(rows, vectors, before).items():
        (table / name).parent.mkdir(parents=True, exist_ok=True)
        (table / name).write_bytes(content)
