"""The state of a repository: its branches and commits, and a merge or rebase under way."""

from __future__ import annotations

from pathlib import Path

from kbindex.git.runner import Runner

_MID_OPERATION = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
)


class State:
    """The state of one work tree."""

    def __init__(self, git: Runner, git_dir: Path) -> None:
        self._git, self._git_dir = git, git_dir

    def branch(self) -> str | None:
        """Return the current branch, ``None`` when HEAD is detached."""
        return self._git.line("symbolic-ref", "--quiet", "--short", "HEAD")

    def default_branch(self) -> str | None:
        """Return the branch that ``origin`` calls its default, or the only usual name there is."""
        found = self._git.line("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        if found:
            return found.removeprefix("origin/")
        if self._git.try_run("remote"):
            return None
        current = self.branch()
        usual = [
            name
            for name in ("main", "master")
            if name == current
            or self._git.try_run("rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
        ]
        return usual[0] if len(usual) == 1 else None

    def branch_tips(self) -> list[str]:
        """Return the commits of all local and remote branches, each once."""
        form = "--format=%(objectname)"
        tips = self._git.run("for-each-ref", form, "refs/heads", "refs/remotes").decode().split()
        return list(dict.fromkeys(tips))

    def parents(self, commit: str) -> list[str]:
        """Return a commit's parents; those that a shallow clone lacks are left out."""
        found = self._git.try_run("rev-list", "--parents", "--max-count=1", commit)
        return found.decode().split()[1:] if found else []

    @property
    def is_mid_operation(self) -> bool:
        """Whether a merge, rebase, cherry-pick or revert is under way."""
        return any((self._git_dir / name).exists() for name in _MID_OPERATION)

    @property
    def is_rebasing(self) -> bool:
        """Whether a rebase is under way."""
        return any((self._git_dir / name).exists() for name in ("rebase-merge", "rebase-apply"))

    def operation_commits(self) -> list[str]:
        """Return the commits that a merge, pick, revert or rebase under way brings in."""
        found = []
        for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"):
            file = self._git_dir / name
            if file.is_file():
                found += file.read_text("ascii").split()
        return found
