"""Errors that a user can mend, each with its exit code and remedy.

Bugs are not here: they stay ordinary exceptions, and the command line turns them into exit 70.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from kbindex.core.model import Problem, Rule
from kbindex.core.text import shell_word


class ExitCode(IntEnum):
    """The documented exit codes (bundle/reference/exit-codes.md)."""

    OK = 0
    NEGATIVE = 1
    """No hit, stale, or refused."""
    USAGE = 2
    UNREADABLE_INDEX = 3
    NO_EMBEDDER = 4
    BUG = 70
    INTERRUPTED = 130


class KbindexError(Exception):
    """A condition the user can mend: one clear message, the remedy, an exit code."""

    exit_code = ExitCode.USAGE

    def __init__(
        self,
        reason: str,
        remedy: str | None = None,
        *,
        path: str | None = None,
        mended_by_update: bool = False,
    ) -> None:
        """``path`` is the file at fault; ``mended_by_update``: an update is the remedy."""
        self.message = f"{path}: {reason}" if path else reason
        super().__init__(self.message)
        self.reason, self.path, self.remedy = reason, path, remedy
        self.mended_by_update = mended_by_update


class UsageError(KbindexError):
    """Wrong options, configuration, or an unknown document or section."""


class NotARepositoryError(UsageError):
    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is not inside a git repository",
            "run this inside a repository, or name one with --repo DIR",
        )


class NoBundleError(UsageError):
    def __init__(self, bundle: str, left_out: Sequence[Problem] = ()) -> None:
        first = "".join(f"; '{problem.path}' {problem.message}" for problem in left_out[:1])
        super().__init__(
            f"there is no bundle: no Markdown file under '{bundle}/' is known to git{first}",
            f"put documents into '{bundle}/' and 'git add' them, "
            "or name another folder with 'kbindex init --bundle DIR'",
        )


LINK = "a symbolic link"


class UnsafePlaceError(UsageError):
    """A link, file or folder in the work tree blocks the path of one of our files."""

    def __init__(self, path: str, found: str, needed: str) -> None:
        self.found = found
        word = shell_word(path)
        super().__init__(
            f"'{path}' in the work tree is {found}, where kbindex needs {needed}",
            f"rm -- {word}   (the link goes, not what it points to), then run this again"
            if found == LINK
            else f"move {word} away, or set another 'index_dir'; then run this again",
        )


class NoIndexError(KbindexError):
    exit_code = ExitCode.UNREADABLE_INDEX

    def __init__(self, index_dir: str, *, is_bare: bool = False) -> None:
        super().__init__(
            f"there is no index yet: '{index_dir}/recipe.json' is not known to git",
            "kbindex init" + (" in a clone; then commit, and push to here" if is_bare else ""),
        )


def restore_from_head(path: str) -> str:
    """Return the shell command that restores a file or folder from HEAD, staged and on disk."""
    return f"git restore --source=HEAD --staged --worktree -- {shell_word(path)}"


class DamagedIndexError(KbindexError):
    """A file of the index can't be what kbindex wrote."""

    exit_code = ExitCode.UNREADABLE_INDEX

    def __init__(
        self,
        path: str,
        reason: str,
        remedy: str | None = None,
        *,
        mended_by_update: bool = True,
        rule: Rule = Rule.DAMAGED_FILE,
    ) -> None:
        mend = f"kbindex update   (or, if HEAD's copy is sound: {restore_from_head(path)})"
        super().__init__(reason, remedy or mend, path=path, mended_by_update=mended_by_update)
        self.rule = rule


class RecipeError(KbindexError):
    """The index was made by another embedder, chunker or format than the configured one."""

    exit_code = ExitCode.UNREADABLE_INDEX


class OlderFormatError(RecipeError):
    """An index of an older format: an update builds it anew."""

    def __init__(self, path: str, found: int, known: int) -> None:
        reason = f"the index has format {found}, older than the {known} that is read here"
        super().__init__(reason, "kbindex update", path=path, mended_by_update=True)
        self.found = found


class RefusedError(KbindexError):
    """A hook or update that stopped before it changed anything."""

    exit_code = ExitCode.NEGATIVE


class TooMuchToEmbedError(RefusedError):
    """More chunks than a commit may embed (``hook_max_chunks``); an update embeds them first."""

    def __init__(self, n_chunks: int, limit: int) -> None:
        super().__init__(
            f"{n_chunks} chunks have to be embedded, more than the {limit} "
            "that a commit waits for (hook_max_chunks)",
            "kbindex update   (shows progress, can be interrupted, resumes); then commit again",
            mended_by_update=True,
        )


class GitError(KbindexError):
    """git itself failed; its own words are the message."""

    exit_code = ExitCode.USAGE


class NoEmbedderError(KbindexError):
    """The embedder can't be loaded or reached and was required."""

    exit_code = ExitCode.NO_EMBEDDER


class EmbeddingError(KbindexError):
    """A text could not be embedded; ``index`` is its place in the batch, ``None`` if not known."""

    exit_code = ExitCode.NO_EMBEDDER

    def __init__(self, index: int | None, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class TooLongError(EmbeddingError):
    """The embedder refused a text for its length: cut it further, never off."""
