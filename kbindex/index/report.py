"""The account of an update: what it did or, dry, would do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kbindex.configuration.recipe import RecipeChange
from kbindex.core.model import Problem
from kbindex.core.paths import document_of_outline
from kbindex.index.assess import Assessment
from kbindex.index.embedding import Embedded
from kbindex.index.outline_builder import Draft
from kbindex.outline.file import count_recontexted, render_outline
from kbindex.storage.tree import IndexTree

T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """The account of an update, or of a dry run. Documents are named by their paths."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    """Documents that have another outline though they did not change."""
    renamed: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    n_chunks: int = 0
    n_kept: int = 0
    """Chunks of documents whose outline stays."""
    n_embedded: int = 0
    n_edited: int = 0
    """Embedded chunks of documents that changed, whatever the recipe."""
    n_calls: int = 0
    n_recontexted: int = 0
    """Chunks whose text stayed, but not the title, a heading or a table header above it."""
    checkpointed: bool = False
    repaired: list[str] = field(default_factory=list)
    """Damage that was replaced, a message each."""
    recipe_changes: list[RecipeChange] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Documents that could not be indexed; the run ends non-zero when there are any."""

    @property
    def n_reused(self) -> int:
        """Chunks of changed documents whose vector was known."""
        return max(self.n_chunks - self.n_kept - self.n_embedded, 0)

    def after(self, earlier: Report) -> Report:
        """Return the report of two updates, the second of which found what the first had made."""
        return replace(
            self,
            added=_once(earlier.added + self.added),
            changed=_once(earlier.changed + self.changed),
            rebuilt=_once(earlier.rebuilt + self.rebuilt),
            renamed=_once(earlier.renamed + self.renamed),
            deleted=_once(earlier.deleted + self.deleted),
            repaired=_once(earlier.repaired + self.repaired),
            n_embedded=earlier.n_embedded + self.n_embedded,
            n_edited=earlier.n_edited + self.n_edited,
            n_calls=earlier.n_calls + self.n_calls,
            n_recontexted=earlier.n_recontexted + self.n_recontexted,
            n_kept=max(self.n_kept - earlier.n_chunks + earlier.n_kept, 0),
            checkpointed=earlier.checkpointed or self.checkpointed,
            recipe_changes=earlier.recipe_changes + self.recipe_changes,
        )


def _once(items: list[T]) -> list[T]:
    return list(dict.fromkeys(items))


def make_report(assessment: Assessment, embedded: Embedded, *, is_dry: bool) -> Report:
    """Return the report of an update before its files are written."""
    drafts = embedded.drafts
    done = [key for key in embedded.missing if is_dry or key in embedded.vectors]
    edited = [draft for draft in drafts if draft.path in assessment.edited]
    unedited = [draft for draft in drafts if draft.path not in assessment.edited]
    arrived = [draft for draft in drafts if draft.outline is None]
    added, renamed, deleted = _arrivals(assessment.tree, arrived)
    n_kept = sum(len(state.keys) for state in embedded.fresh)
    return Report(
        added=added,
        changed=[draft.path for draft in edited if draft.outline is not None],
        rebuilt=[draft.path for draft in unedited if draft.outline is not None],
        renamed=renamed,
        deleted=deleted,
        n_chunks=n_kept + sum(len(draft.keys) for draft in drafts),
        n_kept=n_kept,
        n_embedded=len(done),
        n_edited=len({key for draft in edited for key in draft.keys}.intersection(done)),
        n_calls=embedded.n_calls,
        n_recontexted=(
            _count_recontexted(assessment.tree, drafts) if assessment.standing.outlines_stand else 0
        ),
        repaired=list(assessment.repaired),
        recipe_changes=list(assessment.standing.changes),
        problems=[*assessment.problems, *embedded.problems],
    )


def _arrivals(
    tree: IndexTree, drafts: Iterable[Draft]
) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Return the added documents, the renamed ones (before, after), and the deleted ones.

    A renamed document has exactly the outline of one that is gone.
    """
    gone = dict(tree.snapshot.orphans)
    added, renamed = [], []
    for draft in drafts:
        content = render_outline(draft.entries).encode()
        before = next((p for p, oid in gone.items() if oid == _blob_id(content, oid)), None)
        if before is None:
            added.append(draft.path)
        else:
            del gone[before]
            renamed.append((_document_of(tree, before), draft.path))
    return added, renamed, sorted(_document_of(tree, path) for path in gone)


def _count_recontexted(tree: IndexTree, drafts: Iterable[Draft]) -> int:
    n_chunks = 0
    for draft in drafts:
        blob = tree.head_documents.get(draft.path)
        if blob is None or draft.outline is None or blob == draft.blob:
            continue
        before, listing, after = (
            content.decode("utf-8", "replace")
            for _, content in tree.git.objects.read_blobs((blob, draft.outline, draft.blob))
        )
        n_chunks += count_recontexted(before, listing, after, draft.entries)
    return n_chunks


def _document_of(tree: IndexTree, outline: str) -> str:
    below = document_of_outline(tree.config.index_dir, outline)
    return below if tree.config.bundle == "." else f"{tree.config.bundle}/{below}"


def _blob_id(content: bytes, like: str) -> str:
    """Return git's id of a blob, by the hash function that ``like`` was made with."""
    function = "sha1" if len(like) == 40 else "sha256"
    return hashlib.new(function, b"blob %d\0" % len(content) + content).hexdigest()
