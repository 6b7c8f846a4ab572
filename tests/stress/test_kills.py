"""Killed at any moment, what is staged is the old index or the new one, and an update mends it.

Every verb that writes is killed before and after each of its calls of git, and at moments that are
drawn: some 400 kills in 15 minutes, fewer where ``KBINDEX_STRESS_SECONDS`` ends it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.kills import count_calls, killed_at
from testing.repositories import Repo

pytestmark = pytest.mark.stress
SECTIONS = "".join(f"## Part {n}\n\nThe keeper of part {n}.\n\n" for n in range(6))
SHARES = [0.05 * n for n in range(1, 20)]


@dataclass(frozen=True)
class Case:
    """A repository as it is before, what is run, and what may lie in git's index afterwards."""

    repo: Repo
    arguments: tuple[str, ...]
    follow_up: tuple[str, ...] = ("update",)
    """What mends it, besides an update."""


def edit(repo: Repo, number: int) -> None:
    file = repo.root / "bundle/log.md"
    file.write_text(file.read_text().replace(f"keeper of part {number}.", f"clerk of {number}."))
    repo.git("add", "--all")


def commit(repo: Repo, *verbs: str) -> None:
    for verb in verbs:
        done = repo.call(verb)
        assert done.code == 0, done.err
    repo.commit()


def begin(root: Path, environment: dict[str, str]) -> Repo:
    root.mkdir()
    repo = Repo(root, environment)
    repo.git("init", "--quiet", "--initial-branch=main")
    repo.write("kbindex.toml", 'embedder = "hash"\n')
    repo.write("bundle/log.md", f"# Log\n\n{SECTIONS}")
    repo.write("bundle/other.md", "# Other\n\nText.\n")
    repo.git("add", "--all")
    commit(repo, "update")
    edit(repo, 0)
    commit(repo, "update")
    return repo


def make_update(repo: Repo) -> Case:
    edit(repo, 1)
    repo.git("mv", "bundle/other.md", "bundle/moved.md")
    return Case(repo, ("update",))


def make_hook(repo: Repo) -> Case:
    edit(repo, 1)
    return Case(repo, ("hook", "pre-commit"))


def make_due_hook(repo: Repo) -> Case:
    repo.write("kbindex.toml", 'embedder = "hash"\ncheckpoint_every = 1\n')
    return make_hook(repo)


def make_checkpoint(repo: Repo) -> Case:
    return Case(repo, ("checkpoint",))


def make_compact(repo: Repo) -> Case:
    return Case(repo, ("compact",))


def make_resolve(repo: Repo) -> Case:
    repo.git("checkout", "--quiet", "-b", "topic")
    edit(repo, 2)
    commit(repo, "update", "checkpoint")
    repo.git("checkout", "--quiet", "main")
    edit(repo, 5)
    commit(repo, "update", "checkpoint")
    assert "CONFLICT" in repo.git("merge", "topic", check=False)
    return Case(repo, ("resolve",), ("resolve", "update"))


MAKERS: list[Callable[[Repo], Case]] = [
    make_update,
    make_hook,
    make_due_hook,
    make_checkpoint,
    make_compact,
    make_resolve,
]


def staged(repo: Repo) -> str:
    return repo.git("ls-files", "--stage", "--", ".kbindex")


def assert_mended(case: Case, repo: Repo, old: str) -> str:
    """Assert what has to hold after a kill; return whether the index is the old or the new one."""
    for lock in (repo.root / ".git").glob("*.lock"):
        lock.unlink()  # git leaves it, and says so
    is_unmerged = bool(repo.git("ls-files", "--unmerged"))
    found = "old" if staged(repo) == old else "new"
    if found == "new" and case.arguments[0] != "resolve":
        checked = repo.call("check", "--rev", repo.git("write-tree").strip())
        assert checked.code == 0, checked.out
    assert is_unmerged <= (case.arguments[0] == "resolve")
    for verb in case.follow_up:
        done = repo.call(verb)
        assert done.code == 0, done.err
    checked = repo.call("check", "--strict")
    assert checked.code == 0, checked.out
    assert repo.git("diff", "--name-only") == ""
    assert repo.git("ls-files", "--others", "--", ".kbindex") == ""
    repo.git("commit", "--quiet", "--allow-empty", "--no-edit", "--no-verify", "--message", "done")
    assert repo.call("check", "--rev", "HEAD", "--strict").code == 0
    return found


def kill_at(case: Case, repo: Repo, scratch: Path, call_number: int, when: str) -> None:
    code = killed_at(repo, scratch, call_number, when, *case.arguments)
    assert code == -signal.SIGKILL


def kill_after(case: Case, repo: Repo, seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kbindex", *case.arguments],
        cwd=repo.root,
        env=repo.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kills(case: Case, scratch: Path, again: Callable[[], Repo]) -> list[Callable[[Repo], None]]:
    """Return every way to kill a run of the case."""
    began = time.monotonic()
    n_calls = count_calls(again(), scratch, *case.arguments)
    duration = time.monotonic() - began
    found: list[Callable[[Repo], None]] = []
    for number in range(1, n_calls + 1):
        for when in ("before", "after"):
            found.append(lambda r, n=number, w=when: kill_at(case, r, scratch, n, w))
    found += [lambda r, s=share * duration: kill_after(case, r, s) for share in SHARES]
    return found


@pytest.fixture
def again(tmp_path: Path, environment: dict[str, str]) -> Callable[[Repo], Repo]:
    """Copy a repository to where it can be broken; the copy before is removed."""
    root = tmp_path / "copy"

    def make(template: Repo) -> Repo:
        if root.exists():
            shutil.rmtree(root)
        shutil.copytree(template.root, root, symlinks=True)
        repo = Repo(root, environment)
        repo.git("update-index", "--refresh", "-q", check=False)  # it complains of conflicts
        return repo

    return make


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_kill_leaves_the_old_index_or_the_new_and_an_update_mends_it(
    make: Callable[[Repo], Case],
    tmp_path: Path,
    environment: dict[str, str],
    again: Callable[[Repo], Repo],
) -> None:
    seconds = float(os.environ.get("KBINDEX_STRESS_SECONDS", "900")) / len(MAKERS)
    case = make(begin(tmp_path / "template", environment))
    old = staged(case.repo)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ways = kills(case, scratch, lambda: again(case.repo))
    random.Random(1).shuffle(ways)
    until, outcomes = time.monotonic() + seconds, Counter[str]()
    for kill in ways:
        if time.monotonic() > until:
            break
        repo = again(case.repo)
        kill(repo)
        outcomes[assert_mended(case, repo, old)] += 1
    print(f"\n{make.__name__}: {outcomes.total()} of {len(ways)} kills: {dict(outcomes)}")
    assert outcomes.total() > 0
