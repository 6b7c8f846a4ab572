"""git's settings: version, configuration, attributes, ignored files, the folder of hooks."""

from __future__ import annotations

from pathlib import Path

from kbindex.git.paths import as_folder, split_paths
from kbindex.git.runner import Runner


class Settings:
    """The settings of one work tree."""

    def __init__(self, git: Runner, root: Path, git_dir: Path) -> None:
        self._git, self._root, self._git_dir = git, root, git_dir

    @property
    def version(self) -> str:
        """The version of git, ``2.39.5`` for instance."""
        return (self._git.line("version") or "").removeprefix("git version ")

    def value(self, name: str) -> str | None:
        """Return a value of git's configuration, ``None`` where it is not set."""
        return self._git.line("config", "--get", name)

    @property
    def is_sparse(self) -> bool:
        """Whether the work tree holds a part of the files alone."""
        return self._git.line("config", "--type=bool", "--get", "core.sparseCheckout") == "true"

    def attributes(self, path: str, *names: str) -> dict[str, str]:
        """Return what git's attributes say of a path, from every file that sets some."""
        fields = split_paths(self._git.run("check-attr", "-z", *names, "--", path))
        return dict(zip(fields[1::3], fields[2::3], strict=True))

    def is_ignored(self, path: str) -> bool:
        """Whether ``git add`` would leave out an untracked file at ``path``."""
        return self._git.try_run("check-ignore", "--quiet", "--no-index", "--", path) is not None

    @property
    def hooks_dir(self) -> Path:
        """The folder whose hooks git runs, links in it not followed."""
        configured = self._git.line("config", "--type=path", "--get", "core.hooksPath")
        if configured:
            return self._root / as_folder(configured)  # as written, links and all
        found = self._git.line("rev-parse", "--path-format=absolute", "--git-path", "hooks")
        return as_folder(found or str(self._git_dir / "hooks"))
