"""The last step of an update: the index files that change, and their contents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import render_recipe
from kbindex.core.model import Row
from kbindex.core.paths import CONSTANT_FILES, RECIPE, outline_path
from kbindex.index.assess import Assessment
from kbindex.index.embedding import Embedded, outlined_with
from kbindex.index.options import Options
from kbindex.index.retaken import retaken_keys
from kbindex.outline.file import render_outline
from kbindex.storage.writer import Changes, RowStore, anchor_rows


def index_changes(
    assessment: Assessment, embedded: Embedded, options: Options
) -> tuple[Changes, bool]:
    """Return the files that change and whether a checkpoint is among the changes."""
    tree = assessment.tree
    changes: Changes = {problem.path: None for problem in tree.snapshot.refused}
    changes |= _outline_changes(assessment, embedded)
    row_changes, is_checkpoint = _row_changes(assessment, embedded, options)
    changes |= row_changes
    constants = {**CONSTANT_FILES, RECIPE: render_recipe(assessment.recipe)}
    changes |= {tree.path(name): content.encode() for name, content in constants.items()}
    return changes, is_checkpoint


def _outline_changes(assessment: Assessment, embedded: Embedded) -> Changes:
    config = assessment.tree.config
    changes: Changes = dict.fromkeys(assessment.tree.snapshot.orphans)
    for draft in embedded.drafts:
        path = outline_path(config.index_dir, config.document_path(draft.path))
        changes[path] = render_outline(draft.entries).encode()
    return changes


def _row_changes(
    assessment: Assessment, embedded: Embedded, options: Options
) -> tuple[Changes, bool]:
    committed, live = assessment.committed, embedded.live
    store = RowStore(committed)
    if embedded.starts_table:
        rows = _rows(assessment, embedded, live)
        if assessment.standing.rows_stand:
            # Of what was to be embedded again and can't be, the old rows are all there is.
            rows += committed.rows({*embedded.kept_keys, *embedded.distrusted} - live)
        vectors = _vectors(assessment, embedded, {row.key for row in rows})
        return store.start_table(rows, vectors), False
    vectors = _vectors(assessment, embedded, _retaken(assessment, embedded))
    changes, is_checkpoint = store.add(
        _rows(assessment, embedded, live & vectors.keys()),
        vectors,
        options.checkpoint,
        lambda keys: _rows(assessment, embedded, keys),
        fold_repeated=not options.mid_operation,
    )
    if options.may_change_recipe:
        changes |= store.foreign_files()
    return changes, is_checkpoint


def _retaken(assessment: Assessment, embedded: Embedded) -> set[str]:
    # A document as it is in HEAD takes nothing up again: its outline was damaged, not its text.
    head = assessment.tree.head_documents
    other = [draft for draft in embedded.drafts if head.get(draft.path) != draft.blob]
    drafted = [key for draft in other for key in draft.keys]
    return retaken_keys(assessment.committed, embedded.fresh, drafted)


def _rows(assessment: Assessment, embedded: Embedded, keys: set[str]) -> list[Row]:
    """Return a row for each of ``keys`` that is live, anchored where it first occurs."""
    documents = outlined_with(keys, embedded.drafts, assessment)
    vectors = _vectors(assessment, embedded, keys)
    return anchor_rows(documents, keys, assessment.committed.embedder, vectors)


def _vectors(
    assessment: Assessment, embedded: Embedded, keys: set[str]
) -> dict[str, NDArray[np.float16]]:
    """Return the vectors at hand, and those of ``keys`` that are committed."""
    return embedded.vectors | assessment.committed.vectors(keys - embedded.vectors.keys())
