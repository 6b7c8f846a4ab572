"""Kill the program at one of its calls of git."""

from __future__ import annotations

import os
from pathlib import Path

from testing.repositories import Repo

KILLER = """\
#!/bin/sh
# Stands before git on PATH: kills the caller before (or after) its Nth call of git.
n=$(($(cat "$COUNTER") + 1))
echo $n >"$COUNTER"
if [ "$n" = "$KILL_AT" ] && [ "$KILL_WHEN" = before ]; then kill -9 $PPID; exit 1; fi
PATH="$REAL_PATH" git "$@"
code=$?
if [ "$n" = "$KILL_AT" ]; then kill -9 $PPID; fi
exit $code
"""


def killed_at(
    repo: Repo, scratch: Path, call: int, when: str, *arguments: str, **variables: str
) -> int:
    """Run the program and kill it at its Nth call of git. Returns its exit code."""
    folder = scratch / "killer"
    folder.mkdir(exist_ok=True)
    killer = folder / "git"
    killer.write_text(KILLER)
    killer.chmod(0o755)
    counter = scratch / "counter"
    counter.write_text("0")
    path = repo.environment["PATH"]
    done = repo.kbindex(
        *arguments,
        cwd=repo.root,
        PATH=f"{folder}{os.pathsep}{path}",
        REAL_PATH=path,
        COUNTER=str(counter),
        KILL_AT=str(call),
        KILL_WHEN=when,
        TMPDIR=str(scratch),  # what a killed process leaves there is not swept up
        **variables,
    )
    return done.code


def restored(repo: Repo, to: str) -> None:
    """Bring the repository back to ``to``, with nothing that a killed process left."""
    (repo.root / ".git/index.lock").unlink(missing_ok=True)
    repo.git("reset", "--quiet", "--hard", to)
    repo.git("clean", "--quiet", "-fdx", ".kbindex")


def count_calls(repo: Repo, scratch: Path, *arguments: str, **variables: str) -> int:
    """Run the program to its end and count its calls of git."""
    assert killed_at(repo, scratch, 0, "never", *arguments, **variables) == 0
    return int((scratch / "counter").read_text())
