"""Document → a new outline whose every passage the embedder accepts.

The boundaries come from ``chunk`` and don't depend on the embedder. Where its own tokenizer counts
more than it takes, or it refused a text that was sent, a passage is cut further, never cut off,
and the outline shows the finer lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from kbindex.core.model import NOT_EMBEDDED, Document, Entry, Region
from kbindex.document.chunk import Limits, chunk, refine
from kbindex.document.compose import compose
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.embed import Embedder
from kbindex.outline.file import make_entries
from kbindex.outline.states import Proven, Stale

_ROUNDS = 12
"""Each takes at least 30% off what is over the limit; 0.7¹² is a seventieth."""

WhichKnown = Callable[[Iterable[str]], set[str]]


class DoesNotFit(Exception):
    """A passage is over the embedder's limit however small it is cut; ``line`` is where."""

    def __init__(self, line: int) -> None:
        super().__init__("a passage can't be made to fit the embedder's limit")
        self.line = line


@dataclass(frozen=True)
class Draft:
    """A document with the outline that it is to have."""

    path: str
    blob: str
    outline: str | None
    """The blob id of the outline it has now."""
    entries: Sequence[Entry]

    @property
    def keys(self) -> list[str]:
        """The keys of its embedded regions, in order."""
        return [entry.key for entry in self.entries if entry.key != NOT_EMBEDDED]


def draft_document(
    state: Stale | Proven,
    limits: Limits,
    embedder: Embedder,
    which_known: WhichKnown,
    refused: Set[str] = frozenset(),
) -> Draft:
    """Return the new outline of a document. Raises DoesNotFit.

    ``which_known`` names the keys among those given that have a vector already: they fit. Those
    in ``refused`` don't, whatever is counted.
    """
    document = parse(state.text)
    regions = chunk(document, limits, count_tokens, token_starts)
    over: dict[int, int] = {}
    for _ in range(_ROUNDS):
        chunks = compose(document.text, document.frontmatter, regions)
        entries = make_entries(chunks, embedder.identity)
        over = _over_limit(entries, embedder, which_known, refused)
        if not over:
            return Draft(state.path, state.blob, state.outline, entries)
        regions = list(_refined(document, regions, over, embedder.max_tokens))
    first = regions[min(over)].char_start if min(over) < len(regions) else 0
    raise DoesNotFit(state.text.count("\n", 0, first) + 1)


def _over_limit(
    entries: Sequence[Entry],
    embedder: Embedder,
    which_known: WhichKnown,
    refused: Set[str],
) -> dict[int, int]:
    """Return the positions of entries that the embedder would not take, with their tokens.

    The tokens of a refused text are unknown: they count as one more than the limit.
    """
    positions: dict[str, list[int]] = {}
    for position, entry in enumerate(entries):
        positions.setdefault(entry.key, []).append(position)
    positions.pop(NOT_EMBEDDED, None)
    over: dict[int, int] = {}
    for key in positions.keys() - which_known(positions):
        n_tokens = embedder.count_tokens(entries[positions[key][0]].shown or "")
        if n_tokens > embedder.max_tokens or key in refused:
            over |= dict.fromkeys(positions[key], max(n_tokens, embedder.max_tokens + 1))
    return over


def _refined(
    document: Document, regions: Sequence[Region], over: dict[int, int], limit: int
) -> Iterator[Region]:
    for position, region in enumerate(regions):
        if position in over:
            share = min(limit / over[position] * 0.9, 0.7)
            maximum = max(int(region.n_tokens * share), 2)
            yield from refine(document, region, maximum, count_tokens, token_starts)
        else:
            yield region
