"""git's objects: blobs read and written, many in one process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kbindex.core.errors import GitError
from kbindex.git.runner import Runner
from kbindex.local.scratch import scratch_folder

MOST_BYTES = 1 << 30
"""Bytes of one object that are read. A few bytes in a repository can stand for gigabytes of one."""
_BATCH_OBJECTS = 1000
_BATCH_BYTES = 1 << 26


class Objects:
    """The objects of one repository."""

    def __init__(self, git: Runner, scratch_dir: Path) -> None:
        """``scratch_dir`` holds what is handed to git as files, for the length of a call."""
        self._git, self._scratch_dir = git, scratch_dir

    def read_blobs(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (object id, content) in the order asked.

        Raises GitError for an object that is missing or has more than ``MOST_BYTES``.
        """
        wanted = list(oids)
        for batch in _batches(wanted, self._sizes(wanted)):
            request = "".join(f"{oid}\n" for oid in batch).encode()
            output = self._git.run("cat-file", "--batch", "--buffer", stdin=request)
            at = 0
            for oid in batch:
                end = output.index(b"\n", at)
                start = end + 1
                at = start + int(output[at:end].split(b" ")[2]) + 1
                yield oid, output[start : at - 1]

    def read_blob(self, oid: str) -> bytes:
        """Return the content of one object. Raises GitError as ``read_blobs``."""
        return next(self.read_blobs([oid]))[1]

    def write_blobs(self, contents: Sequence[bytes]) -> list[str]:
        """Store each content as it is and return its object id."""
        if not contents:
            return []
        with scratch_folder(self._scratch_dir) as scratch:
            names = [scratch / str(number) for number in range(len(contents))]
            for name, content in zip(names, contents, strict=True):
                name.write_bytes(content)
            listing = b"".join(_c_quoted(name) + b"\n" for name in names)
            stored = self._git.run(
                "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=listing
            )
        return stored.decode().split()

    def oversized(self, oids: Sequence[str], most_bytes: int) -> set[str]:
        """Return those of the objects that have more bytes. Raises GitError for a missing one."""
        sizes = self._sizes(oids, limit=None)
        return {oid for oid, size in zip(oids, sizes, strict=True) if size > most_bytes}

    def total_size(self, oids: Sequence[str]) -> int:
        """Return the bytes of all these objects."""
        return sum(self._sizes(oids, limit=None))

    def _sizes(self, oids: Sequence[str], limit: int | None = MOST_BYTES) -> list[int]:
        """Return the bytes of each object, without reading it."""
        if not oids:
            return []
        request = "".join(f"{oid}\n" for oid in oids).encode()
        listing = self._git.run("cat-file", "--batch-check=%(objectsize)", stdin=request).decode()
        sizes = []
        for oid, size in zip(oids, listing.splitlines(), strict=True):
            if not size.isdecimal():
                raise GitError(f"git has no object {oid}", "git fsck; git fetch --refetch")
            if limit is not None and int(size) > limit:
                raise GitError(
                    f"the object {oid} has {size} bytes, more than the {limit} that are read",
                    f"git rev-list --objects --all | grep {oid}   (names the file)",
                )
            sizes.append(int(size))
        return sizes


def _batches(oids: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yield parts of ``oids`` that are few and small enough to be held at once."""
    batch: list[str] = []
    n_bytes = 0
    for oid, size in zip(oids, sizes, strict=True):
        if batch and (len(batch) == _BATCH_OBJECTS or n_bytes + size > _BATCH_BYTES):
            yield batch
            batch, n_bytes = [], 0
        batch.append(oid)
        n_bytes += size
    if batch:
        yield batch


def _c_quoted(file: Path) -> bytes:
    """Return a path as git reads it in a list of lines, whatever its bytes."""
    return b'"%s"' % b"".join(b"\\%03o" % byte for byte in os.fsencode(file))
