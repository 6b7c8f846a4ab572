"""Brings the index of a tree up to its bundle: which files of the index change, and to what.

Compares, drafts new outlines, embeds what no one has embedded before, and returns the changed
files; nothing is written but the local cache. ``publish`` puts the files in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.config import Config
from kbindex.configuration.recipe import (
    FORMAT,
    RecipeChange,
    compare_recipes,
    identity_id,
    name_changes,
    recipe_id,
    refuse_newer,
    render_recipe,
    wanted_recipe,
)
from kbindex.core.errors import (
    DamagedIndexError,
    OlderFormatError,
    RefusedError,
    TooMuchToEmbedError,
    UsageError,
)
from kbindex.core.model import Chunk, DocumentState, Entry, Problem, Recipe, Row, Snapshot
from kbindex.core.paths import CONSTANT_FILES, RECIPE, TABLE, document_of_outline, outline_path
from kbindex.document.chunk import Limits
from kbindex.embed import Embedder
from kbindex.embed.batch import Progress, Text, count_calls, embed_texts
from kbindex.git.client import Git
from kbindex.index.outline_builder import DoesNotFit, Draft, draft_document
from kbindex.index.retaken import retaken_keys
from kbindex.local.cache import Cache, unpack_keys
from kbindex.outline.canonical import find_deviation
from kbindex.outline.file import count_recontexted, render_outline
from kbindex.outline.freshness import compare
from kbindex.repo.snapshot import commit_trees, read_recipe, read_snapshot
from kbindex.storage.reader import committed_vectors, holds_foreign_table, load_committed
from kbindex.storage.writer import Changes, Checkpoint, RowStore, anchor_rows

_CANONICAL = ":canonical"
"""Marks pairs of document and outline whose boundaries were proven, too."""


@dataclass
class Report:
    """What an update did or, dry, would do."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    """Documents that have another outline though they did not change."""
    renamed: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    n_chunks: int = 0
    n_kept: int = 0
    """Chunks of documents whose outline stands."""
    n_embedded: int = 0
    n_edited: int = 0
    """Embedded chunks of documents that changed, whatever the recipe."""
    n_calls: int = 0
    n_recontexted: int = 0
    """Chunks whose text stayed, but not the title, a heading or a table header above it."""
    checkpointed: bool = False
    repaired: list[str] = field(default_factory=list)
    """What was damaged and has been replaced."""
    recipe_changes: list[RecipeChange] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Documents that could not be indexed; the run ends non-zero when there are any."""

    @property
    def n_reused(self) -> int:
        """Chunks of changed documents whose vector was known."""
        return max(self.n_chunks - self.n_kept - self.n_embedded, 0)

    def after(self, earlier: Report) -> Report:
        """Return the report of two updates, the second of which found what the first had made."""
        both = replace(self, checkpointed=earlier.checkpointed or self.checkpointed)
        for name in ("added", "changed", "rebuilt", "renamed", "deleted", "repaired"):
            setattr(both, name, list(dict.fromkeys(getattr(earlier, name) + getattr(self, name))))
        for name in ("n_embedded", "n_edited", "n_calls", "n_recontexted"):
            setattr(both, name, getattr(earlier, name) + getattr(self, name))
        both.n_kept = max(self.n_kept - earlier.n_chunks + earlier.n_kept, 0)
        both.recipe_changes = earlier.recipe_changes + self.recipe_changes
        return both


@dataclass(frozen=True)
class Options:
    """How far one update may go."""

    may_change_recipe: bool = True
    max_embedded: int | None = None
    checkpoint: Checkpoint = Checkpoint.NEVER
    mid_operation: bool = False
    """A merge, pick or rebase is under way: staged WAL files may be another side's."""
    dry_run: bool = False
    embeds_only: bool = False
    """Vectors enter the cache, and no file changes."""
    re_embed: str = ""
    """A document or folder whose chunks are embedded whether their vectors are known or not."""


