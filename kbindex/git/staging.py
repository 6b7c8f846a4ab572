"""Puts changed index files in place: git's index in one step, then the work tree.

Killed in between, git's index is whole and the work tree's copy of the index is behind it; the
next update or ``git checkout -- .kbindex`` mends that. Nothing is changed at all where a link, or a
file of the user's, is in the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from kbindex.core.errors import UnsafePlaceError, UsageError
from kbindex.core.names import is_regular
from kbindex.core.paths import OUTLINES, TABLE, WAL
from kbindex.git.client import Git
from kbindex.git.worktree import read_file, remove_file, require_plain, write_file
from kbindex.local.files import read_strings
from kbindex.local.scratch import write_whole

_UNSTAGED = "unstaged.json"
_MOST_BYTES = 1 << 26
"""Most bytes of that file, which has a line for each index file."""


def stage_changes(git: Git, changes: Mapping[str, bytes | None], index_dir: str) -> list[str]:
    """Stage the files that differ from what is staged and check them out. Returns their paths."""
    return stage_stored(git, store_changes(git, changes), index_dir)


def store_changes(git: Git, changes: Mapping[str, bytes | None]) -> dict[str, str | None]:
    """Store the content of each file; return the blobs by path, ``None`` where one goes."""
    written = {path: content for path, content in changes.items() if content is not None}
    oids = dict(zip(written, git.objects.write_blobs(list(written.values())), strict=True))
    return {path: oids.get(path) for path in changes}


def stage_stored(git: Git, blobs: Mapping[str, str | None], index_dir: str) -> list[str]:
    """Stage the blobs that differ from what is staged, as ``stage_changes`` does."""
    entries = list(git.index.files(index_dir))
    _require_folder(git, index_dir, entries)
    staged = {path: oid for _, oid, path in entries}
    differing = {path: oid for path, oid in blobs.items() if staged.get(path) != oid}
    follows = not (_leaves_worktree(git) or git.settings.is_sparse)
    if follows:  # before anything is staged
        stay = set(git.index.changed_in_worktree(index_dir)) - differing.keys()
        require_plain(git.root, stay, {path for path, oid in differing.items() if oid is None})
    stage_blobs(git, differing)
    if follows:
        restore_worktree(git, index_dir)
    return sorted(differing)


def _require_folder(git: Git, index_dir: str, entries: Iterable[tuple[str, str, str]]) -> None:
    """Raise UsageError where a file is staged in place of the folder, or any other entry above it.

    A link or submodule in place of the folder itself is none of the user's, and is taken out.
    """
    above = index_dir.rpartition("/")[0]
    if above:
        entries = git.index.files(above.split("/")[0])
    for mode, _, path in entries:
        is_in_the_way = path != index_dir or is_regular(mode)
        if is_in_the_way and f"{index_dir}/".startswith(f"{path}/"):
            raise UsageError(
                f"'{path}' is no folder, and the index needs one there",
                "set 'index_dir' to a folder of its own",
            )


def _leaves_worktree(git: Git) -> bool:
    # The commit may yet be stopped, and what it staged be lost; post-commit brings the work tree.
    return git.index.is_of_one_commit and not git.is_worktree_watched


def restore_worktree(git: Git, index_dir: str) -> None:
    """Make the work tree's index files those that are staged, whoever left them otherwise."""
    if git.settings.is_sparse:
        return
    changed = git.index.changed_in_worktree(index_dir)
    require_plain(git.root, changed)
    git.index.check_out(changed)
    for path in git.index.untracked(
        *(f"{index_dir}/{folder}" for folder in (WAL, TABLE, OUTLINES))
    ):
        remove_file(git.root, path)  # of a commit that was stopped, or a writer that was killed


def stage_blobs(git: Git, blobs: Mapping[str, str | None]) -> None:
    """Point staged paths at blobs, ``None`` removes one, and make the work tree follow."""
    removed = {path for path, oid in blobs.items() if oid is None}
    follows = not _leaves_worktree(git)
    if follows:
        require_plain(git.root, blobs.keys(), removed)
    git.index.stage(blobs)
    for path in removed if follows else ():
        remove_file(git.root, path)
    present = sorted(blobs.keys() - removed)
    if git.settings.is_sparse:
        git.index.skip_in_worktree(present)
    elif follows:
        git.index.check_out(present)


def write_changes(
    git: Git, changes: dict[str, bytes | None], index_dir: str, local_dir: Path
) -> list[str]:
    """Write the files to the work tree only. Returns the paths that differ from before.

    A note of them is left in ``local_dir``, so that a check can tell them from damage.
    """
    _require_folder(git, index_dir, git.index.files(index_dir))
    removed = {path for path, content in changes.items() if content is None}
    require_plain(git.root, changes.keys(), removed)
    differing = [path for path in removed if remove_file(git.root, path)]
    for path, content in changes.items():
        if content is not None and read_file(git.root, path) != content:
            write_file(git.root, path, content)
            differing.append(path)
    digests = {path: file_digest(git.root, path) for path in changes}
    with suppress(OSError):  # without the note a check calls them damaged, which mends them
        write_whole(local_dir / _UNSTAGED, json.dumps(digests))
    return sorted(differing)


def read_unstaged(local_dir: Path) -> dict[str, str]:
    """Return the digests of the index files that were written but not staged, by their path."""
    return read_strings(local_dir / _UNSTAGED, _MOST_BYTES)


def file_digest(root: Path, path: str) -> str:
    """Return the hash of a file of the work tree, empty where there is none of its own."""
    try:
        content = read_file(root, path)
    except (OSError, UnsafePlaceError):
        return ""
    return "" if content is None else hashlib.sha256(content).hexdigest()
