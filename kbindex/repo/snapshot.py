"""A git tree → Snapshot: which documents and index files it holds, nothing read yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath as PurePath

from kbindex.configuration.config import Config
from kbindex.core.model import Problem, Rule, Snapshot
from kbindex.core.names import admit, is_plain_path, is_regular
from kbindex.core.paths import (
    LINEAGE,
    OUTLINE_SUFFIX,
    OUTLINES,
    RECIPE,
    TABLE,
    WAL,
    has_outline_path,
    outline_path,
)
from kbindex.git.client import Git
from kbindex.repo.left_out import left_out

_MOST_NAMED = 100
"""Files left out that are named; a tree may hold millions."""


def read_snapshot(git: Git, tree: str, config: Config) -> Snapshot:
    """List the documents and index files of ``tree``."""
    return make_snapshot(tree, git.trees.files(tree, config.bundle, config.index_dir), config)


def read_staged_snapshot(git: Git, config: Config) -> Snapshot:
    """List what git's index holds, without writing a tree: works read-only and in a merge.

    A bare repository has none; its HEAD is listed instead.
    """
    if git.is_bare:
        head = git.trees.head()
        return read_snapshot(git, head, config) if head else make_snapshot("", (), config)
    return make_snapshot(
        "", git.index.files(config.bundle, config.index_dir, take_ours=config.is_document), config
    )


def commit_trees(git: Git, commits: Iterable[str]) -> list[str]:
    """Return the trees of commits and of their parents that are here, each once."""
    found: dict[str, None] = {}
    for commit in commits:
        for revision in (commit, *git.state.parents(commit)):
            tree = git.trees.find(revision)
            if tree:
                found[tree] = None
    return list(found)


def make_snapshot(tree: str, files: Iterable[tuple[str, str, str]], config: Config) -> Snapshot:
    """Sort (mode, object id, path) entries into documents and index files."""
    folder, prefix = config.index_dir, f"{config.index_dir}/"
    documents: dict[str, str] = {}
    index_entries = []
    skipped: list[Problem] = []
    others: list[Problem] = []
    n_left_out = 0
    for mode, oid, path in files:
        if path == folder or path.startswith(prefix):
            index_entries.append((mode, oid, path))
        elif config.is_document(path) and is_regular(mode):
            problem = _name_problem(config, path)
            if problem is None:
                documents[path] = oid
            else:
                skipped.append(problem)
        elif other := left_out(config, mode, path):
            n_left_out += 1
            if len(others) < _MOST_NAMED:
                others.append(other)
    paths = {outline_path(folder, config.document_path(path)): path for path in documents}
    for outline, path in list(paths.items()):
        folders = PurePath(outline).parents if f"{OUTLINE_SUFFIX}/" in outline else ()
        if any(str(folder) in paths for folder in folders):
            message = "its folder's name is that of another document's outline: it is not indexed"
            skipped.append(Problem(Rule.UNREADABLE_DOCUMENT, path, message, remedy="rename it"))
            del paths[outline], documents[path]
    admitted = admit(index_entries, folder)
    outlines, orphans = {}, {}
    for name, oid in admitted.files.items():
        path = f"{prefix}{name}"
        if path in paths:
            outlines[paths[path]] = oid
        elif name.startswith(f"{OUTLINES}/"):
            orphans[path] = oid
    return Snapshot(
        tree=tree,
        documents=documents,
        outlines=outlines,
        orphans=orphans,
        wal=_below(admitted.files, f"{WAL}/", ".arrow"),
        table=_below(admitted.files, f"{TABLE}/", ""),
        recipe=admitted.files.get(RECIPE),
        lineage=admitted.files.get(LINEAGE),
        skipped=tuple(skipped),
        refused=tuple(admitted.refused),
        strays=tuple(admitted.strays),
        left_out=tuple(others),
        n_left_out=n_left_out,
    )


def _name_problem(config: Config, path: str) -> Problem | None:
    """Return why a document's name keeps it out of the index, ``None`` if it doesn't."""
    if not is_plain_path(path):
        message = "its name leads out of its folder: it is not indexed"
    elif not has_outline_path(config.document_path(path)):
        message = "the file name leaves no room for '.tsv': it is not indexed"
    else:
        return None
    return Problem(Rule.UNREADABLE_DOCUMENT, path, message, remedy="rename it")


def _below(files: dict[str, str], prefix: str, suffix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): oid
        for name, oid in files.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }
