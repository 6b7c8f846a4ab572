"""Embeds a sample of an index again and compares: what ``check --audit`` adds to the proofs.

A checksum proves that a vector is the one that was written. That it is what the embedder computes
from its text is proven here, for as many chunks as are asked for. Nothing is written.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import DamagedIndexError
from kbindex.core.model import Audit, EmbedderIdentity, Problem, Rule
from kbindex.core.text import shell_word
from kbindex.embed import Embedder
from kbindex.embed.batch import Progress, Text, embed_texts
from kbindex.outline.states import Proven
from kbindex.storage.tree import IndexTree

TOLERANCE = 0.999
"""The least cosine of equal vectors. Rounding to float16 takes 3e-8 off; the nearest different
chunks of our own bundle are at 0.973 (bundle/reference/check-json.md)."""

_CJK = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that may be audited."""

    key: str
    path: str
    line: int
    n_tokens: int
    shown: str


Measure = Callable[[Candidate], int]

# What embedders and their servers were seen to change from one release to the next.
_KINDS: tuple[Measure, ...] = (
    lambda chunk: chunk.n_tokens,
    lambda chunk: sum(map(str.isupper, chunk.shown)),
    lambda chunk: sum(bool(unicodedata.decomposition(c)) for c in chunk.shown if c.isalpha()),
    lambda chunk: len(_CJK.findall(chunk.shown)),
)


def audit(tree: IndexTree, embedder: Embedder, n_chunks: int, progress: Progress) -> Audit:
    """Compare a sample of the stored vectors with what ``embedder`` computes.

    ``embedder`` has the identity that the recipe names. Raises NoEmbedderError.
    """
    candidates = _candidates(tree, embedder.identity)
    chosen = choose_sample(candidates, n_chunks, tree.snapshot.tree)
    sample = {chunk.key: chunk for chunk in chosen}
    stored = _stored_vectors(tree, identity_id(embedder.identity), sample.keys())
    texts = {key: Text(sample[key].shown, sample[key].path) for key in sample if key in stored}
    made = embed_texts(embedder, texts, lambda _: None, progress)
    cosines = {
        key: min(_cosine(vector, made.vectors[key]) for vector in stored[key])
        for key in made.vectors
    }
    problems = []
    for key in texts:
        if key not in cosines:
            reason = made.failures.get(sample[key].path, "the embedder finds it too long now")
            problems.append(_mismatch(sample[key], reason))
        elif cosines[key] < TOLERANCE:
            message = (
                f"the stored vector is not what the embedder computes (cosine {cosines[key]:.4f}, "
                f"at least {TOLERANCE} is expected)"
            )
            problems.append(_mismatch(sample[key], message))
    return Audit(len(texts), min(cosines.values(), default=None), tuple(problems))


def choose_sample(candidates: Iterable[Candidate], n_chunks: int, seed: str) -> list[Candidate]:
    """Return the chunks to audit: ``n_chunks`` drawn by ``seed``, and the extremes.

    Those are the longest chunk and the ones with the most capitals, accents and CJK characters.
    The same candidates and seed give the same sample, in whatever order they come.
    """
    drawn = _Highest(n_chunks)
    extremes = [_Highest(1) for _ in _KINDS]
    seen: set[str] = set()
    for chunk in candidates:
        if chunk.key in seen:
            continue
        seen.add(chunk.key)
        order = int(hashlib.sha256(f"{seed}\0{chunk.key}".encode()).hexdigest()[:16], 16)
        drawn.offer((order,), chunk)
        for extreme, measure in zip(extremes, _KINDS, strict=True):
            if n := measure(chunk):
                extreme.offer((n, order), chunk)
    chosen = {chunk.key: chunk for best in (drawn, *extremes) for chunk in best.chunks}
    return sorted(chosen.values(), key=lambda chunk: (chunk.path, chunk.line, chunk.key))


class _Highest:
    """The highest-ranked of the chunks that were offered."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._heap: list[tuple[tuple[int, ...], str, Candidate]] = []

    def offer(self, rank: tuple[int, ...], chunk: Candidate) -> None:
        heapq.heappush(self._heap, (rank, chunk.key, chunk))
        if len(self._heap) > self._capacity:
            heapq.heappop(self._heap)

    @property
    def chunks(self) -> list[Candidate]:
        return [chunk for *_, chunk in self._heap]


def _candidates(tree: IndexTree, identity: EmbedderIdentity) -> Iterator[Candidate]:
    """Yield the chunks of documents whose outline is proven; the others have no right vector."""
    for state in tree.compare(identity):
        if isinstance(state, Proven):
            for entry in state.entries:
                if entry.shown is not None:
                    line = state.text.count("\n", 0, entry.region.char_start) + 1
                    n_tokens = entry.region.n_tokens
                    yield Candidate(entry.key, state.path, line, n_tokens, entry.shown)


def _stored_vectors(
    tree: IndexTree, embedder: str, keys: Set[str]
) -> dict[str, list[NDArray[np.float16]]]:
    """Return every sound vector of the sample: one that occurs twice is compared twice."""
    found: dict[str, list[NDArray[np.float16]]] = {}
    for source in tree.sources:
        try:
            content = tree.read(source)
        except DamagedIndexError:
            continue  # named by the verdict
        for row, vector in content.sound(embedder):
            if row.key in keys:
                found.setdefault(row.key, []).append(vector)
    return found


def _cosine(one: NDArray[np.float16], other: NDArray[np.float16]) -> float:
    """Return the cosine of two unit vectors, 0 where they can't be compared."""
    if one.shape != other.shape:
        return 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return cosine if np.isfinite(cosine) else 0.0


def _mismatch(chunk: Candidate, message: str) -> Problem:
    remedy = f"kbindex update --re-embed {shell_word(chunk.path)}"
    return Problem(
        Rule.AUDIT_MISMATCH, chunk.path, message, chunk.line, remedy, mended_by_update=True
    )
