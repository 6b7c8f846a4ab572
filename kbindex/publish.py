"""Puts changed index files in place: git's index in one step, then the work tree.

Killed in between, git's index is whole and the work tree's copy of the index is behind it; the
next update or ``git checkout -- .kbindex`` mends that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from kbindex.git import Git, encode_path
from kbindex.layout import OUTLINES, TABLE, WAL

_UNSTAGED = "unstaged.json"


def stage_changes(git: Git, changes: Mapping[str, bytes | None], index_dir: str) -> list[str]:
    """Stage the files that differ from what is staged and check them out. Returns their paths."""
    return stage_stored(git, store_changes(git, changes), index_dir)


def store_changes(git: Git, changes: Mapping[str, bytes | None]) -> dict[str, str | None]:
    """Store the content of each file; return the blobs by path, ``None`` where one goes."""
    written = {path: content for path, content in changes.items() if content is not None}
    oids = dict(zip(written, git.write_blobs(list(written.values())), strict=True))
    return {path: oids.get(path) for path in changes}


def stage_stored(git: Git, blobs: Mapping[str, str | None], index_dir: str) -> list[str]:
    """Stage the blobs that differ from what is staged, as ``stage_changes`` does."""
    staged = {path: oid for _, oid, path in git.index_files(index_dir)}
    differing = {path: oid for path, oid in blobs.items() if staged.get(path) != oid}
    stage_blobs(git, differing)
    if not _leaves_worktree(git):
        restore_worktree(git, index_dir)
    return sorted(differing)


def _leaves_worktree(git: Git) -> bool:
    # `git commit PATH` may yet be stopped; post-commit brings the work tree along.
    return git.has_partial_index and not git.is_worktree_watched


def restore_worktree(git: Git, index_dir: str) -> None:
    """Make the work tree's index files those that are staged, whoever left them otherwise."""
    if git.is_sparse:
        return
    git.check_out(git.changed_in_worktree(index_dir))
    for path in git.untracked(*(f"{index_dir}/{folder}" for folder in (WAL, TABLE, OUTLINES))):
        remove_file(git.root, path)  # of a commit that was stopped, or a writer that was killed


def stage_blobs(git: Git, blobs: Mapping[str, str | None]) -> None:
    """Point staged paths at blobs, ``None`` removes one, and make the work tree follow."""
    git.stage(blobs)
    if _leaves_worktree(git):
        return
    present = sorted(path for path, oid in blobs.items() if oid)
    if git.is_sparse:
        git.skip_in_worktree(present)
    else:
        git.check_out(present)
    for path, oid in blobs.items():
        if oid is None:
            remove_file(git.root, path)


def write_changes(git: Git, changes: dict[str, bytes | None], local_dir: Path) -> list[str]:
    """Write the files to the work tree only. Returns the paths that differ from before.

    A note of them is left in ``local_dir``, so that a check can tell them from damage.
    """
    differing = []
    for path, content in sorted(changes.items()):
        file = git.root / Path(os_path(path))
        before = file.read_bytes() if file.is_file() else None
        if before == content:
            continue
        differing.append(path)
        if content is None:
            remove_file(git.root, path)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch = file.with_name(f".{file.name[:200]}.tmp")
            scratch.write_bytes(content)
            scratch.replace(file)
    digests = {path: file_digest(git.root, path) for path in changes}
    local_dir.mkdir(parents=True, exist_ok=True)
    (local_dir / _UNSTAGED).write_text(json.dumps(digests), encoding="ascii")
    return differing


def read_unstaged(local_dir: Path) -> dict[str, str]:
    """Return the digests of the index files that were written but not staged, by their path."""
    try:
        found = json.loads((local_dir / _UNSTAGED).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def file_digest(root: Path, path: str) -> str:
    """Return the hash of a file of the work tree, empty where there is none."""
    try:
        return hashlib.sha256((root / os_path(path)).read_bytes()).hexdigest()
    except OSError:
        return ""


def remove_file(root: Path, path: str) -> None:
    """Remove a file and the folders that it leaves empty, below ``root``."""
    file = root / os_path(path)
    file.unlink(missing_ok=True)
    for folder in file.parents:
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def os_path(path: str) -> str:
    """Return git's path as this system's file functions take it, whatever its bytes."""
    return os.fsdecode(encode_path(path))
