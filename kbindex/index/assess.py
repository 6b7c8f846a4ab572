"""The first step of an update: which documents need a new outline, and which rows can stay.

The documents are compared with their outlines once. Nothing is written but proofs to the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbindex.configuration.recipe import (
    FORMAT,
    RecipeChange,
    compare_recipes,
    name_changes,
    recipe_id,
    refuse_newer,
    wanted_recipe,
)
from kbindex.core.errors import DamagedIndexError, OlderFormatError, RefusedError
from kbindex.core.model import EmbedderIdentity, Origin, Problem, Recipe, Rule
from kbindex.core.paths import TABLE, document_of_outline
from kbindex.document.chunk import Limits
from kbindex.index.options import Options
from kbindex.local.cache import Cache, unpack_keys
from kbindex.outline.canonical import find_deviation
from kbindex.outline.states import Known, Proven, Stale, Unreadable
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import IndexTree

_CANONICAL = ":canonical"
"""Marks proofs that also cover the boundaries of an outline."""


@dataclass(frozen=True)
class Standing:
    """What of an index can be that of the wanted recipe."""

    recipe: Recipe
    """The wanted recipe."""
    stored: Recipe | None = None
    """The recipe of the index, ``None`` where there is none that can be read."""
    outlines_stand: bool = False
    rows_stand: bool = False
    changes: tuple[RecipeChange, ...] = ()
    repaired: tuple[str, ...] = ()
    """Damage that the update replaces."""


@dataclass(frozen=True)
class Assessment:
    """An index tree beside the wanted recipe."""

    tree: IndexTree
    standing: Standing
    committed: CommittedRows
    kept_keys: frozenset[str]
    """The committed keys whose rows can stay."""
    starts_table: bool
    """Whether table and WAL are replaced by a new table."""
    fresh: tuple[Known, ...]
    """The documents whose outline stays."""
    outdated: tuple[Stale, ...]
    """The documents that need a new outline: for their text, the recipe or its boundaries."""
    edited: frozenset[str]
    """The paths of outdated documents whose text their outline doesn't describe."""
    repaired: tuple[str, ...]
    problems: tuple[Problem, ...]
    """Documents that can't be indexed."""

    @property
    def recipe(self) -> Recipe:
        """The wanted recipe."""
        return self.standing.recipe

    @property
    def limits(self) -> Limits:
        """The wanted sizes of chunks."""
        return Limits(self.recipe.chunk_max_tokens, self.recipe.chunk_tokens)

    def read(self, paths: set[str]) -> Iterator[Stale | Proven]:
        """Yield the states of single documents whose text is needed once more.

        Fresh documents are held without their texts, which might not fit into memory.
        """
        for state in self.tree.compare(self.recipe.embedder, paths=paths):
            if isinstance(state, Stale | Proven):
                yield state


@dataclass
class _Compared:
    """The documents by what the comparison says of them."""

    fresh: list[Known] = field(default_factory=list)
    outdated: list[Stale] = field(default_factory=list)
    edited: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


def assess(
    tree: IndexTree, identity: EmbedderIdentity, origin: Origin, cache: Cache, options: Options
) -> Assessment:
    """Return what an update of ``tree`` has to do under an embedder's identity.

    Raises RefusedError, and DamagedIndexError, where ``options`` don't allow to replace it.
    """
    _refuse_empty_bundle(tree)
    standing = _standing(tree, wanted_recipe(tree.config, identity, origin), options)
    committed = CommittedRows(tree, identity, cache)
    damage = _damage(committed, standing.rows_stand)
    if damage and not options.may_change_recipe:
        raise damage[0]
    compared = _compare(standing, tree, cache, is_strict=options.may_change_recipe)
    has_rows = bool(tree.snapshot.table or tree.snapshot.wal)
    return Assessment(
        tree=tree,
        standing=standing,
        committed=committed,
        kept_keys=committed.keys if standing.rows_stand else frozenset(),
        starts_table=not standing.rows_stand or bool(damage) or not has_rows,
        fresh=tuple(compared.fresh),
        outdated=tuple(compared.outdated),
        edited=frozenset(compared.edited),
        repaired=(*standing.repaired, *(error.message for error in damage)),
        problems=(*tree.snapshot.skipped, *compared.problems),
    )


