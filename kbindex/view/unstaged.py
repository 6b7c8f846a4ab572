"""Documents whose work tree text isn't what is indexed, from git's own stat cache."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from kbindex.git.index import CHANGED, UNTRACKED
from kbindex.git.paths import pathspec, split_paths
from kbindex.repo.repository import Repository


class StaleDocuments:
    """Asks git in the background, so that the answer is there when the search is done."""

    def __init__(self, repository: Repository) -> None:
        self._config = repository.config
        spec = pathspec(self._config.bundle)
        asked = () if repository.git.is_bare else (CHANGED, UNTRACKED)
        self._commands = [repository.git.start(*words, spec) for words in asked]

    def __enter__(self) -> StaleDocuments:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for command in self._commands:
            if command.returncode is None:
                command.kill()
                command.communicate()

    def paths(self, uncovered: Iterable[str]) -> tuple[str, ...]:
        """Return the paths in order, those whose outline doesn't stand included; waits for git."""
        found = set(uncovered)
        for command in self._commands:
            output, _ = command.communicate()
            found |= {name for name in split_paths(output) if self._config.is_document(name)}
        return tuple(sorted(found))
