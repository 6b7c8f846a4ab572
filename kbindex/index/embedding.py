"""The middle of an update: drafts new outlines and embeds the chunks that have no vector.

Vectors enter the cache a batch at a time, so that an interrupted update is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbindex.core.errors import TooMuchToEmbedError, UsageError
from kbindex.core.model import Problem, Rule
from kbindex.embed import Embedder
from kbindex.embed.batch import Progress, Text, count_calls, embed_texts
from kbindex.index.assess import Assessment
from kbindex.index.options import Options
from kbindex.index.outline_builder import DoesNotFit, Draft, draft_document
from kbindex.local.cache import Cache
from kbindex.outline.states import Known, Proven, Stale
from kbindex.repo.snapshot import commit_trees
from kbindex.storage.reader import CommittedRows
from kbindex.storage.tree import index_at
from kbindex.storage.writer import Outlined


@dataclass(frozen=True)
class Embedded:
    """The documents of an index with their vectors, as far as they could be embedded."""

    fresh: tuple[Known, ...]
    """The documents whose outline stays."""
    drafts: tuple[Draft, ...]
    """The documents with a new outline, all of whose chunks have a vector (dry: or would)."""
    vectors: dict[str, NDArray[np.float16]]
    """The vectors of keys without a row that stays."""
    missing: tuple[str, ...]
    """The keys that had no vector."""
    kept_keys: frozenset[str]
    """The committed keys whose rows can stay."""
    distrusted: frozenset[str]
    """The keys that were to be embedded again and could not be."""
    starts_table: bool
    n_calls: int
    problems: tuple[Problem, ...]
    """Documents that could not be embedded."""

    @property
    def live(self) -> set[str]:
        """The keys of all documents."""
        documents: list[Known | Draft] = [*self.fresh, *self.drafts]
        return {key for document in documents for key in document.keys}


def embed_missing(
    assessment: Assessment,
    embedder: Embedder,
    cache: Cache,
    options: Options,
    progress: Progress,
) -> Embedded:
    """Return all documents with the vectors that they lack.

    Raises UsageError, TooMuchToEmbedError and NoEmbedderError.
    """
    work = _Work(assessment, embedder, cache, options)
    work.draft(assessment.outdated)
    distrusted = work.distrust(options.re_embed) if options.re_embed else frozenset()
    work.embed(progress)
    known = work.kept_keys | work.vectors.keys()
    return Embedded(
        fresh=tuple(work.fresh),
        # Only where every chunk has a vector, anything new of a document is stored.
        drafts=tuple(d for d in work.drafts if options.dry_run or known.issuperset(d.keys)),
        vectors=work.vectors,
        missing=tuple(work.missing),
        kept_keys=frozenset(work.kept_keys),
        distrusted=frozenset(work.distrusted),
        starts_table=assessment.starts_table or bool(assessment.kept_keys & distrusted),
        n_calls=work.n_calls,
        problems=tuple(work.problems),
    )


def outlined_with(
    keys: set[str], drafts: Sequence[Draft], assessment: Assessment
) -> Iterator[Outlined]:
    """Yield the documents in which ``keys`` occur, all drafts first."""
    yield from drafts
    elsewhere = keys - {key for draft in drafts for key in draft.keys}
    if elsewhere:
        fresh = assessment.fresh
        paths = {state.path for state in fresh if not elsewhere.isdisjoint(state.keys)}
        for state in assessment.read(paths):
            if isinstance(state, Proven):
                yield state


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it; '.' is the repository."""
    folder = folder.rstrip("/").removeprefix("./")
    return folder in ("", ".", path) or path.startswith(f"{folder}/")