def _refuse_empty_bundle(tree: IndexTree) -> None:
    """Raise RefusedError if the bundle is empty but documents of orphaned outlines exist.

    A setting then no longer points at them, and the index would be emptied.
    """
    snapshot, config = tree.snapshot, tree.config
    if snapshot.documents or not snapshot.orphans:
        return
    below = {document_of_outline(config.index_dir, path) for path in snapshot.orphans}
    for _, _, path in tree.git.trees.files(snapshot.tree, "."):
        if path in below or any(path.endswith(f"/{name}") for name in below):
            raise RefusedError(
                f"no document is left in '{config.bundle}/', but {path} is still there: "
                "the index would be emptied",
                "check bundle, include and exclude in the configuration",
            )


def _standing(tree: IndexTree, recipe: Recipe, options: Options) -> Standing:
    """Compare the recipe of the index with the wanted one."""
    try:
        stored = tree.recipe
    except OlderFormatError as error:
        if not options.may_change_recipe:
            raise
        change = RecipeChange("index format", str(error.found), str(FORMAT))
        return Standing(recipe, changes=(change,))
    except DamagedIndexError as error:
        if not options.may_change_recipe:
            raise
        refused = tuple(f"{p.path}: {p.message}" for p in tree.snapshot.refused)
        # A row says by itself which embedder made it.
        return Standing(recipe, rows_stand=True, repaired=refused or (error.message,))
    if stored is None:
        return Standing(recipe)
    refuse_newer(stored)
    changes = tuple(compare_recipes(stored, recipe))
    if not changes:
        return Standing(recipe, stored, outlines_stand=True, rows_stand=True)
    if not options.may_change_recipe:
        raise RefusedError(
            f"the index was made with another recipe: {name_changes(changes)}",
            "kbindex update   (rebuilds the index; or set the configuration back)",
            mended_by_update=True,
        )
    # Other boundaries make other outlines; vectors of the same embedder stay comparable.
    rows_stand = stored.embedder == recipe.embedder
    return Standing(recipe, stored, rows_stand=rows_stand, changes=changes)


def _damage(committed: CommittedRows, rows_stand: bool) -> list[DamagedIndexError]:
    """Return why the table has to be begun anew with the sound rows, if it has to."""
    if not rows_stand:
        return []
    damage = list(committed.damage)
    if committed.has_foreign_table:
        # A merge of an embedder's switch: the recipe of one side, the table of the other.
        reason = "its rows were made by another embedder than the recipe names"
        damage.append(DamagedIndexError(committed.tree.path(TABLE), reason, "kbindex update"))
    return damage


def _compare(standing: Standing, tree: IndexTree, cache: Cache, *, is_strict: bool) -> _Compared:
    """Compare every document with its outline.

    ``is_strict``: an outline with other boundaries than the chunker's is outdated, too. A merge may
    bring one that other limits made; whoever runs an update wants it mended.
    """
    recipe = standing.recipe
    name = recipe_id(recipe) + (_CANONICAL if is_strict else "")
    known = cache.pairs(name) if standing.outlines_stand else {}
    proven = {pair: tuple(unpack_keys(keys)) for pair, keys in known.items()}
    # Of an index of another recipe, too, it is told which documents were edited since.
    made_by = standing.stored or recipe
    can_tell = made_by.composition == recipe.composition
    identity = made_by.embedder if can_tell else None
    max_tokens = recipe.chunk_max_tokens if standing.outlines_stand else None
    limits = Limits(recipe.chunk_max_tokens, recipe.chunk_tokens)
    found = _Compared()
    newly_proven = {}
    for state in tree.compare(identity, proven, max_tokens):
        match state:
            case Unreadable(path=path, message=message, line=line):
                found.problems.append(Problem(Rule.UNREADABLE_DOCUMENT, path, message, line))
            case Known():
                found.fresh.append(state)
            case Stale():
                found.outdated.append(state)
                # Without an identity no key can tell, and HEAD has to.
                if can_tell or tree.head_documents.get(state.path) != state.blob:
                    found.edited.add(state.path)
            case Proven() if not standing.outlines_stand:
                found.outdated.append(state.outdated(Rule.STALE_DOCUMENT, "the recipe changed"))
            case Proven() if is_strict and (deviation := find_deviation(state, limits)):
                line, message = deviation
                found.outdated.append(state.outdated(Rule.NOT_CANONICAL, message, line))
            case Proven():
                found.fresh.append(state.known())
                newly_proven[state.blob, state.outline] = state.keys
    cache.add_pairs(name, newly_proven)
    return found
