"""Run programs: kbindex in the process of the tests, which is faster, or any as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kbindex.cli import app

FROM_GIT = ("GIT_INDEX_FILE", "GIT_DIR", "GIT_WORK_TREE", "GIT_PREFIX", "PRE_COMMIT")
"""What git and the framework tell a hook of theirs; a process that they didn't start has none."""


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def decode_output(output: bytes) -> str:
    """Decode what a program wrote; bytes that are not UTF-8 stay recognisable."""
    return output.decode("utf-8", "surrogateescape")


def run_program(
    *command: str | Path, cwd: Path, environment: dict[str, str], stdin: bytes = b""
) -> Done:
    """Run a program to its end in a process of its own, whatever its exit code."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, input=stdin, capture_output=True, check=False
    )
    return Done(done.returncode, decode_output(done.stdout), decode_output(done.stderr))


def call_kbindex(
    *arguments: str, cwd: Path, environment: dict[str, str], stdin: bytes = b""
) -> Done:
    """Run the command line in this process, in a fifth of the time of one of its own.

    An exception that the command line doesn't turn into an exit code is raised.
    """
    variables = dict.fromkeys(FROM_GIT, "") | environment
    before = Path.cwd()
    os.chdir(cwd)
    try:
        done = CliRunner().invoke(
            app,
            list(arguments),
            env={name: value or None for name, value in variables.items()},
            input=stdin,
        )
    finally:
        os.chdir(before)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, decode_output(done.stdout_bytes), decode_output(done.stderr_bytes))