@dataclass
class _Work:
    """The state between the rounds: a text that is refused gives its document another draft."""

    assessment: Assessment
    embedder: Embedder
    cache: Cache
    options: Options
    fresh: list[Known] = field(init=False)
    drafts: list[Draft] = field(default_factory=list)
    vectors: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    kept_keys: set[str] = field(init=False)
    distrusted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """The keys of texts that the embedder found too long."""
    n_calls: int = 0
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fresh = list(self.assessment.fresh)
        self.kept_keys = set(self.assessment.kept_keys)

    @property
    def _documents(self) -> list[Known | Draft]:
        return [*self.fresh, *self.drafts]

    def draft(self, documents: Iterable[Stale | Proven]) -> None:
        """Give documents new outlines."""
        for state in documents:
            try:
                draft = draft_document(
                    state, self.assessment.limits, self.embedder, self._which_known, self.refused
                )
                self.drafts.append(draft)
            except DoesNotFit as error:
                self._fail(state.path, str(error), error.line)

    def distrust(self, below: str) -> frozenset[str]:
        """Return the keys of the documents at or below a path; their vectors count as unknown."""
        chosen = [document for document in self._documents if is_below(document.path, below)]
        if not chosen:
            raise UsageError(
                f"--re-embed '{below}': no document of the bundle stands there",
                "name a document or a folder by its path from the repository's root",
            )
        self.distrusted = {key for document in chosen for key in document.keys}
        self.kept_keys -= self.distrusted
        return frozenset(self.distrusted)

    def embed(self, progress: Progress) -> None:
        """Embed what has no vector; cut what the embedder finds too long further, and go on."""
        missing = self._find_missing()
        while too_long := self._embed(missing, progress):
            self.refused |= too_long
            again = {d.path for d in self._documents if not too_long.isdisjoint(d.keys)}
            self.fresh = [state for state in self.fresh if state.path not in again]
            self.drafts = [draft for draft in self.drafts if draft.path not in again]
            self.draft(self.assessment.read(again))
            missing = self._find_missing()

    def _which_known(self, keys: Iterable[str]) -> set[str]:
        wanted = set(keys) - self.refused  # an embedder may refuse what it once took
        known = wanted & self.kept_keys
        return known | self.cache.vectors(wanted - known).keys()

    def _find_missing(self) -> list[str]:
        """Return the keys to embed, in document order; take from the cache what is there."""
        wanted = dict.fromkeys(key for document in self._documents for key in document.keys)
        unknown = [key for key in wanted if key not in self.kept_keys]
        trusted = [key for key in unknown if key not in self.distrusted]
        self.vectors = self.cache.vectors(trusted)
        if len(self.vectors) < len(trusted) and self._read_elsewhere():
            self.vectors = self.cache.vectors(trusted)
        missing = [key for key in unknown if key not in self.vectors]
        limit = self.options.max_embedded
        if limit is not None and len(missing) > limit:
            raise TooMuchToEmbedError(len(missing), limit)
        self.missing |= dict.fromkeys(missing)
        return missing

    def _read_elsewhere(self) -> bool:
        """Cache the vectors of HEAD and of what a merge, pick or revert brings in.

        A conflict in the table that was added blindly leaves rows of one side out of it.
        """
        git, repository = self.assessment.tree.git, self.assessment.tree.repository
        trees = commit_trees(git, [*git.state.operation_commits(), "HEAD"])
        for tree in trees:
            CommittedRows(index_at(repository, tree), self.embedder.identity, self.cache)
        return bool(trees)

    def _embed(self, missing: Sequence[str], progress: Progress) -> set[str]:
        """Embed what is missing; return the keys of the texts that are too long."""
        if self.options.dry_run:
            self.n_calls = count_calls(len(missing))
        if self.options.dry_run or not missing:
            return set()
        texts = self._texts(set(missing))
        ordered = {key: texts[key] for key in missing}
        result = embed_texts(self.embedder, ordered, self.cache.replace_vectors, progress)
        self.vectors |= result.vectors
        self.distrusted -= result.vectors.keys()
        self.n_calls += result.n_calls
        for path, reason in result.failures.items():
            self._fail(path, reason, None)
        return result.too_long

    def _texts(self, keys: set[str]) -> dict[str, Text]:
        texts: dict[str, Text] = {}
        for document in outlined_with(keys, self.drafts, self.assessment):
            for entry in document.entries:
                if entry.key in keys and entry.shown is not None:
                    texts.setdefault(entry.key, Text(entry.shown, document.path))
        return texts

    def _fail(self, path: str, message: str, line: int | None) -> None:
        self.problems.append(Problem(Rule.UNREADABLE_DOCUMENT, path, message, line))
