"""``kbindex related``: the documents nearest to one, by their own vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbindex.configuration.recipe import refuse_other_composition
from kbindex.core.errors import ExitCode
from kbindex.core.text import as_text
from kbindex.output.console import put
from kbindex.output.formats import Format
from kbindex.output.render import to_json
from kbindex.repo.repository import Repository, open_repository
from kbindex.search.related import nearest_documents
from kbindex.view.database import View
from kbindex.view.lookup import find_document
from kbindex.view.open import use_view, view_recipe


def related(directory: Path | None, name: str, n_documents: int, form: Format) -> ExitCode:
    """Print the nearest documents; return 0 with one, 1 without."""
    repository = open_repository(directory)
    found = use_view(repository, lambda view: _find(repository, view, name, n_documents))
    if form == Format.JSON:
        put(to_json({"id": found[0], "related": found[1]}))
    else:
        lines = (f"{d['path']}: {d['title']}  {d['similarity']:.2f}" for d in found[1])
        put(as_text(lines))
    return ExitCode.OK if found[1] else ExitCode.NEGATIVE


def _find(
    repository: Repository, view: View, name: str, n_documents: int
) -> tuple[str, list[dict[str, Any]]]:
    path = find_document(view, repository.config, name).path
    recipe = view_recipe(view, repository.config)
    refuse_other_composition(recipe)
    nearest = nearest_documents(view, recipe.embedder.dimension, path, n_documents)
    listed = []
    for rank, (other, similarity) in enumerate(nearest, start=1):
        document = {
            "rank": rank,
            "id": repository.config.document_id(other.path),
            "path": other.path,
            "title": other.title,
            "type": other.type,
            "similarity": round(similarity, 4),
        }
        listed.append({key: value for key, value in document.items() if value is not None})
    return repository.config.document_id(path), listed
