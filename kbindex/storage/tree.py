"""An index tree: a repository with the listing of one of its git trees, and what that holds.

Recipe, outlines, documents and rows are read from git's objects rather than from the work tree, so
that what is staged counts and a damaged or sparse work tree does not matter. Nothing is written,
and no local state is trusted: ``reader`` adds the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.config import Config
from kbindex.configuration.recipe import identity_id, parse_recipe
from kbindex.core.errors import (
    DamagedIndexError,
    NoBundleError,
    NoIndexError,
    RecipeError,
)
from kbindex.core.model import NOT_EMBEDDED, EmbedderIdentity, Recipe, Row, Snapshot
from kbindex.core.paths import LFS_POINTER, POINTER_REASON, RECIPE, TABLE, WAL
from kbindex.git.client import Git
from kbindex.outline.file import OutlineMismatch, parse_outline
from kbindex.outline.freshness import Pairs, compare
from kbindex.outline.states import DocumentState
from kbindex.repo.repository import Repository, open_repository, repository_at
from kbindex.repo.snapshot import read_snapshot, read_staged_snapshot
from kbindex.storage.columns import checksum
from kbindex.storage.table_files import read_table
from kbindex.storage.wal import decode_wal, is_wal_name


@dataclass(frozen=True)
class Source:
    """The table, or one WAL file: a part of the rows that never changes under its name."""

    name: str
    """Blob id and name of a WAL file, or the hash of the table's listing: all that is proven."""
    path: str
    """The path below the index folder, for messages."""
    wal_blob: str | None
    """The blob id of a WAL file, ``None`` for the table."""


@dataclass(frozen=True)
class SourceRows:
    """The rows of one source with their vectors."""

    source: Source
    rows: list[Row]
    vectors: NDArray[np.float16]
    """``(n_rows, dimension)``"""
    bad: tuple[int, ...]
    """The positions of rows whose checksum doesn't hold."""

    def sound(self, embedder: str) -> Iterator[tuple[Row, NDArray[np.float16]]]:
        """Yield the sound rows of an embedder's identity, each with its vector."""
        bad = set(self.bad)
        for position, row in enumerate(self.rows):
            if position not in bad and row.embedder == embedder:
                yield row, self.vectors[position]


