"""Runs git in one folder with one environment: bytes in and out, git's own words in errors."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbindex.core.errors import GitError
from kbindex.git.paths import decode_path

MOST_LISTED = 1 << 26
"""Bytes of a tree's listing that are read; Chromium's has 48 MB."""


class Runner:
    """git in one folder under one environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run git and return its output. Raises GitError with git's own words."""
        done = self.complete(arguments, stdin)
        if done.returncode:
            words = decode_path(done.stderr).strip() or f"exit code {done.returncode}"
            raise GitError(f"git {arguments[0]} failed: {words}")
        return done.stdout

    def try_run(self, *arguments: str) -> bytes | None:
        """Run git and return its output, ``None`` where it fails."""
        done = self.complete(arguments)
        return done.stdout if done.returncode == 0 else None

    def line(self, *arguments: str) -> str | None:
        """Run git and return the line that it prints, ``None`` where it fails."""
        found = self.try_run(*arguments)
        return None if found is None else decode_path(found).removesuffix("\n")

    def run_bounded(self, *arguments: str) -> bytes:
        """Run git and return its output. Raises GitError as ``run``, and over ``MOST_LISTED``."""
        with subprocess.Popen(
            ["git", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read(MOST_LISTED + 1)
            if len(output) > MOST_LISTED:
                process.kill()
                raise GitError(
                    f"a tree has more files than are read: a list of over {MOST_LISTED} bytes",
                    "set 'bundle' to the folder of the documents alone",
                )
        return output if process.returncode == 0 else self.run(*arguments)

    def complete(
        self, arguments: Sequence[str], stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git and return how it ended, whatever the exit code."""
        return subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start git and return at once; the caller reads its output."""
        return subprocess.Popen(
            ["git", *arguments],
            cwd=self.folder,
            # In a partial clone it must not ask a server for what it can do without.
            env=self.environment | {"GIT_NO_LAZY_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @contextmanager
    def under(self, environment: Mapping[str, str]) -> Iterator[None]:
        """Run git with another environment for a while."""
        previous, self.environment = self.environment, dict(environment)
        try:
            yield
        finally:
            self.environment = previous
