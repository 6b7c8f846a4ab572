"""git's index file: staged files, differences from the work tree, trees made of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from kbindex.core.errors import GitError, RefusedError
from kbindex.git.environment import without_split_index
from kbindex.git.paths import decode_path, encode_path, pathspec, split_paths
from kbindex.git.runner import Runner
from kbindex.local.scratch import scratch_folder

REGULAR_FILE = "100644"
SUBMODULE = "160000"
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)

# Unlike diff-files, "diff" looks into a file whose time alone differs from git's stat cache. It is
# kept from looking into nested repositories, whose configuration may name programs, and from
# failing for want of the file that the user's diff.orderFile names.
_DIFF = ("diff", "--name-only", "--no-renames", "--ignore-submodules", "-O/dev/null", "-z")
CHANGED = (*_DIFF, "--")
UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z", "--")


class Index:
    """The index of one work tree."""

    def __init__(self, git: Runner, root: Path, git_dir: Path, scratch_dir: Path) -> None:
        """``scratch_dir`` holds other index files, for the length of a call."""
        self._git, self._root, self._git_dir = git, root, git_dir
        self._scratch_dir = scratch_dir

    @cached_property
    def file(self) -> Path:
        """The index that git uses now: a hook of ``commit -a`` or ``commit PATH`` has its own."""
        return self._root / (self._git.environment.get("GIT_INDEX_FILE") or self._git_dir / "index")

    @property
    def is_of_one_commit(self) -> bool:
        """Whether this is a hook of a commit that stages by itself: with ``-a``, ``-i``, PATH.

        Its index is gone if the commit is stopped, and with PATH also when it has been made.
        """
        return self.file.name.startswith(("next-index-", "index.lock"))

    def files(
        self, *folders: str, take_ours: Callable[[str], bool] = lambda _path: False
    ) -> Iterator[tuple[str, str, str]]:
        """Yield (mode, object id, path) of every staged file below ``folders``.

        A conflicted path has our side's blob where ``take_ours``, or theirs if we have none.
        """
        specs = [pathspec(folder) for folder in folders]
        intended: set[str] | None = None
        unmerged: set[str] = set()
        for entry in self._git.run("ls-files", "--stage", "-z", "--", *specs).split(b"\0"):
            if not entry:
                continue
            meta, path = entry.split(b"\t", 1)
            mode, oid, stage = meta.decode().split(" ")
            if oid in _EMPTY_BLOBS and intended is None:
                # "git add -N" lists an empty blob that no commit would hold.
                added = self._git.run(*_DIFF, "--diff-filter=A", "--", *specs)
                intended = set(split_paths(added))
            name = decode_path(path)
            if stage in "23" and name not in unmerged and take_ours(name):
                unmerged.add(name)
                yield mode, oid, name
            if stage == "0" and not (intended and name in intended):
                yield mode, oid, name

    def unmerged(self, folder: str) -> dict[str, dict[int, str]]:
        """Return conflicted paths: stage (1 base, 2 ours, 3 theirs) to blob."""
        spec = pathspec(folder)
        found: dict[str, dict[int, str]] = {}
        for entry in self._git.run("ls-files", "--unmerged", "-z", "--", spec).split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                _, oid, stage = meta.decode().split(" ")
                found.setdefault(decode_path(path), {})[int(stage)] = oid
        return found

    def changed_in_worktree(self, folder: str) -> list[str]:
        """Return the staged paths below ``folder`` whose work tree file is another or gone."""
        return split_paths(self._git.run(*CHANGED, pathspec(folder)))

    def untracked(self, *folders: str) -> list[str]:
        """Return the files below ``folders`` that git doesn't know and doesn't ignore."""
        return split_paths(self._git.run(*UNTRACKED, *map(pathspec, folders)))

    def stage(self, changes: Mapping[str, str | None]) -> None:
        """Point staged paths at blobs (``None`` removes one), all of them or none."""
        lines = [
            f"{REGULAR_FILE} {oid}\t{path}" if oid else f"0 {self._null_id}\t{path}"
            for path, oid in changes.items()
        ]
        if lines:
            self._git.run(
                "update-index", "-z", "--index-info", stdin=encode_path("\0".join(lines) + "\0")
            )

    def add_all(self, *folders: str, ignored: bool = False) -> None:
        """Stage everything below ``folders`` as it is on disk, but nothing of nested repositories.

        In one that is staged already git would look for changes, as its configuration says how.
        """
        nested = [path for mode, _, path in self.files(*folders) if mode == SUBMODULE]
        specs = [*map(pathspec, folders), *(f":(top,literal,exclude){path}" for path in nested)]
        options = ("--all", *(["--force"] if ignored else []))
        stdin = encode_path("\0".join(specs))
        self._git.run("add", *options, "--pathspec-from-file=-", "--pathspec-file-nul", stdin=stdin)

    def skip_in_worktree(self, paths: Sequence[str]) -> None:
        """Tell git that a sparse work tree doesn't hold these staged files."""
        listing = encode_path("".join(f"{path}\0" for path in paths))
        if paths:
            self._git.run("update-index", "--skip-worktree", "-z", "--stdin", stdin=listing)

    def check_out(self, paths: Sequence[str]) -> None:
        """Write staged files to the work tree, replacing what is there."""
        listing = encode_path("".join(f"{path}\0" for path in paths))
        if paths:
            self._git.run("checkout-index", "--force", "--index", "-z", "--stdin", stdin=listing)

    def write_tree(self) -> str:
        """Return the tree that a commit would record now. Raises RefusedError on conflicts."""
        done = self._git.complete(("write-tree",), None)
        if done.returncode == 0:
            return done.stdout.decode().strip()
        unmerged = self.unmerged(".")
        if unmerged:
            raise RefusedError(
                f"a merge is unresolved: {', '.join(list(unmerged)[:3])}",
                "settle the index with 'kbindex resolve', resolve the documents, 'git add' them, "
                "and run this again",
            )
        raise GitError(f"git write-tree failed: {decode_path(done.stderr).strip()}")

    def staged_tree(self) -> str | None:
        """Return the tree that a commit would record now, ``None`` where git can't write one."""
        try:
            return self.write_tree()
        except GitError:
            return None

    def write_worktree_tree(self, folder: str) -> str:
        """Return the tree that a commit would record if ``folder`` were added as it is on disk."""
        staged = self.file
        with self._temporary() as index:
            if staged.exists():
                shutil.copyfile(staged, index)
            if folder == "." or (self._root / os.fsdecode(encode_path(folder))).exists():
                self.add_all(folder)
            return self.write_tree()

    def tree_with(self, tree: str, blobs: Mapping[str, str | None]) -> str:
        """Return ``tree`` with paths pointed at blobs (``None`` removes one); stages nothing."""
        with self._temporary():
            self._git.run("read-tree", tree)
            self.stage(blobs)
            return self.write_tree()

    @cached_property
    def _null_id(self) -> str:
        is_sha256 = self._git.line("rev-parse", "--show-object-format") == "sha256"
        return "0" * (64 if is_sha256 else 40)

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        """Let git work on an index file that isn't there yet and leaves no trace."""
        with scratch_folder(self._scratch_dir) as scratch:
            index = scratch / "index"
            with self._git.under(without_split_index(self._git.environment, str(index))):
                yield index
