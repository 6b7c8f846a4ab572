"""Brings the index of a tree up to its bundle: which files of the index change, and to what.

Reads the committed state, embeds what no one has embedded before, and returns the changed files;
nothing is written but the local cache. ``publish`` puts them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbindex.cache import Cache, embedded_keys, unpack_keys
from kbindex.chunk import VERSION as CHUNKER_VERSION
from kbindex.chunk import Limits, chunk, refine
from kbindex.committed import (
    cached_keys,
    extracted_table,
    load_committed,
    read_source,
    sources,
    table_files,
)
from kbindex.compose import VERSION as COMPOSITION_VERSION
from kbindex.compose import compose
from kbindex.config import Config
from kbindex.embed import Embedder
from kbindex.errors import DamagedIndexError, EmbeddingError, RefusedError
from kbindex.git import Git
from kbindex.layout import CONSTANT_FILES, RECIPE, TABLE, WAL, outline_path
from kbindex.model import (
    Chunk,
    Document,
    DocumentState,
    Entry,
    Problem,
    Recipe,
    Region,
    Row,
    Snapshot,
)
from kbindex.okf import parse
from kbindex.outline import make_entries, render_outline
from kbindex.plan import compare
from kbindex.recipe import (
    RecipeChange,
    compare_recipes,
    identity_id,
    recipe_id,
    render_recipe,
)
from kbindex.snapshot import read_recipe
from kbindex.tokens import count_tokens, token_starts

Progress = Callable[[int, int], None]

_BATCH_TEXTS = 8
_REFINEMENTS = 12
"""Each round at least halves what is over the limit; a chunk is far smaller than 2**12 limits."""


@dataclass
class Report:
    """What an update did or, dry, would do."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    n_chunks: int = 0
    n_kept: int = 0
    n_embedded: int = 0
    n_calls: int = 0
    checkpointed: bool = False
    recipe_changes: list[RecipeChange] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Documents that could not be indexed; the run ends non-zero when there are any."""

    @property
    def n_reused(self) -> int:
        """Chunks of changed documents whose vector was known."""
        return self.n_chunks - self.n_kept - self.n_embedded


@dataclass(frozen=True)
class Options:
    """How far one update may go."""

    may_change_recipe: bool = True
    max_embedded: int | None = None
    may_checkpoint: bool = False
    force_checkpoint: bool = False
    dry_run: bool = False


@dataclass
class _Draft:
    """A document whose outline is to be written anew."""

    state: DocumentState
    entries: list[Entry]
    chunks: list[Chunk]


Changes = dict[str, bytes | None]
"""Index files by their path from the repository's root; ``None`` removes one."""