class Build:
    """One update of one snapshot; ``run`` returns the changed files and the report."""

    def __init__(
        self,
        git: Git,
        config: Config,
        snapshot: Snapshot,
        embedder: Embedder,
        cache: Cache,
        options: Options,
        progress: Progress,
    ) -> None:
        self._git, self._config, self._snapshot = git, config, snapshot
        self._embedder, self._cache = embedder, cache
        self._options, self._progress = options, progress
        self._recipe = wanted_recipe(config, embedder.identity, embedder.origin)
        self._identity = identity_id(embedder.identity)
        self._limits = Limits(config.max_tokens, config.chunk_tokens)
        self._stored: Recipe | None = None
        self._fresh: list[DocumentState] = []
        """Documents whose outline stands, with their keys and without their texts."""
        self._edited: set[str] = set()
        self._report = Report(problems=list(snapshot.skipped))
        self._committed: set[str] = set()
        self._vectors: dict[str, NDArray[np.float16]] = {}
        """Of the keys that are not committed."""
        self._distrusted: set[str] = set()
        self._refused: set[str] = set()
        """Keys of texts that the embedder found too long."""

    def run(self) -> tuple[Changes, Report]:
        """Return what to change. Raises RefusedError, DamagedIndexError and what git raises."""
        self._refuse_to_lose_sight()
        outlines_stand, rows_stand = self._settle_recipe()
        starts_table = self._load_committed(rows_stand)
        fresh, stale = self._compare(outlines_stand)
        self._fresh = fresh
        self._edited = self._edited_documents(stale, outlines_stand)
        drafts = self._draft(stale)
        starts_table |= self._distrust(fresh, drafts)
        fresh, drafts, missing = self._embed_all(fresh, drafts)
        drafts = [draft for draft in drafts if self._is_complete(draft)]
        self._tell(fresh, drafts, missing)
        if outlines_stand:
            self._report.n_recontexted = self._count_recontexted(drafts)
        # A recipe advances with every document covered by it, or the old index stays whole.
        advances = self._snapshot.has_index and not outlines_stand
        is_incomplete = advances and bool(self._report.problems)
        if self._options.dry_run or self._options.embeds_only or is_incomplete:
            return {}, self._report
        changes: Changes = {problem.path: None for problem in self._snapshot.refused}
        changes |= self._outline_changes(drafts)
        changes |= self._row_changes(fresh, drafts, starts_table, keep_others=rows_stand)
        changes |= self._constant_changes()
        return changes, self._report

    def _refuse_to_lose_sight(self) -> None:
        """Don't empty the index because a setting no longer points at documents that are there."""
        if self._snapshot.documents or not self._snapshot.orphans:
            return
        folder = self._config.index_dir
        below = {document_of_outline(folder, path) for path in self._snapshot.orphans}
        for _, _, path in self._git.trees.files(self._snapshot.tree, "."):
            if path in below or any(path.endswith(f"/{name}") for name in below):
                raise RefusedError(
                    f"no document is left in '{self._config.bundle}/', but {path} is still there: "
                    "the index would be emptied",
                    "check bundle, include and exclude in the configuration",
                )

    def _settle_recipe(self) -> tuple[bool, bool]:
        """Return whether the outlines, and whether the rows, can be those of our recipe."""
        try:
            stored = read_recipe(self._git, self._snapshot, self._config)
        except (DamagedIndexError, OlderFormatError) as error:
            if not self._options.may_change_recipe:
                raise
            if isinstance(error, OlderFormatError):
                change = RecipeChange("index format", str(error.found), str(FORMAT))
                self._report.recipe_changes = [change]
                return False, False
            refused = [f"{p.path}: {p.message}" for p in self._snapshot.refused]
            self._report.repaired += refused or [error.message]
            return False, True  # a row says by itself which embedder made it
        if stored is None:
            return False, False
        refuse_newer(stored)
        self._stored = stored
        self._report.recipe_changes = compare_recipes(stored, self._recipe)
        if not self._report.recipe_changes:
            return True, True
        if not self._options.may_change_recipe:
            raise RefusedError(
                "the index was made with another recipe: "
                f"{name_changes(self._report.recipe_changes)}",
                "kbindex update   (rebuilds the index; or set the configuration back)",
            )
        # Other boundaries make other outlines; vectors of the same embedder stay comparable.
        return False, stored.embedder == self._recipe.embedder

    def _load_committed(self, rows_stand: bool) -> bool:
        """Note which keys have a committed row; return whether the table has to be begun anew.

        Their vectors are in the cache afterwards: a rebuild keeps no row, but embeds nothing that
        it finds. A damaged table is replaced by one of its sound rows.
        """
        found, damage = load_committed(
            self._git,
            self._snapshot,
            self._cache,
            self._recipe.embedder,
            self._config.index_dir,
        )
        if damage and rows_stand:
            if not self._options.may_change_recipe:
                raise damage[0]
            self._report.repaired += [error.message for error in damage]
        if rows_stand and holds_foreign_table(self._snapshot, self._cache, self._identity):
            # A merge of an embedder's switch: the recipe of one side, the table of the other.
            foreign = DamagedIndexError(
                f"{self._config.index_dir}/{TABLE}",
                "its rows were made by another embedder than the recipe names",
                "kbindex update",
            )
            if not self._options.may_change_recipe:
                raise foreign
            damage.append(foreign)
            self._report.repaired.append(foreign.message)
        self._committed = found if rows_stand else set()
        has_rows = bool(self._snapshot.table or self._snapshot.wal)
        return not rows_stand or bool(damage) or not has_rows

    def _compare(self, outlines_stand: bool) -> tuple[list[DocumentState], list[DocumentState]]:
        """Return the documents whose outline stands and those that need a new one."""
        # A merge may bring outlines that other limits made; who runs an update wants them mended.
        is_strict = self._options.may_change_recipe
        recipe = recipe_id(self._recipe) + (_CANONICAL if is_strict else "")
        known = self._cache.pairs(recipe) if outlines_stand else {}
        proven = {pair: tuple(unpack_keys(keys)) for pair, keys in known.items()}
        identity = self._recipe.embedder if outlines_stand else None
        fresh, stale, newly_proven = [], [], {}
        most = self._recipe.chunk_max_tokens
        for state in compare(self._snapshot, identity, self._git.objects, proven, most):
            if state.rule == "unreadable-document":
                self._fail(state.path, state.message, state.line)
            elif not state.is_fresh or (is_strict and self._deviates(state)):
                stale.append(state)
            else:
                # Texts are not needed again, and ten thousand of them would be much to hold.
                fresh.append(DocumentState(state.path, state.blob, state.outline, state.keys))
                if state.text is not None and state.outline:
                    newly_proven[state.blob, state.outline] = state.keys
        self._cache.add_pairs(recipe, newly_proven)
        return fresh, stale

    def _deviates(self, state: DocumentState) -> bool:
        return state.text is not None and find_deviation(state, self._limits) is not None

    def _edited_documents(self, stale: Sequence[DocumentState], outlines_stand: bool) -> set[str]:
        """Return the documents whose text their outline doesn't describe, whatever the recipe."""
        if outlines_stand:
            return {state.path for state in stale if not state.is_fresh}
        stored = self._stored or self._recipe
        if stored.composition != self._recipe.composition:  # no key can tell
            head = self._head_documents
            return {p for p, blob in self._snapshot.documents.items() if head.get(p) != blob}
        states = compare(self._snapshot, stored.embedder, self._git.objects)
        return {state.path for state in states if not state.is_fresh}

    def _draft(self, stale: Iterable[DocumentState]) -> list[Draft]:
        drafts = []
        for state in stale:
            try:
                draft = draft_document(
                    state, self._limits, self._embedder, self._which_known, self._refused
                )
                drafts.append(draft)
            except DoesNotFit as error:
                self._fail(state.path, str(error), error.line)
        return drafts

    def _which_known(self, keys: Iterable[str]) -> set[str]:
        wanted = set(keys) - self._refused  # an embedder may refuse what it once took
        known = wanted & self._committed
        return known | self._cache.vectors(wanted - known).keys()

    # Embedding

    def _distrust(self, fresh: Sequence[DocumentState], drafts: Sequence[Draft]) -> bool:
        """Forget the rows that are to be embedded again; return whether there are any."""
        below = self._options.re_embed
        if not below:
            return False
        documents: list[DocumentState | Draft] = [*fresh, *drafts]
        chosen = [document for document in documents if is_below(document.path, below)]
        if not chosen:
            raise UsageError(
                f"--re-embed '{below}': no document of the bundle stands there",
                "name a document or a folder by its path from the repository's root",
            )
        self._distrusted = {key for document in chosen for key in document.keys}
        held = bool(self._committed & self._distrusted)
        self._committed -= self._distrusted
        return held

    def _missing(self, fresh: Sequence[DocumentState], drafts: Sequence[Draft]) -> list[str]:
        """Return the keys to embed, in document order; take from the cache what is there."""
        wanted = dict.fromkeys(key for state in fresh for key in state.keys)
        wanted |= dict.fromkeys(key for draft in drafts for key in draft.keys)
        unknown = [key for key in wanted if key not in self._committed]
        trusted = [key for key in unknown if key not in self._distrusted]
        self._vectors = self._cache.vectors(trusted)
        if len(self._vectors) < len(trusted) and self._load_elsewhere():
            self._vectors = self._cache.vectors(trusted)
        missing = [key for key in unknown if key not in self._vectors]
        limit = self._options.max_embedded
        if limit is not None and len(missing) > limit:
            raise TooMuchToEmbedError(len(missing), limit)
        return missing

    def _load_elsewhere(self) -> bool:
        """Look for vectors in HEAD and in what a merge, pick or revert brings in.

        A conflict in the table that was added blindly leaves rows of one side out of it.
        """
        trees = commit_trees(self._git, [*self._git.state.operation_commits(), "HEAD"])
        for tree in trees:
            other = read_snapshot(self._git, tree, self._config)
            load_committed(
                self._git, other, self._cache, self._recipe.embedder, self._config.index_dir
            )
        return bool(trees)

    def _embed_all(
        self, fresh: list[DocumentState], drafts: list[Draft]
    ) -> tuple[list[DocumentState], list[Draft], list[str]]:
        """Embed what is missing; cut what the embedder finds too long further, and go on.

        Returns the documents whose outline stands, the drafts, and the keys that were missing.
        """
        missing = self._missing(fresh, drafts)
        every = dict.fromkeys(missing)
        while too_long := self._embed(drafts, missing):
            self._refused |= too_long
            documents: list[DocumentState | Draft] = [*fresh, *drafts]
            again = {d.path for d in documents if not too_long.isdisjoint(d.keys)}
            fresh = [state for state in fresh if state.path not in again]
            drafts = [draft for draft in drafts if draft.path not in again]
            drafts += self._draft(self._read(again))
            missing = self._missing(fresh, drafts)
            every |= dict.fromkeys(missing)
        return fresh, drafts, list(every)

    def _read(self, paths: set[str]) -> Iterator[DocumentState]:
        """Yield the states of documents whose text is needed once more."""
        documents = {path: self._snapshot.documents[path] for path in paths}
        part = replace(self._snapshot, documents=documents)
        yield from compare(part, self._recipe.embedder, self._git.objects)

    def _embed(self, drafts: Sequence[Draft], missing: Sequence[str]) -> set[str]:
        """Embed what is missing; return the keys of the texts that are too long."""
        if self._options.dry_run:
            self._report.n_calls = count_calls(len(missing))
        if self._options.dry_run or not missing:
            return set()
        texts = self._texts(drafts, set(missing))
        ordered = {key: texts[key] for key in missing}
        result = embed_texts(self._embedder, ordered, self._cache.replace_vectors, self._progress)
        self._vectors |= result.vectors
        self._distrusted -= result.vectors.keys()
        self._report.n_calls += result.n_calls
        for path, reason in result.failures.items():
            self._fail(path, reason, None)
        return result.too_long

    def _texts(self, drafts: Sequence[Draft], wanted: set[str]) -> dict[str, Text]:
        texts: dict[str, Text] = {}
        for path, entries, chunks in self._places(drafts, wanted):
            for entry, made in zip(entries, chunks, strict=True):
                if entry.key in wanted and made.shown is not None:
                    texts.setdefault(entry.key, Text(made.shown, path))
        return texts

    def _places(
        self, drafts: Sequence[Draft], wanted: set[str]
    ) -> Iterator[tuple[str, Sequence[Entry], Sequence[Chunk]]]:
        """Yield the documents where ``wanted`` keys stand; the drafted ones come first."""
        for draft in drafts:
            yield draft.path, draft.entries, draft.chunks
        elsewhere = wanted - {key for draft in drafts for key in draft.keys}
        if elsewhere:
            where = {state.path for state in self._fresh if not elsewhere.isdisjoint(state.keys)}
            for state in self._read(where):
                yield state.path, state.entries, state.chunks

    def _is_complete(self, draft: Draft) -> bool:
        """Whether every chunk has a vector: only then anything new of a document is stored."""
        known = self._committed | self._vectors.keys()
        return self._options.dry_run or known.issuperset(draft.keys)

    # What changes

    def _outline_changes(self, drafts: Sequence[Draft]) -> Changes:
        changes: Changes = dict.fromkeys(self._snapshot.orphans)
        for draft in drafts:
            below = self._config.document_path(draft.path)
            path = outline_path(self._config.index_dir, below)
            changes[path] = render_outline(draft.entries).encode()
        return changes

    def _row_changes(
        self,
        fresh: Sequence[DocumentState],
        drafts: Sequence[Draft],
        starts_table: bool,
        *,
        keep_others: bool,
    ) -> Changes:
        live = {key for draft in drafts for key in draft.keys}
        live |= {key for state in fresh for key in state.keys}
        store = RowStore(self._git, self._config, self._snapshot, self._cache, self._identity)
        if starts_table:
            rows = self._rows(drafts, live)
            if keep_others:
                # Of what was to be embedded again and can't be, the old rows are all there is.
                rows += store.committed_rows((self._committed | self._distrusted) - live)
            vectors = self._with_committed({row.key for row in rows})
            return store.start_table(rows, vectors)
        self._vectors = self._with_committed(self._retaken(fresh, drafts))
        rows = self._rows(drafts, live & self._vectors.keys())
        changes, self._report.checkpointed = store.add(
            rows,
            self._vectors,
            self._options.checkpoint,
            lambda keys: self._rows(drafts, keys),
            fold_repeated=not self._options.mid_operation,
        )
        return changes | (store.foreign_files() if self._options.may_change_recipe else {})

    def _retaken(self, fresh: Sequence[DocumentState], drafts: Sequence[Draft]) -> set[str]:
        # A document as it is in HEAD takes nothing up again: its outline was damaged, not its text.
        other = [draft for draft in drafts if self._head_documents.get(draft.path) != draft.blob]
        drafted = [key for draft in other for key in draft.keys]
        git, config, snapshot = self._git, self._config, self._snapshot
        return retaken_keys(git, config, snapshot, self._cache, self._identity, fresh, drafted)

    def _rows(self, drafts: Sequence[Draft], keys: set[str]) -> list[Row]:
        """Return a row for each key that is live, anchored where it first stands."""
        places, vectors = self._places(drafts, keys), self._with_committed(keys)
        return anchor_rows(places, self._snapshot.documents, keys, self._identity, vectors)

    def _with_committed(self, keys: set[str]) -> dict[str, NDArray[np.float16]]:
        """Return the vectors at hand, and those that are committed of ``keys``."""
        missing = keys - self._vectors.keys()
        identity, index_dir = self._recipe.embedder, self._config.index_dir
        return self._vectors | committed_vectors(
            self._git, self._snapshot, self._cache, identity, index_dir, missing
        )

    def _constant_changes(self) -> Changes:
        folder = self._config.index_dir
        constants = {**CONSTANT_FILES, RECIPE: render_recipe(self._recipe)}
        return {f"{folder}/{name}": content.encode() for name, content in constants.items()}

    # Reporting

    def _fail(self, path: str, message: str, line: int | None) -> None:
        self._report.problems.append(Problem("unreadable-document", path, message, line))

    def _tell(
        self, fresh: Sequence[DocumentState], drafts: Sequence[Draft], missing: Sequence[str]
    ) -> None:
        report = self._report
        is_dry = self._options.dry_run
        done = [key for key in missing if is_dry or key in self._vectors]
        report.n_embedded = len(done)
        of_edited = {k for draft in drafts if draft.path in self._edited for k in draft.keys}
        report.n_edited = len(of_edited.intersection(done))
        report.n_kept = sum(len(state.keys) for state in fresh)
        report.n_chunks = report.n_kept + sum(len(draft.keys) for draft in drafts)
        gone = dict(self._snapshot.orphans)
        for draft in drafts:
            if draft.outline is not None:
                is_edited = draft.path in self._edited
                (report.changed if is_edited else report.rebuilt).append(draft.path)
                continue
            content = render_outline(draft.entries).encode()
            before = next((p for p, oid in gone.items() if oid == _blob_id(content, oid)), None)
            if before is None:
                report.added.append(draft.path)
            else:
                del gone[before]
                report.renamed.append((self._document_of(before), draft.path))
        report.deleted = sorted(map(self._document_of, gone))

    def _count_recontexted(self, drafts: Sequence[Draft]) -> int:
        blobs = self._head_documents if drafts else {}
        n_chunks = 0
        for draft in drafts:
            blob = blobs.get(draft.path)
            if blob is None or draft.outline is None or blob == draft.blob:
                continue
            before = self._git.objects.read_blob(blob).decode("utf-8", "replace")
            listing = self._git.objects.read_blob(draft.outline).decode("utf-8", "replace")
            after = self._git.objects.read_blob(draft.blob).decode("utf-8", "replace")
            n_chunks += count_recontexted(before, listing, after, draft.entries)
        return n_chunks

    @cached_property
    def _head_documents(self) -> dict[str, str]:
        head = self._git.trees.head()
        files = self._git.trees.files(head, self._config.bundle) if head else ()
        return {path: oid for _, oid, path in files}

    def _document_of(self, outline: str) -> str:
        below = document_of_outline(self._config.index_dir, outline)
        return below if self._config.bundle == "." else f"{self._config.bundle}/{below}"


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or stands below it; '.' is the repository."""
    folder = folder.rstrip("/").removeprefix("./")
    return folder in ("", ".", path) or path.startswith(f"{folder}/")


def _blob_id(content: bytes, like: str) -> str:
    """Return git's id of a blob, by the hash function that ``like`` was made with."""
    function = "sha1" if len(like) == 40 else "sha256"
    return hashlib.new(function, b"blob %d\0" % len(content) + content).hexdigest()
