"""Proves that an index is exactly that of its bundle: what ``check`` and ``status`` report.

Reads everything and trusts no local state. A fresh verdict means that every character of every
document is covered, every key is derived again, and every key has a sound vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kbindex.configuration.recipe import (
    CHUNKER_VERSION,
    COMPOSITION_VERSION,
    compare_recipes,
    identity_id,
    name_changes,
    refuse_newer,
    wanted_recipe,
)
from kbindex.core.errors import DamagedIndexError, KbindexError, RecipeError
from kbindex.core.model import Problem, Recipe, Rule
from kbindex.core.paths import RECIPE, TABLE
from kbindex.document.chunk import Limits
from kbindex.document.markdown import parse_frontmatter
from kbindex.embed.select import expected_identity
from kbindex.outline.canonical import find_deviation
from kbindex.outline.states import Known, Proven, Stale, Unreadable
from kbindex.storage.table_files import prove_versions
from kbindex.storage.tree import IndexTree, SourceRows

UPDATE = "kbindex update --stage"
REBUILD = "kbindex update"
"""The remedy for damage that is committed; a copy of HEAD's may mend what is only staged."""
DAMAGE = frozenset(
    {
        Rule.DAMAGED_FILE,
        Rule.BAD_VECTOR,
        Rule.AUDIT_MISMATCH,
        Rule.RECIPE_MISMATCH,
        Rule.CONFLICT_MARKERS,
    }
)
"""Rules that mean "unreadable or incompatible" (exit 3) rather than "stale" (exit 1)."""


@dataclass
class Verdict:
    """The problems of an index. ``notices`` concern documents and leave the index fresh."""

    n_documents: int = 0
    n_chunks: int = 0
    n_rows: int = 0
    n_live_keys: int = 0
    recipe: Recipe | None = None
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)

    @property
    def is_damaged(self) -> bool:
        return any(problem.rule in DAMAGE for problem in self.problems)


def mendable(
    rule: Rule, path: str, message: str, line: int | None = None, *, remedy: str = UPDATE
) -> Problem:
    """Return a problem that an update mends."""
    return Problem(rule, path, message, line, remedy, mended_by_update=True)


def verify(tree: IndexTree, *, strict: bool = False) -> Verdict:
    """Return the verdict on an index; ``strict`` also cuts every document into chunks again."""
    snapshot = tree.snapshot
    verdict = Verdict(
        n_documents=len(snapshot.documents),
        problems=[*snapshot.skipped, *snapshot.refused],
        notices=[*snapshot.strays, *_left_out(tree)],
    )
    verdict.recipe = _recipe(tree, verdict.problems)
    holders = _verify_documents(tree, verdict, strict)
    for path in sorted(snapshot.orphans):
        verdict.problems.append(mendable(Rule.ORPHAN_OUTLINE, path, "its document is gone"))
    verdict.n_live_keys = len(holders)
    if verdict.recipe:
        _verify_rows(tree, verdict.recipe, verdict, holders)
        if strict:
            verdict.problems += _version_problems(tree)
    return verdict


def _verify_documents(tree: IndexTree, verdict: Verdict, strict: bool) -> dict[str, str]:
    """Judge every document; return the live keys, each with a path where it occurs."""
    recipe = verdict.recipe
    # Under another composition no key can be derived, and no document is to blame for that.
    is_comparable = recipe is not None and recipe.composition == COMPOSITION_VERSION
    identity = recipe.embedder if recipe and is_comparable else None
    max_tokens = recipe.chunk_max_tokens if recipe else None
    is_strict = strict and recipe is not None and recipe.chunker == CHUNKER_VERSION
    holders: dict[str, str] = {}
    for state in tree.compare(identity, max_tokens=max_tokens):
        match state:
            case Unreadable():
                verdict.problems.append(_unreadable(state))
            case Stale():
                if is_comparable or state.rule != Rule.STALE_DOCUMENT:
                    verdict.problems.append(_stale(state))
            case Proven() | Known():
                verdict.n_chunks += len(state.keys)
                for key in state.keys:
                    holders.setdefault(key, state.path)
        if isinstance(state, Stale | Proven):
            verdict.notices += _document_notices(state.path, state.text)
        if is_strict and recipe and isinstance(state, Proven):
            verdict.problems += _canonical_problems(state, recipe)
    return holders


