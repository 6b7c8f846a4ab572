"""Proves that an index is exactly that of its bundle: what ``check`` and ``status`` report.

Reads everything and trusts no local state. A fresh verdict means that every character of every
document is covered, every key is derived again, and every key has a sound vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kbindex.configuration.config import Config
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
from kbindex.core.model import DocumentState, Problem, Recipe, Snapshot
from kbindex.core.paths import RECIPE, TABLE
from kbindex.document.chunk import Limits
from kbindex.document.markdown import parse_frontmatter
from kbindex.embed.select import expected_identity
from kbindex.git.client import Git
from kbindex.outline.canonical import find_deviation
from kbindex.outline.freshness import compare
from kbindex.repo.left_out import RULE as LEFT_OUT
from kbindex.repo.snapshot import read_recipe
from kbindex.storage.reader import (
    Source,
    SourceRows,
    read_source,
    require_dimension,
    sources,
    table_reader,
)
from kbindex.storage.table_files import prove_versions

UPDATE = "kbindex update --stage"
REBUILD = "kbindex update"
"""Of what is committed that way; a copy of HEAD's may mend what is only staged."""
DAMAGE = frozenset(
    {"damaged-file", "bad-vector", "audit-mismatch", "recipe-mismatch", "conflict-markers"}
)
"""Rules that mean "unreadable or incompatible" (exit 3) rather than "stale" (exit 1)."""


@dataclass
class Verdict:
    """What was found. ``notices`` are about documents and leave the index fresh."""

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


def verify(git: Git, config: Config, snapshot: Snapshot, *, strict: bool = False) -> Verdict:
    """Return the verdict on a snapshot."""
    verdict = Verdict(
        n_documents=len(snapshot.documents),
        problems=[*snapshot.skipped, *snapshot.refused],
        notices=[*snapshot.strays, *_left_out(config, snapshot)],
    )
    verdict.recipe = _recipe(git, config, snapshot, verdict.problems)
    recipe = verdict.recipe
    # Under another composition no key can be derived, and no document is to blame for that.
    is_comparable = recipe is not None and recipe.composition == COMPOSITION_VERSION
    identity = recipe.embedder if recipe and is_comparable else None
    max_tokens = recipe.chunk_max_tokens if recipe else None
    is_strict = strict and recipe is not None and recipe.chunker == CHUNKER_VERSION
    holders: dict[str, str] = {}
    for state in compare(snapshot, identity, git.objects, max_tokens=max_tokens):
        verdict.n_chunks += len(state.keys)
        for key in state.keys:
            holders.setdefault(key, state.path)
        if not state.is_fresh and (is_comparable or state.rule != "stale-document"):
            verdict.problems.append(_stale(state))
        if state.text is not None:
            verdict.notices += _document_notices(state.path, state.text)
        if is_strict and state.is_fresh and recipe:
            verdict.problems += _canonical_problems(state, recipe)
    for path in sorted(snapshot.orphans):
        verdict.problems.append(
            Problem("orphan-outline", path, "its document is gone", remedy=UPDATE)
        )
    verdict.n_live_keys = len(holders)
    if verdict.recipe:
        _verify_rows(git, config, snapshot, verdict, holders)
        if strict:
            verdict.problems += _version_problems(git, config, snapshot)
    return verdict


def _recipe(git: Git, config: Config, snapshot: Snapshot, problems: list[Problem]) -> Recipe | None:
    path = f"{config.index_dir}/{RECIPE}"
    if snapshot.refused:
        return None  # named already; nothing of such an index is read
    try:
        stored = read_recipe(git, snapshot, config)
    except DamagedIndexError as error:
        rule = "conflict-markers" if "conflict markers" in error.message else "damaged-file"
        message = error.message.removeprefix(f"{path}: ")
        problems.append(Problem(rule, path, message, remedy=error.remedy))
        return None
    except RecipeError as error:
        message = error.message.removeprefix(f"{path}: ")
        problems.append(Problem("recipe-mismatch", path, message, remedy=error.remedy))
        return None
    if stored is None:
        return None
    try:
        refuse_newer(stored)
        wanted = wanted_recipe(config, expected_identity(config, stored.embedder))
    except KbindexError as error:
        problems.append(Problem("recipe-mismatch", path, error.message, remedy=error.remedy))
        return stored
    changes = compare_recipes(stored, wanted)
    if changes:
        message = f"the index was made with another recipe: {name_changes(changes)}"
        problems.append(Problem("recipe-mismatch", path, message, remedy="kbindex update"))
    return stored


