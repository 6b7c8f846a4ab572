"""Finds passages that a commit takes up and whose rows another branch may drop unknowingly.

A section that is typed again finds its old rows among what HEAD holds as garbage: another branch
compacts, or begins another table, and they are gone. A copy of a passage finds its row in the WAL
file of the commit that brought the passage: another branch reverts that, and the file is gone.
Either merges without a conflict. Such rows are to be written once more, beside the commit that
needs them. What a rename, a move or an edit keeps was needed before and is not among them, nor is
what a change of the table would bring into conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbindex.core.paths import outline_path
from kbindex.outline.states import Known
from kbindex.repo.snapshot import make_snapshot
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree, listed_keys


def retaken_keys(
    committed: CommittedRows, fresh: Sequence[Known], drafted: Iterable[str]
) -> set[str]:
    """Return the keys that changed documents take up and whose rows HEAD holds, but not safely.

    ``fresh`` are the documents whose outline stands, ``drafted`` the keys of all others.
    """
    git, config = committed.tree.git, committed.tree.config
    head = git.trees.head()
    if head is None:
        return set()
    # Of the index alone, which is listed in half the time: its outlines are all without documents.
    listing = make_snapshot(head, git.trees.files(head, config.index_dir), config)
    before = IndexTree(committed.tree.repository, listing)
    old = dict(listing.orphans)
    needed: set[str] = set()
    taken = set(drafted)
    for state in fresh:
        path = outline_path(config.index_dir, config.document_path(state.path))
        is_unchanged = old.get(path) == state.outline
        (needed if is_unchanged else taken).update(state.keys)
        if is_unchanged:
            del old[path]
    if taken:
        taken -= listed_keys(git, set(old.values()))
    in_head = set(before.sources)
    unsafe: set[str] = set()
    for source in committed.tree.sources if taken else ():
        keys = taken.intersection(committed.keys_of(source))
        if source in in_head:
            unsafe |= keys
            keys = keys & needed if source.wal_blob is None else set()
        taken -= keys
    return taken & unsafe
