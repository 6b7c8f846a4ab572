"""git's trees: which one a revision names, and which files it holds. No blob is read."""

from __future__ import annotations

from collections.abc import Iterator

from kbindex.core.errors import UsageError
from kbindex.git.paths import decode_path
from kbindex.git.runner import Runner


class Trees:
    """The trees of one repository."""

    def __init__(self, git: Runner) -> None:
        self._git = git

    def resolve(self, revision: str) -> str:
        """Return the tree id of a revision. Raises UsageError if there is none."""
        found = self._git.try_run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{tree}}"
        )
        if found is None:
            raise UsageError(f"'{revision}' names no commit or tree in this repository")
        return found.decode().strip()

    def find(self, revision: str) -> str | None:
        """Return the tree of a revision, ``None`` where there is none here."""
        return self._git.line("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}")

    def head(self) -> str | None:
        """Return the tree of HEAD, ``None`` before the first commit."""
        return self.find("HEAD")

    def files(self, tree: str, *folders: str) -> Iterator[tuple[str, str, str]]:
        """Yield (mode, object id, path) of every file below ``folders`` in ``tree``.

        Raises GitError for more of them than are read: ten trees in a repository can stand for
        billions of files.
        """
        listing = self._git.run_bounded("ls-tree", "-r", "-z", "--full-tree", tree, "--", *folders)
        for entry in listing.split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                mode, _, oid = meta.decode().split(" ")
                yield mode, oid, decode_path(path)

    def object_ids(self, tree: str, *paths: str) -> list[str | None]:
        """Return the id of each path in ``tree``, ``None`` where there is nothing."""
        found = {}
        for entry in self._git.run("ls-tree", "-z", "--full-tree", tree, "--", *paths).split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                found[decode_path(path)] = meta.decode().split(" ")[2]
        return [tree if path == "." else found.get(path) for path in paths]

    def files_at(self, tree: str, *paths: str) -> dict[str, tuple[str, str, int]]:
        """Return (mode, object id, bytes) of what ``tree`` has at each path, but of folders 0."""
        found = {}
        listing = self._git.run("ls-tree", "-z", "--long", "--full-tree", tree, "--", *paths)
        for entry in listing.split(b"\0"):
            if entry:
                meta, path = entry.split(b"\t", 1)
                mode, _, oid, size = meta.decode().split()
                found[decode_path(path)] = mode, oid, int(size) if size.isdecimal() else 0
        return found
