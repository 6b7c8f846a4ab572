"""The committed rows of an index tree under one embedder, read through the local cache.

A sound source is read once per clone: the cache then holds its vectors and the list of its keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import DamagedIndexError
from kbindex.core.model import EmbedderIdentity, Row
from kbindex.local.cache import Cache, pack_keys, unpack_keys
from kbindex.storage.tree import IndexTree, Source, SourceRows


class CommittedRows:
    """The rows of ``tree`` that an embedder's identity made."""

    def __init__(self, tree: IndexTree, identity: EmbedderIdentity, cache: Cache) -> None:
        """Read every source that the cache doesn't know yet."""
        self.tree, self.identity = tree, identity
        self.embedder = identity_id(identity)
        """The short name of the identity, as in ``Row.embedder``."""
        self._cache = cache
        self.keys: frozenset[str] = frozenset()
        """The keys with a sound vector."""
        self.damage: tuple[DamagedIndexError, ...] = ()
        """The sources that can't be read, and those with rows that are not sound."""
        self._load()

    def _load(self) -> None:
        keys: set[str] = set()
        damage = []
        for source in self.tree.sources:
            if self._cache.source_keys(self._cache_name(source)) is not None:
                keys.update(self.keys_of(source))
                continue
            try:
                content = self.tree.read(source)
                self.tree.require_dimension(content, self.identity)
            except DamagedIndexError as error:
                damage.append(error)
                continue
            if content.bad:
                damage.append(_bad_vectors(content, self.tree.path(source.path)))
            keys |= self._remember(content)
        self.keys, self.damage = frozenset(keys), tuple(damage)

    def _remember(self, content: SourceRows) -> set[str]:
        """Cache the sound rows; note the source as read only if that is all of them."""
        sound = {row.key: vector for row, vector in content.sound(self.embedder)}
        self._cache.add_vectors(sound)
        if not content.bad:
            self._cache.add_source(self._cache_name(content.source), pack_keys(sound))
        return set(sound)

    def vectors(self, keys: set[str]) -> dict[str, NDArray[np.float16]]:
        """Return the vectors of those of ``keys`` that are committed.

        A vector that the cache has lost since, or that was damaged in it, is read again.
        """
        found = self._cache.vectors(keys)
        if len(found) < len(keys):
            self._cache.forget_sources()
            self._load()
            found = self._cache.vectors(keys)
        return found

    def keys_of(self, source: Source) -> Iterator[str]:
        """Yield the sound keys of a source."""
        return unpack_keys(self._cache.source_keys(self._cache_name(source)) or b"")

    @property
    def has_foreign_table(self) -> bool:
        """Whether the table has rows, but none of the identity."""
        tables = [source for source in self.tree.sources if source.wal_blob is None]
        return any(self._cache.source_keys(self._cache_name(table)) == b"" for table in tables)

    def rows(self, keys: set[str]) -> list[Row]:
        """Return the sound rows of ``keys`` as they are committed, each once."""
        rows: dict[str, Row] = {}
        for source in self.tree.sources:
            if keys.isdisjoint(self.keys_of(source)):
                continue
            try:
                content = self.tree.read(source)
            except DamagedIndexError:
                continue  # another source may hold them; what is lost is named by check
            for row, _ in content.sound(self.embedder):
                if row.key in keys:
                    rows.setdefault(row.key, row)
        return list(rows.values())

    def _cache_name(self, source: Source) -> str:
        return f"{source.name}:{self.embedder}"


def _bad_vectors(content: SourceRows, path: str) -> DamagedIndexError:
    first = content.rows[content.bad[0]]
    place = f"{first.path}, characters {first.char_start}–{first.char_end}"
    return DamagedIndexError(path, f"{len(content.bad)} vectors are damaged, the first: {place}")