def _stale(state: DocumentState) -> Problem:
    remedy = UPDATE
    if state.rule == "unreadable-document":
        remedy = "save it as UTF-8, or add it to 'exclude' in kbindex.toml"
    return Problem(str(state.rule), state.path, state.message, state.line, remedy)


def _document_notices(path: str, text: str) -> Iterator[Problem]:
    for line, message in parse_frontmatter(text).problems:
        yield Problem("frontmatter", path, message, line)


def _canonical_problems(state: DocumentState, recipe: Recipe) -> Iterator[Problem]:
    found = find_deviation(state, Limits(recipe.chunk_max_tokens, recipe.chunk_tokens))
    if found:
        line, message = found
        yield Problem("not-canonical", state.path, message, line, UPDATE)


def _verify_rows(
    git: Git, config: Config, snapshot: Snapshot, verdict: Verdict, holders: dict[str, str]
) -> None:
    assert verdict.recipe is not None
    identity = identity_id(verdict.recipe.embedder)
    sound: set[str] = set()
    for source in sources(snapshot):
        try:
            content = read_source(git, snapshot, source, config.index_dir)
            require_dimension(content, verdict.recipe.embedder, config.index_dir)
        except DamagedIndexError as error:
            path = f"{config.index_dir}/{source.path}"
            message = error.message.removeprefix(f"{path}: ")
            verdict.problems.append(Problem("damaged-file", path, message, remedy=REBUILD))
            continue
        verdict.n_rows += len(content.rows)
        verdict.problems += _row_problems(content, identity, config)
        bad = set(content.bad)
        sound.update(
            row.key
            for number, row in enumerate(content.rows)
            if number not in bad and row.embedder == identity
        )
    missing = Counter(path for key, path in holders.items() if key not in sound)
    for path, n_missing in sorted(missing.items()):
        message = f"{n_missing} chunks have no vector"
        verdict.problems.append(Problem("missing-vector", path, message, remedy=UPDATE))


def _version_problems(git: Git, config: Config, snapshot: Snapshot) -> Iterator[Problem]:
    """Prove what only other readers of the table follow: its older versions."""
    try:
        prove_versions(snapshot.table, table_reader(git, snapshot))
    except ValueError as error:
        path = f"{config.index_dir}/{TABLE}"
        remedy = "kbindex compact   (begins the table anew, without older versions)"
        yield Problem("damaged-file", path, str(error), remedy=remedy)


def is_sound(git: Git, snapshot: Snapshot, source: Source, config: Config) -> bool:
    """Whether a source can be read and every checksum in it holds."""
    try:
        return not read_source(git, snapshot, source, config.index_dir).bad
    except DamagedIndexError:
        return False


def _row_problems(content: SourceRows, identity: str, config: Config) -> Iterator[Problem]:
    path = f"{config.index_dir}/{content.source.path}"
    if content.bad:
        example = content.rows[content.bad[0]]
        message = (
            f"{len(content.bad)} vectors are damaged, the first that of {example.path} "
            f"({example.char_start}–{example.char_end})"
        )
        yield Problem("bad-vector", path, message, remedy=REBUILD)
    n_foreign = sum(row.embedder != identity for row in content.rows)
    if n_foreign:
        message = f"{n_foreign} rows were made by another embedder"
        yield Problem("foreign-vector", path, message, remedy="kbindex update")


def _left_out(config: Config, snapshot: Snapshot) -> Iterator[Problem]:
    yield from snapshot.left_out
    more = snapshot.n_left_out - len(snapshot.left_out)
    if more:
        yield Problem(LEFT_OUT, config.bundle, f"{more} more files are left out")
