"""Which passages came back whose rows nothing needed any more?

A section that is typed again, or reverted to, finds its old rows among what HEAD holds as garbage.
There another branch may meanwhile drop them: it compacts, or begins another table, and neither
knows of this commit. Such rows are to be written once more, beside the commit that needs them.
What a rename, a move or an edit keeps was needed before, and is not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kbindex.cache import Cache
from kbindex.committed import cached_keys, listed_keys, sources
from kbindex.config import Config
from kbindex.git import Git
from kbindex.model import DocumentState, EmbedderIdentity, Snapshot
from kbindex.plan import compare
from kbindex.recipe import identity_id
from kbindex.snapshot import read_snapshot


def retaken_keys(
    git: Git,
    config: Config,
    snapshot: Snapshot,
    cache: Cache,
    identity: EmbedderIdentity,
    fresh: Iterable[DocumentState],
    drafted: Mapping[str, Iterable[str]],
    held: set[str],
) -> set[str]:
    """Return the ``held`` keys whose rows stand in HEAD alone, where no outline names them.

    ``held`` are live and have a committed row; ``fresh`` are the documents whose outline stands,
    ``drafted`` the keys of the others by path. What a document needed whose outline in HEAD is
    damaged isn't known, and counts as needed.
    """
    head = git.head_tree()
    if head is None:
        return set()
    before = read_snapshot(git, head, config)
    outlines = {*before.outlines.values(), *before.orphans.values()}
    standing = {state.outline: state.keys for state in fresh if state.outline in outlines}
    found = held.difference(*standing.values())
    if found:
        found -= listed_keys(git, outlines - standing.keys())
    if found:
        documents = {p: blob for p, blob in before.documents.items() if p in drafted}
        for state in compare(replace(before, documents=documents), identity, git):
            if not state.is_fresh:
                found.difference_update(drafted[state.path])
    in_head = set(sources(before))
    for source in sources(snapshot):
        if found and source not in in_head:
            found.difference_update(cached_keys(cache, source, identity_id(identity)))
    return found