def wanted_recipe(config: Config, embedder: Embedder) -> Recipe:
    """Return the recipe that this configuration and version of kbindex make."""
    return Recipe(
        embedder=embedder.identity,
        chunk_tokens=config.chunk_tokens,
        chunk_max_tokens=config.max_tokens,
        chunker=CHUNKER_VERSION,
        composition=COMPOSITION_VERSION,
    )


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
        self._recipe = wanted_recipe(config, embedder)
        self._report = Report(problems=list(snapshot.skipped))
        self._vectors: dict[str, NDArray[np.float16]] = {}

    def run(self) -> tuple[Changes, Report]:
        """Return what to change. Raises RefusedError, EmbeddingError and what git raises."""
        is_rebuild = self._settle_recipe()
        identity = identity_id(self._recipe.embedder)
        # Even before a rebuild: it reuses every vector that it finds in the cache.
        committed = load_committed(
            self._git, self._snapshot, self._cache, identity, self._config.index_dir, is_rebuild
        )
        committed = set() if is_rebuild else committed
        fresh, stale = self._compare(is_rebuild)
        drafts = [self._draft(state, committed) for state in stale]
        missing = self._missing(fresh, drafts, committed)
        self._embed([draft for draft in drafts if draft], missing)
        kept_drafts = [draft for draft in drafts if draft and self._is_complete(draft, committed)]
        self._tell(fresh, kept_drafts)
        # A recipe advances with every document covered by it, or the old index stays whole.
        is_incomplete = bool(self._report.recipe_changes and self._report.problems)
        if self._options.dry_run or is_incomplete:
            return {}, self._report
        changes = self._outline_changes(kept_drafts)
        changes |= self._row_changes(fresh, kept_drafts, committed, is_rebuild)
        changes |= self._constant_changes()
        return changes, self._report

    # Comparing

    def _settle_recipe(self) -> bool:
        """Return whether the index has to be built from nothing."""
        try:
            stored = read_recipe(self._git, self._snapshot, self._config)
        except DamagedIndexError:
            if not self._options.may_change_recipe:
                raise
            return True
        if stored is None:
            return True
        self._report.recipe_changes = compare_recipes(stored, self._recipe)
        if not self._report.recipe_changes:
            return False
        if not self._options.may_change_recipe:
            named = "; ".join(map(str, self._report.recipe_changes))
            raise RefusedError(
                f"the index was made with another recipe ({named})",
                "kbindex update   (rebuilds the index; or set the configuration back)",
            )
        return True

    def _compare(self, is_rebuild: bool) -> tuple[list[DocumentState], list[DocumentState]]:
        """Return the documents whose outline stands and those that need a new one."""
        recipe = recipe_id(self._recipe)
        known = {} if is_rebuild else self._cache.pairs(recipe)
        proven = {pair: tuple(unpack_keys(keys)) for pair, keys in known.items()}
        identity = None if is_rebuild else self._recipe.embedder
        fresh, stale, newly_proven = [], [], {}
        for state in compare(self._snapshot, identity, self._git.read_blobs, proven):
            if state.rule == "unreadable-document":
                self._fail(state.path, state.message, state.line)
            elif not state.is_fresh:
                stale.append(state)
            else:
                # The text is not needed again; holding 10,000 of them would be.
                fresh.append(DocumentState(state.path, state.blob, state.outline, state.keys))
                if state.text is not None and state.outline:
                    newly_proven[state.blob, state.outline] = state.keys
        self._cache.add_pairs(recipe, newly_proven)
        return fresh, stale

    # Chunking

    def _draft(self, state: DocumentState, committed: set[str]) -> _Draft | None:
        """Chunk a document; ``None`` if a passage can't be made to fit the embedder."""
        assert state.text is not None
        document = parse(state.text)
        regions = chunk(document, Limits(self._config.max_tokens), count_tokens, token_starts)
        for _ in range(_REFINEMENTS):
            chunks = compose(document.text, document.frontmatter, regions)
            entries = make_entries(chunks, self._recipe.embedder)
            over = self._over_limit(chunks, entries, committed)
            if not over:
                return _Draft(state, entries, chunks)
            regions = list(self._refined(document, regions, over))
        line = state.text.count("\n", 0, regions[min(over)].char_start) + 1
        self._fail(state.path, "a passage can't be made to fit the embedder's limit", line)
        return None

    def _over_limit(
        self, chunks: Sequence[Chunk], entries: Sequence[Entry], committed: set[str]
    ) -> dict[int, int]:
        """Return the numbers of chunks that the embedder would not take, with their tokens."""
        unknown = {
            entry.key: number
            for number, entry in enumerate(entries)
            if chunks[number].shown is not None and entry.key not in committed
        }
        for key in self._cache.vectors(unknown):
            del unknown[key]
        over = {}
        for number in unknown.values():
            n_tokens = self._embedder.count_tokens(chunks[number].shown or "")
            if n_tokens > self._embedder.max_tokens:
                over[number] = n_tokens
        return over

    def _refined(
        self, document: Document, regions: Sequence[Region], over: dict[int, int]
    ) -> Iterator[Region]:
        for number, region in enumerate(regions):
            if number in over:
                excess = self._embedder.max_tokens / over[number]
                maximum = max(int(region.n_tokens * min(excess * 0.9, 0.7)), 2)
                yield from refine(document, region, maximum, count_tokens, token_starts)
            else:
                yield region

    # Embedding

    def _missing(
        self,
        fresh: Sequence[DocumentState],
        drafts: Sequence[_Draft | None],
        committed: set[str],
    ) -> list[str]:
        """Return the keys to embed, in document order; fill in the vectors that are cached."""
        wanted = dict.fromkeys(key for state in fresh for key in state.keys)
        for draft in drafts:
            if draft:
                wanted |= dict.fromkeys(embedded_keys(draft.entries))
        unknown = [key for key in wanted if key not in committed]
        self._vectors = self._cache.vectors(unknown)
        missing = [key for key in unknown if key not in self._vectors]
        limit = self._options.max_embedded
        if limit is not None and len(missing) > limit:
            raise RefusedError(
                f"{len(missing)} chunks have to be embedded, more than the {limit} "
                "that a commit waits for (hook_max_chunks)",
                "kbindex update   (shows progress, can be interrupted, resumes); then commit again",
            )
        return missing

    def _embed(self, drafts: Sequence[_Draft], missing: Sequence[str]) -> None:
        self._report.n_embedded = len(missing)
        texts = self._texts(drafts, missing)
        if self._options.dry_run or not texts:
            return
        keys = list(texts)
        done = 0
        while keys:
            batch, keys = keys[:_BATCH_TEXTS], keys[_BATCH_TEXTS:]
            done += self._embed_batch(batch, texts)
            self._progress(done, len(texts))
        self._report.n_embedded = sum(key in self._vectors for key in missing)

    def _embed_batch(self, batch: list[str], texts: dict[str, tuple[str, str]]) -> int:
        """Embed a batch into the cache; a text that is refused fails its document alone."""
        n_texts = len(batch)
        while batch:
            try:
                vectors = self._embedder.embed_documents([texts[key][0] for key in batch])
            except EmbeddingError as error:
                key = batch.pop(error.index)
                self._fail(texts[key][1], f"a passage can't be embedded: {error.message}", None)
                continue
            self._report.n_calls += 1
            stored = dict(zip(batch, vectors.astype(np.float16), strict=True))
            self._cache.add_vectors(stored)
            self._vectors |= stored
            break
        return n_texts

    def _texts(
        self, drafts: Sequence[_Draft], missing: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        """Return (shown text, path) for each missing key."""
        wanted = set(missing)
        texts: dict[str, tuple[str, str]] = {}
        for draft in drafts:
            for entry, made in zip(draft.entries, draft.chunks, strict=True):
                if entry.key in wanted and made.shown is not None:
                    texts.setdefault(entry.key, (made.shown, draft.state.path))
        for state in self._proven_again(wanted - texts.keys()):
            for entry, made in zip(state.entries, state.chunks, strict=True):
                texts.setdefault(entry.key, (made.shown or "", state.path))
        return {key: texts[key] for key in missing}

    def _proven_again(self, keys: set[str]) -> Iterator[DocumentState]:
        """Yield, with their chunks, the fresh documents that hold one of ``keys``."""
        if not keys:
            return
        for state in compare(self._snapshot, self._recipe.embedder, self._git.read_blobs):
            if state.is_fresh and not keys.isdisjoint(state.keys):
                yield state

    def _is_complete(self, draft: _Draft, committed: set[str]) -> bool:
        """Whether every chunk of a document has a vector: only then its new rows are stored."""
        keys = embedded_keys(draft.entries)
        return self._options.dry_run or all(k in committed or k in self._vectors for k in keys)

    # Writing

    def _outline_changes(self, drafts: Sequence[_Draft]) -> Changes:
        changes: Changes = dict.fromkeys(self._snapshot.orphans)
        for draft in drafts:
            path = self._config.document_path(draft.state.path)
            changes[outline_path(self._config.index_dir, path)] = render_outline(
                draft.entries
            ).encode()
        return changes

    def _row_changes(
        self,
        fresh: Sequence[DocumentState],
        drafts: Sequence[_Draft],
        committed: set[str],
        is_rebuild: bool,
    ) -> Changes:
        new = {key for draft in drafts for key in embedded_keys(draft.entries)}
        new |= {key for state in fresh for key in state.keys}
        new = (new - committed) & self._vectors.keys()
        rows = list(self._rows(drafts, new))
        starts_table = is_rebuild or not self._snapshot.table
        if starts_table:
            return self._table_changes(rows, replace=is_rebuild) if rows else {}
        changes, rows = self._fold_repeated(rows)
        if self._checkpoint_is_due(len(changes), bool(rows)):
            return self._checkpoint_changes(rows)
        if rows:
            name, content = self._encode(rows)
            changes[f"{self._config.index_dir}/{WAL}/{name}"] = content
        return changes

    def _rows(self, drafts: Sequence[_Draft], keys: set[str]) -> Iterator[Row]:
        """Yield a row for each key, anchored where it first stands."""
        open_keys = set(keys)
        for draft in drafts:
            yield from self._anchor(draft.state, draft.entries, draft.chunks, open_keys)
        for state in self._proven_again(open_keys):
            yield from self._anchor(state, state.entries, state.chunks, open_keys)

    def _anchor(
        self,
        state: DocumentState,
        entries: Sequence[Entry],
        chunks: Sequence[Chunk],
        open_keys: set[str],
    ) -> Iterator[Row]:
        from kbindex.rows import checksum

        for ordinal, (entry, made) in enumerate(zip(entries, chunks, strict=True)):
            if entry.key in open_keys:
                open_keys.remove(entry.key)
                yield Row(
                    key=entry.key,
                    embedder=identity_id(self._recipe.embedder),
                    path=state.path,
                    ordinal=ordinal,
                    blob=state.blob,
                    char_start=entry.region.char_start,
                    char_end=entry.region.char_end,
                    heading=made.heading_path,
                    n_tokens=entry.region.n_tokens,
                    sum=checksum(entry.key, self._vectors[entry.key]),
                )

    def _encode(self, rows: Sequence[Row]) -> tuple[str, bytes]:
        from kbindex.wal import encode_wal

        return encode_wal(rows, self._stack(rows))

    def _stack(self, rows: Sequence[Row]) -> NDArray[np.float16]:
        return np.stack([self._vectors[row.key] for row in rows])

    def _fold_repeated(self, rows: list[Row]) -> tuple[Changes, list[Row]]:
        """Fold the WAL files of a commit that failed or is repeated into the new one."""
        if not rows or self._git.is_mid_operation():
            return {}, rows
        head = self._git.head_tree()
        folder = f"{self._config.index_dir}/{WAL}"
        in_head = {oid for _, oid, _ in self._git.list_tree(head, folder)} if head else set()
        changes: Changes = {}
        known = {row.key for row in rows}
        for source in sources(self._snapshot):
            if source.wal_blob is None or source.wal_blob in in_head:
                continue
            content = read_source(self._git, self._snapshot, source, self._config.index_dir)
            for number, row in enumerate(content.rows):
                if row.key not in known:
                    known.add(row.key)
                    rows.append(row)
                    self._vectors[row.key] = content.vectors[number]
            changes[f"{self._config.index_dir}/{source.path}"] = None
        return changes, rows

    def _checkpoint_is_due(self, n_folded: int, adds_file: bool) -> bool:
        if self._options.force_checkpoint:
            return True
        every = self._config.checkpoint_every
        n_files = len(self._snapshot.wal) - n_folded + adds_file
        return self._options.may_checkpoint and every > 0 and adds_file and n_files >= every

    def _checkpoint_changes(self, rows: Sequence[Row]) -> Changes:
        """Append the WAL and the new rows to the table as one version, and empty the WAL."""
        gathered = {row.key: row for row in rows}
        folder = self._config.index_dir
        changes: Changes = {}
        in_table: set[str] = set()
        for source in sources(self._snapshot):
            if source.wal_blob is None:
                in_table = set(cached_keys(self._cache, source, identity_id(self._recipe.embedder)))
                continue
            content = read_source(self._git, self._snapshot, source, folder)
            changes[f"{folder}/{source.path}"] = None
            bad = set(content.bad)
            for number, row in enumerate(content.rows):
                is_ours = row.embedder == identity_id(self._recipe.embedder)
                if is_ours and number not in bad and row.key not in gathered:
                    gathered[row.key] = row
                    self._vectors[row.key] = content.vectors[number]
        moved = [row for key, row in gathered.items() if key not in in_table]
        anchored = {row.key: row for row in self._rows([], {row.key for row in moved})}
        moved = [anchored.get(row.key, row) for row in moved]
        self._report.checkpointed = bool(moved or changes)
        return changes | self._table_changes(moved, replace=False) if moved else changes

    def _table_changes(self, rows: Sequence[Row], *, replace: bool) -> Changes:
        from kbindex.table import append_rows

        folder = f"{self._config.index_dir}/{TABLE}"
        old = {} if replace else dict(self._snapshot.table)
        source = Snapshot("", {}, {}, {}, {}, old, None)
        with extracted_table(self._git, source) as scratch:
            try:
                append_rows(scratch, rows, self._stack(rows))
            except ValueError as error:
                raise DamagedIndexError(folder, str(error)) from None
            files = table_files(scratch)
        changes: Changes = {f"{folder}/{name}": content for name, content in files.items()}
        gone = self._snapshot.table.keys() - files.keys()
        changes |= dict.fromkeys(f"{folder}/{name}" for name in gone)
        if replace:
            wal = f"{self._config.index_dir}/{WAL}"
            changes |= dict.fromkeys(f"{wal}/{name}" for name in self._snapshot.wal)
        return changes

    def _constant_changes(self) -> Changes:
        folder = self._config.index_dir
        constants = {**CONSTANT_FILES, RECIPE: render_recipe(self._recipe)}
        return {f"{folder}/{name}": content.encode() for name, content in constants.items()}

    # Reporting

    def _fail(self, path: str, message: str, line: int | None) -> None:
        self._report.problems.append(Problem("unreadable-document", path, message, line))

    def _tell(self, fresh: Sequence[DocumentState], drafts: Sequence[_Draft]) -> None:
        report = self._report
        report.n_kept = sum(len(state.keys) for state in fresh)
        report.n_chunks = report.n_kept + sum(len(embedded_keys(d.entries)) for d in drafts)
        gone = {oid: path for path, oid in self._snapshot.orphans.items()}
        for draft in drafts:
            path = draft.state.path
            if draft.state.outline is not None:
                report.changed.append(path)
                continue
            content = render_outline(draft.entries).encode()
            before = gone.pop(_blob_id(content), None)
            if before is None:
                report.added.append(path)
            else:
                report.renamed.append((self._document_of(before), path))
        report.deleted = sorted(map(self._document_of, gone.values()))

    def _document_of(self, outline: str) -> str:
        below = outline.removeprefix(f"{self._config.index_dir}/outline/").removesuffix(".tsv")
        return below if self._config.bundle == "." else f"{self._config.bundle}/{below}"


def _blob_id(content: bytes) -> str:
    import hashlib

    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324  git's own
