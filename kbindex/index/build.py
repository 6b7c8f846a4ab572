"""An update of one index tree, top to bottom: assess → draft and embed → files that change.

Nothing is written but the local cache; ``git/staging`` puts the files in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kbindex.embed import Embedder
from kbindex.embed.batch import Progress
from kbindex.index.assess import Assessment, assess
from kbindex.index.changes import index_changes
from kbindex.index.embedding import embed_missing
from kbindex.index.options import Options
from kbindex.index.report import Report, make_report
from kbindex.local.cache import Cache
from kbindex.storage.tree import IndexTree
from kbindex.storage.writer import Changes


@dataclass(frozen=True)
class Built:
    """The outcome of an update."""

    changes: Changes
    report: Report


def build(
    tree: IndexTree, embedder: Embedder, cache: Cache, options: Options, progress: Progress
) -> Built:
    """Return the index files of ``tree`` that change, and the report.

    Raises RefusedError, DamagedIndexError, UsageError, NoEmbedderError and what git raises.
    """
    assessment = assess(tree, embedder.identity, embedder.origin, cache, options)
    embedded = embed_missing(assessment, embedder, cache, options, progress)
    report = make_report(assessment, embedded, is_dry=options.dry_run)
    if options.dry_run or options.embeds_only or _would_mix_recipes(assessment, report):
        return Built({}, report)
    changes, is_checkpoint = index_changes(assessment, embedded, options)
    return Built(changes, replace(report, checkpointed=is_checkpoint))


def _would_mix_recipes(assessment: Assessment, report: Report) -> bool:
    """Whether some documents could not follow a change of the recipe: the old index then stays."""
    changes = assessment.tree.snapshot.has_index and not assessment.standing.outlines_stand
    return changes and bool(report.problems)
