"""Which passages does a commit take up whose rows another branch may drop, not knowing of it?

A section that is typed again finds its old rows among what HEAD holds as garbage: another branch
compacts, or begins another table, and they are gone. A copy of a passage finds its row in the WAL
file of the commit that brought the passage: another branch reverts that, and the file is gone.
Either merges without a conflict. Such rows are to be written once more, beside the commit that
needs them. What a rename, a move or an edit keeps was needed before and is not among them, nor is
what a change of the table would bring into conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbindex.cache import Cache
from kbindex.committed import cached_keys, listed_keys, sources
from kbindex.config import Config
from kbindex.git import Git
from kbindex.model import DocumentState, Snapshot
from kbindex.snapshot import read_snapshot


def retaken_keys(
    git: Git,
    config: Config,
    snapshot: Snapshot,
    cache: Cache,
    embedder: str,
    fresh: Sequence[DocumentState],
    drafted: Iterable[str],
) -> set[str]:
    """Return the keys that changed documents take up and whose rows HEAD holds, but not safely.

    ``fresh`` are the documents whose outline stands, ``drafted`` the keys of all others.
    """
    head = git.head_tree()
    if head is None:
        return set()
    before = read_snapshot(git, head, config)
    standing = {s.path: s.keys for s in fresh if before.outlines.get(s.path) == s.outline}
    needed: set[str] = set().union(*standing.values())
    taken = {key for s in fresh if s.path not in standing for key in s.keys} | set(drafted)
    if taken:
        old = {oid for path, oid in before.outlines.items() if path not in standing}
        taken -= listed_keys(git, {*old, *before.orphans.values()})
    in_head = set(sources(before))
    unsafe: set[str] = set()
    for source in sources(snapshot) if taken else ():
        keys = taken.intersection(cached_keys(cache, source, embedder))
        if source in in_head:
            unsafe |= keys
            keys = keys & needed if source.wal_blob is None else set()
        taken -= keys
    return taken & unsafe