def _recipe(tree: IndexTree, problems: list[Problem]) -> Recipe | None:
    path = tree.path(RECIPE)
    if tree.snapshot.refused:
        return None  # named already; nothing of such an index is read
    try:
        stored = tree.recipe
    except DamagedIndexError as error:
        problems.append(_as_problem(error, error.rule, path))
        return None
    except RecipeError as error:
        problems.append(_as_problem(error, Rule.RECIPE_MISMATCH, path))
        return None
    if stored is None:
        return None
    try:
        refuse_newer(stored)
        wanted = wanted_recipe(tree.config, expected_identity(tree.config, stored.embedder))
    except KbindexError as error:
        problems.append(_as_problem(error, Rule.RECIPE_MISMATCH, path))
        return stored
    changes = compare_recipes(stored, wanted)
    if changes:
        message = f"the index was made with another recipe: {name_changes(changes)}"
        problems.append(mendable(Rule.RECIPE_MISMATCH, path, message, remedy=REBUILD))
    return stored


def _as_problem(error: KbindexError, rule: Rule, path: str) -> Problem:
    remedy, is_mended = error.remedy, error.mended_by_update
    return Problem(rule, path, error.reason, remedy=remedy, mended_by_update=is_mended)


def _stale(state: Stale) -> Problem:
    return mendable(state.rule, state.path, state.message, state.line)


def _unreadable(state: Unreadable) -> Problem:
    remedy = "save it as UTF-8, or add it to 'exclude' in kbindex.toml"
    return Problem(Rule.UNREADABLE_DOCUMENT, state.path, state.message, state.line, remedy)


def _document_notices(path: str, text: str) -> Iterator[Problem]:
    for line, message in parse_frontmatter(text).problems:
        yield Problem(Rule.FRONTMATTER, path, message, line)


def _canonical_problems(state: Proven, recipe: Recipe) -> Iterator[Problem]:
    found = find_deviation(state, Limits(recipe.chunk_max_tokens, recipe.chunk_tokens))
    if found:
        line, message = found
        yield mendable(Rule.NOT_CANONICAL, state.path, message, line)


def _verify_rows(
    tree: IndexTree, recipe: Recipe, verdict: Verdict, holders: dict[str, str]
) -> None:
    """Judge every source of rows, and whether each live key has a sound vector."""
    identity = identity_id(recipe.embedder)
    sound: set[str] = set()
    for source in tree.sources:
        try:
            content = tree.read(source)
            tree.require_dimension(content, recipe.embedder)
        except DamagedIndexError as error:
            path = tree.path(source.path)
            verdict.problems.append(mendable(Rule.DAMAGED_FILE, path, error.reason, remedy=REBUILD))
            continue
        verdict.n_rows += len(content.rows)
        verdict.problems += _row_problems(content, identity, tree.path(source.path))
        sound.update(row.key for row, _ in content.sound(identity))
    missing = Counter(path for key, path in holders.items() if key not in sound)
    for path, n_missing in sorted(missing.items()):
        message = f"{n_missing} chunks have no vector"
        verdict.problems.append(mendable(Rule.MISSING_VECTOR, path, message))


def _version_problems(tree: IndexTree) -> Iterator[Problem]:
    """Prove what only other readers of the table follow: its older versions."""
    try:
        prove_versions(tree.snapshot.table, tree.read_table_file)
    except ValueError as error:
        remedy = "kbindex compact   (begins the table anew, without older versions)"
        yield Problem(Rule.DAMAGED_FILE, tree.path(TABLE), str(error), remedy=remedy)


def _row_problems(content: SourceRows, identity: str, path: str) -> Iterator[Problem]:
    if content.bad:
        example = content.rows[content.bad[0]]
        message = (
            f"{len(content.bad)} vectors are damaged, the first that of {example.path} "
            f"({example.char_start}–{example.char_end})"
        )
        yield mendable(Rule.BAD_VECTOR, path, message, remedy=REBUILD)
    n_foreign = sum(row.embedder != identity for row in content.rows)
    if n_foreign:
        message = f"{n_foreign} rows were made by another embedder"
        yield mendable(Rule.FOREIGN_VECTOR, path, message, remedy=REBUILD)


def _left_out(tree: IndexTree) -> Iterator[Problem]:
    snapshot = tree.snapshot
    yield from snapshot.left_out
    more = snapshot.n_left_out - len(snapshot.left_out)
    if more:
        yield Problem(Rule.LEFT_OUT, tree.config.bundle, f"{more} more files are left out")