@dataclass(frozen=True)
class IndexTree:
    """The index in one git tree of a repository."""

    repository: Repository
    snapshot: Snapshot

    @property
    def git(self) -> Git:
        """The repository's git."""
        return self.repository.git

    @property
    def config(self) -> Config:
        """The configuration under which the tree is read."""
        return self.repository.config

    def path(self, name: str) -> str:
        """Return the path from the root of a file of the index."""
        return f"{self.config.index_dir}/{name}"

    def require_bundle(self) -> None:
        """Raise NoBundleError where there is neither a document nor an index."""
        if not self.snapshot.documents and not self.snapshot.has_index:
            raise NoBundleError(self.config.bundle, self.snapshot.left_out)

    def require_index(self) -> None:
        """Raise NoBundleError or NoIndexError where there is no index."""
        self.require_bundle()
        if not self.snapshot.has_index:
            raise NoIndexError(self.config.index_dir, is_bare=self.git.is_bare)

    # Recipe

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe, ``None`` where there is no index. Raises DamagedIndexError, RecipeError."""
        if self.snapshot.refused:
            problem = self.snapshot.refused[0]
            raise DamagedIndexError(problem.path, problem.message, problem.remedy)
        path = self.path(RECIPE)
        if self.snapshot.recipe is None:
            if self.snapshot.has_index:
                raise DamagedIndexError(
                    path, "is missing (or in conflict), while the rest of the index is there"
                )
            return None
        content = self.git.objects.read_blob(self.snapshot.recipe)
        return parse_recipe(content.decode("utf-8", "replace"), path)

    def find_recipe(self) -> Recipe | None:
        """Return the recipe, ``None`` where there is none that can be used."""
        try:
            return self.recipe
        except (DamagedIndexError, RecipeError):
            return None

    # Documents and outlines

    def compare(
        self,
        identity: EmbedderIdentity | None,
        proven: Pairs | None = None,
        max_tokens: int | None = None,
        paths: Iterable[str] | None = None,
    ) -> Iterator[DocumentState]:
        """Yield the state of every document, or of those at ``paths`` (``freshness.compare``)."""
        documents = self.snapshot.documents
        if paths is not None:
            documents = {path: documents[path] for path in paths}
        outlines = self.snapshot.outlines
        return compare(documents, outlines, identity, self.git.objects, proven, max_tokens)

    @cached_property
    def head_documents(self) -> dict[str, str]:
        """The files of the bundle in HEAD: path to blob id, empty before the first commit."""
        head = self.git.trees.head()
        files = self.git.trees.files(head, self.config.bundle) if head else ()
        return {path: oid for _, oid, path in files}

    def outline_keys(self) -> set[str]:
        """Return the keys that any outline names, whether it is valid or not."""
        outlines = self.snapshot.outlines.values()
        return listed_keys(self.git, {*outlines, *self.snapshot.orphans.values()})

    # Rows

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The sources in the order in which they win: the table, then WAL files by name."""
        found = []
        table, wal = self.snapshot.table, self.snapshot.wal
        if table:
            listing = "".join(f"{name}\0{oid}\n" for name, oid in sorted(table.items()))
            digest = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()
            found.append(Source(f"table:{digest[:32]}", TABLE, None))
        # The id alone would pass a sound file under another's name for proven.
        found += [
            Source(f"{oid}:{name}", f"{WAL}/{name}", oid) for name, oid in sorted(wal.items())
        ]
        return tuple(found)

    def read(self, source: Source) -> SourceRows:
        """Read one source and prove its checksums. Raises DamagedIndexError if it can't be read."""
        try:
            if source.wal_blob is None:
                rows, vectors = read_table(self.snapshot.table, self.read_table_file)
            else:
                content = _read(self.git, source.wal_blob)
                if not is_wal_name(source.path.removeprefix(f"{WAL}/"), content):
                    raise ValueError("is not the content that its name stands for")
                rows, vectors = decode_wal(content)
        except ValueError as error:
            raise DamagedIndexError(self.path(source.path), str(error)) from None
        return SourceRows(source, rows, vectors, tuple(_bad_rows(rows, vectors)))

    def read_table_file(self, name: str) -> bytes:
        """Return a file of the table by its name. Raises ValueError for a pointer to elsewhere."""
        return _read(self.git, self.snapshot.table[name])

    def is_sound(self, source: Source) -> bool:
        """Whether a source can be read and every checksum in it holds."""
        try:
            return not self.read(source).bad
        except DamagedIndexError:
            return False

    def require_dimension(self, content: SourceRows, identity: EmbedderIdentity) -> None:
        """Raise DamagedIndexError if rows of the embedder have vectors of another dimension."""
        found, embedder = content.vectors.shape[1], identity_id(identity)
        if found != identity.dimension and any(row.embedder == embedder for row in content.rows):
            raise DamagedIndexError(
                self.path(content.source.path),
                f"has vectors of {found} components, the recipe says {identity.dimension}",
            )

    @property
    def n_row_bytes(self) -> int:
        """The bytes of table and WAL."""
        blobs = [*self.snapshot.table.values(), *self.snapshot.wal.values()]
        return self.git.objects.total_size(blobs)


def index_at(repository: Repository, tree: str) -> IndexTree:
    """Return the index in a git tree, given by its id."""
    return IndexTree(repository, read_snapshot(repository.git, tree, repository.config))


def staged_index(repository: Repository) -> IndexTree:
    """Return the index that is staged; in a bare repository that of HEAD."""
    return IndexTree(repository, read_staged_snapshot(repository.git, repository.config))


def open_index(directory: Path | None, revision: str | None) -> IndexTree:
    """Return the index of a revision, or the staged one, under the configuration of its tree."""
    git = Git(directory)
    if git.is_bare and revision is None:
        revision = "HEAD"
    tree = git.trees.resolve(revision) if revision else git.index.staged_tree()
    if tree is None:  # a read-only repository; what is staged can be listed all the same
        return staged_index(open_repository(directory))
    return index_at(repository_at(git, tree), tree)


def listed_keys(git: Git, oids: Iterable[str]) -> set[str]:
    """Return the keys in outlines, given as blob ids; an outline that can't be read has none."""
    keys: set[str] = set()
    for _, listing in git.objects.read_blobs(sorted(oids)):
        try:
            keys |= {line.key for line in parse_outline(listing.decode("utf-8", "replace"))}
        except OutlineMismatch:
            continue  # conflict markers that were committed: the comparison names them
    return keys - {NOT_EMBEDDED}


def _read(git: Git, oid: str) -> bytes:
    content = git.objects.read_blob(oid)
    if content.startswith(LFS_POINTER.encode()):
        raise ValueError(POINTER_REASON)
    return content


def _bad_rows(rows: list[Row], vectors: NDArray[np.float16]) -> Iterator[int]:
    with np.errstate(all="ignore"):  # damage may read as NaN, and is named below
        norms = np.linalg.norm(vectors.astype(np.float32), axis=1)
    for position, row in enumerate(rows):
        is_unit = abs(float(norms[position]) - 1.0) < 0.01
        if not is_unit or checksum(row.key, vectors[position]) != row.sum:
            yield position
