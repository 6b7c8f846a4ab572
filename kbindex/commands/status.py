"""``kbindex status``: what is indexed, by what, how well, and what is stale."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbindex.core.errors import ExitCode
from kbindex.core.model import Coverage, Recipe, Snapshot
from kbindex.output.console import put
from kbindex.output.formats import Format
from kbindex.output.render import render_facts
from kbindex.repo.repository import Repository, open_repository
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree, staged_index
from kbindex.view.database import View
from kbindex.view.open import uncovered_documents, use_view, view_recipe
from kbindex.view.unstaged import StaleDocuments

_NAMED = 5
"""Files that are left out, of those that are."""


def status(directory: Path | None, form: Format) -> ExitCode:
    """Print the facts about what is staged and what this clone holds locally."""
    repository = open_repository(directory)
    with StaleDocuments(repository) as stale:
        facts = use_view(repository, lambda view: _facts(repository, view, stale))
    put(render_facts(facts, form))
    return ExitCode.OK


def _facts(repository: Repository, view: View, stale: StaleDocuments) -> dict[str, Any]:
    recipe = view_recipe(view, repository.config)
    index = staged_index(repository)
    return {
        **_coverage_facts(view.coverage()),
        "languages": _languages(view),
        "embedder": recipe.embedder.name,
        "recipe": _recipe_facts(recipe),
        "committed": _committed_facts(index, view, recipe),
        "local": _local_facts(repository),
        "stale": list(stale.paths(uncovered_documents(view))),
        "left_out": _left_out(index.snapshot),
        "problems": _document_problems(view),
    }


def _left_out(snapshot: Snapshot) -> dict[str, Any]:
    """Return how many files look like documents and are none, and the first of them."""
    first = snapshot.left_out[:_NAMED]
    named = [f"{problem.path}: {problem.message} ({problem.remedy})" for problem in first]
    return {"files": snapshot.n_left_out, "first": named}


def _languages(view: View) -> dict[str, int]:
    """Return how many documents are in each language, ``unknown`` those that are not stemmed."""
    return {language or "unknown": n for language, n in view.n_by_language().items()}


def _coverage_facts(found: Coverage) -> dict[str, Any]:
    return {
        "documents": found.documents,
        "chunks": found.chunks,
        "coverage": {"lexical": found.lexical, "dense": found.dense},
    }


def _recipe_facts(recipe: Recipe) -> dict[str, Any]:
    return {
        "format": recipe.format,
        "chunker": recipe.chunker,
        "composition": recipe.composition,
        "chunk_tokens": recipe.chunk_tokens,
        "chunk_max_tokens": recipe.chunk_max_tokens,
        "dimension": recipe.embedder.dimension,
        "digest": recipe.embedder.digest,
    }


def _committed_facts(index: IndexTree, view: View, recipe: Recipe) -> dict[str, Any]:
    with index.repository.cache() as cache:
        committed = CommittedRows(index, recipe.embedder, cache)
        wal = [source for source in index.sources if source.wal_blob]
        n_wal_rows = sum(1 for source in wal for _ in committed.keys_of(source))
    live = view.live_keys()
    every = index.config.checkpoint_every
    return {
        "rows": len(committed.keys),
        "garbage_rows": len(committed.keys - live),
        "wal_files": len(wal),
        "wal_rows": n_wal_rows,
        "checkpoint_due": every > 0 and len(wal) >= every,
        "bytes": index.n_row_bytes,
    }


def _local_facts(repository: Repository) -> dict[str, Any]:
    return {
        "view_bytes": _size(repository.view_dir.glob("view-*.sqlite"))
        + _size(repository.view_dir.glob("matrix-*.f32")),
        "cache_bytes": _size(repository.cache_dir.glob("cache-*.sqlite")),
    }


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _document_problems(view: View) -> list[str]:
    unreadable = [f"{path}: it is not text" for path in view.unreadable()]
    return unreadable + [f"{path}: {problems}" for path, problems in view.problems()]
