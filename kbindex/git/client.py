"""A repository as git knows it: where it lies, and a door to each thing that git can be asked.

Measured with git 2.39; what is relied on is in bundle/decisions and covered by tests on real
repositories.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from kbindex.core.errors import NotARepositoryError, UsageError
from kbindex.core.text import shell_word
from kbindex.git.environment import call_environment
from kbindex.git.index import Index
from kbindex.git.objects import Objects
from kbindex.git.paths import as_folder, decode_path
from kbindex.git.runner import Runner
from kbindex.git.settings import Settings
from kbindex.git.state import State
from kbindex.git.trees import Trees

_BARE = "--is-bare-repository"
_FOLDERS = ("--git-dir", "--git-common-dir")


class Git:
    """One repository, as seen from one work tree (or a bare one: ``root`` is its git dir)."""

    def __init__(self, directory: Path | None = None, *, made_in: Path | None = None) -> None:
        """Find the repository of ``directory``, or of the current one and git's environment.

        With ``made_in``, a git dir there is made for ``directory``, which holds no repository.
        Raises NotARepositoryError.
        """
        if shutil.which("git") is None:
            raise UsageError("git is not installed or not on PATH", "install git 2.31 or newer")
        start = directory or Path.cwd()
        if not start.is_dir():
            raise NotARepositoryError(str(start))
        environment = call_environment(os.environ, is_elsewhere=directory is not None)
        self._runner = Runner(start, environment)
        if made_in is not None:
            self._runner.environment |= {"GIT_DIR": str(made_in), "GIT_WORK_TREE": str(start)}
            self.run("init", "--quiet", "--template=")
        self.is_bare, self.git_dir, self.common_dir = _find(
            self._runner, None if made_in else self._runner.environment.get("GIT_DIR")
        )
        self._refuse_repository_among_files(start)
        top = None if self.is_bare else self._runner.line("rev-parse", "--show-toplevel")
        self.root = as_folder(top) if top else self.git_dir
        self._runner.folder = self.root
        # What is given may be as seen from where we began; a work tree alone goes with the git dir
        # that was found there.
        named = self._runner.environment.keys() & {"GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"}
        found = {"GIT_COMMON_DIR": self.common_dir} | ({"GIT_WORK_TREE": self.root} if top else {})
        self._runner.environment |= {name: str(found[name]) for name in named & found.keys()}
        self._runner.environment |= {"GIT_DIR": str(self.git_dir)} if named else {}

        self.trees = Trees(self._runner)
        self.objects = Objects(self._runner, self.local_dir)
        self.index = Index(self._runner, self.root, self.git_dir, self.local_dir)
        self.state = State(self._runner, self.git_dir)
        self.settings = Settings(self._runner, self.root, self.git_dir)

    def _refuse_repository_among_files(self, start: Path) -> None:
        """Raise UsageError for a git dir that lies among the files of another repository.

        It may have come with them, and its configuration may name programs that git runs.
        """
        is_named = "GIT_DIR" in self._runner.environment
        if is_named or not start.resolve().is_relative_to(self.git_dir):
            return
        self._runner.folder = self.git_dir.parent
        outer = self._runner.line("rev-parse", "--absolute-git-dir")
        if outer is not None and not self.git_dir.is_relative_to(as_folder(outer)):
            raise UsageError(
                f"the repository '{self.git_dir}' lies among the files of another one",
                "if you know where it comes from, say that you mean it: "
                f"GIT_DIR={shell_word(str(self.git_dir))} kbindex …",
            )

    @property
    def local_dir(self) -> Path:
        """Our local state that all work trees share; nothing of it is ever committed."""
        return self.common_dir / "kbindex"

    @property
    def is_worktree_watched(self) -> bool:
        """Whether the pre-commit framework compares the work tree with the index after a hook."""
        return bool(self._runner.environment.get("PRE_COMMIT"))

    def require_worktree(self) -> None:
        """Raise UsageError in a bare repository."""
        if self.is_bare:
            raise UsageError(
                f"'{self.git_dir}' is a bare repository, and an index is built in a work tree",
                "run this in a clone",
            )

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Run git and return its output. Raises GitError with git's own words."""
        return self._runner.run(*arguments, stdin=stdin)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start git and return at once; the caller reads its output."""
        return self._runner.start(*arguments)


def _find(runner: Runner, given: str | None) -> tuple[bool, Path, Path]:
    """Return whether the repository is bare, its git dir and the one that work trees share.

    ``given`` is what GIT_DIR says. Raises UsageError with the reason where git finds none.
    """
    done = runner.complete(("rev-parse", "--path-format=absolute", _BARE, *_FOLDERS))
    if done.returncode:
        raise _not_found(runner.folder, decode_path(done.stderr), given)
    bare, *folders = decode_path(done.stdout).removesuffix("\n").split("\n")
    if len(folders) != 2:  # a folder's name holds a newline
        folders = [runner.line("rev-parse", "--path-format=absolute", o) or "" for o in _FOLDERS]
    git_dir, common_dir = map(as_folder, folders)
    return bare == "true", git_dir, common_dir


def _not_found(start: Path, words: str, git_dir: str | None) -> UsageError:
    """Return what to say where git finds no repository: its own words if it refuses one."""
    if git_dir is not None and "not a git repository" in words:
        return UsageError(f"GIT_DIR names no repository: '{git_dir}'", "unset GIT_DIR, or mend it")
    if "not a git repository" in words:
        return NotARepositoryError(str(start))
    reason, *more = words.strip().removeprefix("fatal: ").split("\n")
    remedy = next((line.strip() for line in more if "safe.directory" in line), None)
    return UsageError(f"git refuses: {reason}", remedy)
