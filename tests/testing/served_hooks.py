"""git with our hooks, which run in the test's own process: real commits at a tenth of the time.

The hook is a shell script that asks this process over a named pipe and waits for the exit code. It
passes on what git tells it: the folder, the environment, and for a push the refs.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.commands import FROM_GIT, Done, decode_output
from testing.repositories import Repo

_HOOKS = ("pre-commit", "pre-merge-commit", "post-commit", "pre-push")
_SCRIPT = """\
#!/bin/sh
name=$(basename "$0")
[ "$name" = pre-push ] && cat >"$KBINDEX_PIPES/refs"
{{ echo "$name"; pwd; {variables} echo .; }} >"$KBINDEX_PIPES/asked"
read -r code <"$KBINDEX_PIPES/answered"
exit "$code"
"""


class ServedHooks:
    """The hooks of some repositories, as long as the pipes are open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in ("asked", "answered"):
            os.mkfifo(folder / name)
        # For reading and writing: neither end ever finds the other closed.
        self._asked = os.open(folder / "asked", os.O_RDWR | os.O_NONBLOCK)
        self._answered = os.open(folder / "answered", os.O_RDWR)

    def close(self) -> None:
        os.close(self._asked)
        os.close(self._answered)

    def install(self, repo: Repo) -> None:
        """Make our scripts the repository's hooks."""
        hooks = repo.root / ".git/hooks"
        hooks.mkdir(exist_ok=True)
        variables = " ".join(f'echo "${name}";' for name in FROM_GIT)
        for name in _HOOKS:
            (hooks / name).write_text(_SCRIPT.format(variables=variables))
            (hooks / name).chmod(0o755)

    def git(self, repo: Repo, *arguments: str, stdin: bytes = b"", program: str = "git") -> Done:
        """Run git, and its hooks in this process; their words are in ``err`` as git's are."""
        process = subprocess.Popen(
            [program, *arguments],
            cwd=repo.root,
            env=repo.environment | {"KBINDEX_PIPES": str(self._folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        words = list(self._serve(repo, process))
        out, err = map(decode_output, process.communicate())
        return Done(process.returncode, out, "".join(words) + err)

    def _serve(self, repo: Repo, process: subprocess.Popen[bytes]) -> Iterator[str]:
        """Answer every hook until git has ended; yield what each said."""
        asked = b""
        while process.poll() is None:
            if select.select([self._asked], [], [], 0.002)[0]:
                asked += os.read(self._asked, 65536)
            if asked.endswith(b"\n.\n"):
                name, folder, *values, _, _ = decode_output(asked).split("\n")
                asked = b""
                passed = dict(zip(FROM_GIT, values, strict=True))
                refs = (self._folder / "refs").read_bytes() if name == "pre-push" else b""
                done = repo.call("hook", name, cwd=Path(folder), stdin=refs, **passed)
                os.write(self._answered, f"{done.code}\n".encode())
                yield done.err


@contextmanager
def served_hooks(folder: Path) -> Iterator[ServedHooks]:
    """Serve hooks through pipes in ``folder``, which is made."""
    hooks = ServedHooks(folder)
    try:
        yield hooks
    finally:
        hooks.close()
