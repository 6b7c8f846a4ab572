"""``kbindex check``: is the index of a tree exactly that of its bundle? Never writes.

Nor does it embed anything, unless a sample is to be audited.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from kbindex.configuration.recipe import compare_recipes, name_changes, wanted_recipe
from kbindex.core.errors import ExitCode, restore_from_head
from kbindex.core.model import Audit, Problem, Snapshot
from kbindex.core.paths import RECIPE, document_of_outline
from kbindex.core.text import shell_word
from kbindex.embed.select import open_embedder
from kbindex.git.staging import file_digest, read_unstaged
from kbindex.index.audit import audit
from kbindex.index.verify import REBUILD, Verdict, is_sound, verify
from kbindex.output.console import note, put
from kbindex.output.formats import Format
from kbindex.output.progress import progress_on
from kbindex.output.render import render_check
from kbindex.repo.repository import Repository, open_tree, require_index
from kbindex.repo.snapshot import read_snapshot
from kbindex.storage.reader import sources


def check(
    directory: Path | None,
    rev: str | None,
    form: Format,
    *,
    strict: bool,
    n_audited: int = 0,
    notices_fail: bool = False,
) -> ExitCode:
    """Print the verdict on a revision, or on what is staged; the exit code says it too."""
    repository, snapshot = open_tree(directory, rev)
    require_index(repository, snapshot)
    verdict = verify(repository.git, repository.config, snapshot, strict=strict)
    found = _audit(repository, snapshot, verdict, n_audited) if n_audited else None
    verdict.problems += found.problems if found else []
    if rev is None:
        verdict.problems = [_unless_unstaged(p, repository) for p in verdict.problems]
        verdict.problems = _from_head(repository, snapshot, verdict.problems)
        damage, unstaged = worktree_differences(repository)
        verdict.problems += damage
        verdict.notices += unstaged
    put(
        render_check(
            rev or snapshot.tree,
            verdict.n_documents,
            verdict.n_chunks,
            verdict.problems,
            verdict.notices,
            form,
            found,
        )
    )
    if verdict.is_damaged:
        return ExitCode.UNREADABLE_INDEX
    fails = verdict.problems or (notices_fail and verdict.notices)
    return ExitCode.NEGATIVE if fails else ExitCode.OK


def _audit(
    repository: Repository, snapshot: Snapshot, verdict: Verdict, n_chunks: int
) -> Audit | None:
    """Audit a sample; ``None``, said on stderr, where the index is not that of our embedder."""
    embedder = open_embedder(repository.config, verdict.recipe, repository.cache_dir, os.environ)
    stored = verdict.recipe
    if stored is None or stored.embedder != embedder.identity:
        note("nothing was audited: the index is not that of the configured embedder")
        if stored is not None and all(p.rule != "recipe-mismatch" for p in verdict.problems):
            # Only the server knows: other weights behind the name, or other vectors from them.
            wanted = wanted_recipe(repository.config, embedder.identity, embedder.origin)
            changes = name_changes(compare_recipes(stored, wanted))
            verdict.problems.append(
                Problem(
                    "recipe-mismatch",
                    f"{repository.config.index_dir}/{RECIPE}",
                    f"the index was made with another recipe: {changes}",
                    remedy="kbindex update",
                )
            )
        return None
    with progress_on(sys.stderr) as progress:
        return audit(repository.git, repository.config, snapshot, embedder, n_chunks, progress)


def _unless_unstaged(problem: Problem, repository: Repository) -> Problem:
    """Give an outline whose document is there, but not staged, the remedy that it needs."""
    if problem.rule != "orphan-outline":
        return problem
    config = repository.config
    below = document_of_outline(config.index_dir, problem.path)
    document = below if config.bundle == "." else f"{config.bundle}/{below}"
    if document not in repository.git.index.untracked(document):
        return problem
    message = f"its document {document} is not staged"
    return Problem(problem.rule, problem.path, message, remedy=f"git add -- {shell_word(document)}")


def _from_head(
    repository: Repository, snapshot: Snapshot, problems: list[Problem]
) -> list[Problem]:
    """Give damage that is only staged the cheaper remedy: a copy of HEAD's."""
    git, config = repository.git, repository.config
    head = git.trees.head()
    damaged = {problem.path for problem in problems if problem.remedy == REBUILD}
    if head is None or not damaged:
        return problems
    before, staged = read_snapshot(git, head, config), set(sources(snapshot))
    found = {f"{config.index_dir}/{s.path}": s for s in sources(before) if s not in staged}
    sound = {path for path in damaged & found.keys() if is_sound(git, before, found[path], config)}
    return [
        replace(problem, remedy=restore_from_head(problem.path))
        if problem.path in sound
        else problem
        for problem in problems
    ]


def worktree_differences(repository: Repository) -> tuple[list[Problem], list[Problem]]:
    """Return the index files that the work tree holds otherwise than staged: damage, and notices.

    What an update wrote without staging it is no damage.
    """
    git = repository.git
    if git.is_bare or git.settings.is_sparse:
        return [], []
    written = read_unstaged(repository.view_dir)
    damage, unstaged = [], []
    for path in git.index.changed_in_worktree(repository.config.index_dir):
        if written.get(path) == file_digest(git.root, path):
            message, remedy = "it was updated but not staged", f"git add -- {shell_word(path)}"
            unstaged.append(Problem("unstaged", path, message, remedy=remedy))
        else:
            message = "the file in the work tree is not what is staged"
            remedy = f"git checkout -- {shell_word(path)}"
            damage.append(Problem("damaged-file", path, message, remedy=remedy))
    return damage, unstaged
