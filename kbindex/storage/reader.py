"""The committed rows of a snapshot, read from git's objects: table and WAL, each checksum proven.

Rows are read from git rather than from the work tree, so that what is staged counts and a
damaged or sparse work tree does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import DamagedIndexError
from kbindex.core.model import NOT_EMBEDDED, EmbedderIdentity, Row, Snapshot
from kbindex.core.paths import LFS_POINTER, POINTER_REASON, TABLE, WAL
from kbindex.git.client import Git
from kbindex.local.cache import Cache, pack_keys, unpack_keys
from kbindex.outline.file import OutlineMismatch, parse_outline
from kbindex.storage.columns import checksum
from kbindex.storage.table_files import ReadFile, read_table
from kbindex.storage.wal import decode_wal, is_wal_name


@dataclass(frozen=True)
class Source:
    """A part of the committed rows whose content never changes under its name."""

    name: str
    """Blob id and name of a WAL file, or the hash of the table's listing: all that is proven."""
    path: str
    """Below the index folder, for messages."""
    wal_blob: str | None


@dataclass(frozen=True)
class SourceRows:
    """The rows of one source; ``bad`` are the numbers of those whose checksum doesn't hold."""

    source: Source
    rows: list[Row]
    vectors: NDArray[np.float16]
    bad: tuple[int, ...]


def sources(snapshot: Snapshot) -> list[Source]:
    """Return the sources in the order in which they win: the table, then WAL files by name."""
    found = []
    if snapshot.table:
        listing = "".join(f"{name}\0{oid}\n" for name, oid in sorted(snapshot.table.items()))
        digest = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()
        found.append(Source(f"table:{digest[:32]}", TABLE, None))
    # The id alone would pass a sound file under another's name for proven.
    found += [
        Source(f"{oid}:{name}", f"{WAL}/{name}", oid) for name, oid in sorted(snapshot.wal.items())
    ]
    return found


def read_source(git: Git, snapshot: Snapshot, source: Source, index_dir: str) -> SourceRows:
    """Read one source and prove its checksums. Raises DamagedIndexError if it can't be read."""
    path = f"{index_dir}/{source.path}"
    try:
        if source.wal_blob is None:
            rows, vectors = read_table(snapshot.table, table_reader(git, snapshot))
        else:
            content = _read(git, source.wal_blob)
            if not is_wal_name(source.path.removeprefix(f"{WAL}/"), content):
                raise ValueError("is not the content that its name stands for")
            rows, vectors = decode_wal(content)
    except ValueError as error:
        raise DamagedIndexError(path, str(error)) from None
    return SourceRows(source, rows, vectors, tuple(_bad_rows(rows, vectors)))


def table_reader(git: Git, snapshot: Snapshot) -> ReadFile:
    """Return what reads a file of the table by its name. Raises ValueError for a pointer."""
    return lambda name: _read(git, snapshot.table[name])


def _read(git: Git, oid: str) -> bytes:
    content = git.objects.read_blob(oid)
    if content.startswith(LFS_POINTER.encode()):
        raise ValueError(POINTER_REASON)
    return content


def load_committed(
    git: Git, snapshot: Snapshot, cache: Cache, identity: EmbedderIdentity, index_dir: str
) -> tuple[set[str], list[DamagedIndexError]]:
    """Return the keys that have a sound vector of the embedder, and what is damaged.

    The cache holds the vectors afterwards; a sound source is read once per clone.
    """
    embedder = identity_id(identity)
    keys: set[str] = set()
    damage = []
    for source in sources(snapshot):
        if cache.source_keys(_cache_name(source, embedder)) is None:
            try:
                content = read_source(git, snapshot, source, index_dir)
                require_dimension(content, identity, index_dir)
            except DamagedIndexError as error:
                damage.append(error)
                continue
            if content.bad:
                damage.append(_bad_vectors(content, f"{index_dir}/{source.path}"))
            keys |= _remember(content, cache, embedder)
        else:
            keys.update(cached_keys(cache, source, embedder))
    return keys, damage


def committed_vectors(
    git: Git,
    snapshot: Snapshot,
    cache: Cache,
    identity: EmbedderIdentity,
    index_dir: str,
    keys: set[str],
) -> dict[str, NDArray[np.float16]]:
    """Return the vectors of ``keys``, which ``load_committed`` has found.

    What the cache has lost since, or was damaged in it, is read from the commit again.
    """
    found = cache.vectors(keys)
    if len(found) < len(keys):
        cache.forget_sources()
        load_committed(git, snapshot, cache, identity, index_dir)
        found = cache.vectors(keys)
    return found


def require_dimension(content: SourceRows, identity: EmbedderIdentity, index_dir: str) -> None:
    """Raise DamagedIndexError if rows of the embedder have vectors of another dimension."""
    found, embedder = content.vectors.shape[1], identity_id(identity)
    if found != identity.dimension and any(row.embedder == embedder for row in content.rows):
        raise DamagedIndexError(
            f"{index_dir}/{content.source.path}",
            f"has vectors of {found} components, the recipe says {identity.dimension}",
        )


def _bad_vectors(content: SourceRows, path: str) -> DamagedIndexError:
    first = content.rows[content.bad[0]]
    place = f"{first.path}, characters {first.char_start}–{first.char_end}"
    return DamagedIndexError(path, f"{len(content.bad)} vectors are damaged, the first: {place}")


def outline_keys(git: Git, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the keys that any outline of the snapshots names, whether it is valid or not."""
    oids: set[str] = set()
    for snapshot in snapshots:
        oids |= {*snapshot.outlines.values(), *snapshot.orphans.values()}
    return listed_keys(git, oids)


def listed_keys(git: Git, oids: Iterable[str]) -> set[str]:
    """Return the keys in outlines, given as blobs; one that can't be read has none."""
    keys: set[str] = set()
    for _, listing in git.objects.read_blobs(sorted(oids)):
        try:
            keys |= {entry.key for entry in parse_outline(listing.decode("utf-8", "replace"))}
        except OutlineMismatch:
            continue  # conflict markers that were committed: the comparison names them
    return keys - {NOT_EMBEDDED}


def holds_foreign_table(snapshot: Snapshot, cache: Cache, embedder: str) -> bool:
    """Whether the table, which ``load_committed`` has read, has rows but none of ``embedder``."""
    tables = [source for source in sources(snapshot) if source.wal_blob is None]
    return any(cache.source_keys(_cache_name(source, embedder)) == b"" for source in tables)


def cached_keys(cache: Cache, source: Source, embedder: str) -> Iterator[str]:
    """Return the sound keys of a source that ``load_committed`` has read."""
    return unpack_keys(cache.source_keys(_cache_name(source, embedder)) or b"")


def _cache_name(source: Source, embedder: str) -> str:
    return f"{source.name}:{embedder}"


def _remember(content: SourceRows, cache: Cache, embedder: str) -> set[str]:
    """Cache the sound rows; note the source as read only if that is all of them."""
    bad = set(content.bad)
    sound = {
        row.key: content.vectors[number]
        for number, row in enumerate(content.rows)
        if number not in bad and row.embedder == embedder
    }
    cache.add_vectors(sound)
    if not bad:
        cache.add_source(_cache_name(content.source, embedder), pack_keys(sound))
    return set(sound)


def _bad_rows(rows: list[Row], vectors: NDArray[np.float16]) -> Iterator[int]:
    with np.errstate(all="ignore"):  # damage may read as NaN, and is named below
        norms = np.linalg.norm(vectors.astype(np.float32), axis=1)
    for number, row in enumerate(rows):
        is_unit = abs(float(norms[number]) - 1.0) < 0.01
        if not is_unit or checksum(row.key, vectors[number]) != row.sum:
            yield number
