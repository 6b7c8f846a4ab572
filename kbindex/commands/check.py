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
from kbindex.core.model import Audit, Problem, Rule
from kbindex.core.paths import RECIPE, document_of_outline
from kbindex.core.text import shell_word
from kbindex.embed.select import open_embedder
from kbindex.git.staging import file_digest, read_unstaged
from kbindex.index.audit import audit
from kbindex.index.verify import REBUILD, Verdict, mendable, verify
from kbindex.output.console import note, put
from kbindex.output.formats import Format
from kbindex.output.progress import progress_on
from kbindex.output.render import render_check
from kbindex.repo.repository import Repository
from kbindex.storage.tree import IndexTree, index_at, open_index


def check(
    directory: Path | None,
    rev: str | None,
    form: Format,
    *,
    strict: bool,
    n_audited: int = 0,
    notices_fail: bool = False,
) -> ExitCode:
    """Print the verdict on a revision, or on what is staged; return 0 fresh, 1 stale, 3 damaged."""
    tree = open_index(directory, rev)
    tree.require_index()
    verdict = verify(tree, strict=strict)
    found = _audit(tree, verdict, n_audited) if n_audited else None
    verdict.problems += found.problems if found else []
    if rev is None:
        verdict.problems = [_unless_unstaged(p, tree.repository) for p in verdict.problems]
        verdict.problems = _from_head(tree, verdict.problems)
        damage, unstaged = worktree_differences(tree.repository)
        verdict.problems += damage
        verdict.notices += unstaged
    put(
        render_check(
            rev or tree.snapshot.tree,
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


def _audit(tree: IndexTree, verdict: Verdict, n_chunks: int) -> Audit | None:
    """Audit a sample; ``None``, with a message, where the index is not that of our embedder."""
    config, stored = tree.config, verdict.recipe
    embedder = open_embedder(config, stored, tree.repository.cache_dir, os.environ)
    if stored is None or stored.embedder != embedder.identity:
        note("nothing was audited: the index is not that of the configured embedder")
        if stored is not None and all(p.rule != Rule.RECIPE_MISMATCH for p in verdict.problems):
            # Only the server knows: other weights behind the name, or other vectors from them.
            wanted = wanted_recipe(config, embedder.identity, embedder.origin)
            changes = name_changes(compare_recipes(stored, wanted))
            message = f"the index was made with another recipe: {changes}"
            path = tree.path(RECIPE)
            verdict.problems.append(mendable(Rule.RECIPE_MISMATCH, path, message, remedy=REBUILD))
        return None
    with progress_on(sys.stderr) as progress:
        return audit(tree, embedder, n_chunks, progress)


def _unless_unstaged(problem: Problem, repository: Repository) -> Problem:
    """Give an outline whose document is there, but not staged, the remedy that it needs."""
    if problem.rule != Rule.ORPHAN_OUTLINE:
        return problem
    config = repository.config
    below = document_of_outline(config.index_dir, problem.path)
    document = below if config.bundle == "." else f"{config.bundle}/{below}"
    if document not in repository.git.index.untracked(document):
        return problem
    message = f"its document {document} is not staged"
    return Problem(problem.rule, problem.path, message, remedy=f"git add -- {shell_word(document)}")


def _from_head(tree: IndexTree, problems: list[Problem]) -> list[Problem]:
    """Give damage that is only staged the cheaper remedy: a copy of HEAD's."""
    head = tree.git.trees.head()
    damaged = {problem.path for problem in problems if problem.mended_by_update}
    if head is None or not damaged:
        return problems
    before = index_at(tree.repository, head)
    found = {before.path(s.path): s for s in before.sources if s not in tree.sources}
    sound = {path for path in damaged & found.keys() if before.is_sound(found[path])}
    return [
        replace(problem, remedy=restore_from_head(problem.path), mended_by_update=False)
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
            unstaged.append(Problem(Rule.UNSTAGED, path, message, remedy=remedy))
        else:
            message = "the file in the work tree is not what is staged"
            remedy = f"git checkout -- {shell_word(path)}"
            damage.append(Problem(Rule.DAMAGED_FILE, path, message, remedy=remedy))
    return damage, unstaged
