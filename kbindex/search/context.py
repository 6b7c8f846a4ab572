"""Hits → excerpts that fit a token budget, each with its citation; nothing else is cited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbindex.core.model import SEPARATOR, Hit

CountTokens = Callable[[str], int]

_SMALLEST_PART = 32
"""Tokens; less of a passage than this is left out rather than cut."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A passage in the context; ``partial`` when its end was cut off."""

    hit: Hit
    char_end: int
    """The end of the excerpt in the hit's blob, in code points."""
    text: str
    n_tokens: int
    """Citation and separators included."""
    partial: bool


@dataclass(frozen=True, slots=True)
class Context:
    """The excerpts that fit, in the order of the hits, and the hits that don't."""

    excerpts: tuple[Excerpt, ...]
    omitted: tuple[Hit, ...]
    n_tokens: int


def fit_budget(hits: Sequence[Hit], budget: int, count: CountTokens) -> Context:
    """Take passages in rank order while they fit; cut the first that doesn't, if much of it does.

    Every hit needs its text. ``count`` counts tokens; the sum over excerpts stays within
    ``budget``.
    """
    excerpts: list[Excerpt] = []
    omitted = []
    left = budget
    was_cut = False
    for hit in hits:
        excerpt = None if was_cut else _fitted(hit, left, count)
        if excerpt is None:
            omitted.append(hit)
            continue
        excerpts.append(excerpt)
        left -= excerpt.n_tokens
        was_cut = excerpt.partial
    return Context(tuple(excerpts), tuple(omitted), budget - left)


def render_excerpt(hit: Hit, text: str) -> str:
    """Return an excerpt with its citation, as a model is to read it."""
    heading = hit.heading[1:] if hit.heading[:1] == (hit.title,) else hit.heading
    cited = SEPARATOR.join(part for part in (hit.title, *heading) if part)
    return f"[{hit.path}:{hit.first_line}] {cited}\n{text.strip()}\n\n"


def _fitted(hit: Hit, left: int, count: CountTokens) -> Excerpt | None:
    text = hit.text or ""
    n_tokens = count(render_excerpt(hit, text))
    if n_tokens <= left:
        return Excerpt(hit, hit.char_end, text, n_tokens, partial=False)
    if left < count(render_excerpt(hit, "")) + _SMALLEST_PART:
        return None
    low, high = 0, len(text)
    while high - low > 1:  # the longest beginning that fits; tokens grow with length
        middle = (low + high) // 2
        fits = count(render_excerpt(hit, text[:middle])) <= left
        low, high = (middle, high) if fits else (low, middle)
    cut = max(text.rfind(" ", 0, low), text.rfind("\n", 0, low)) + 1 or low
    part = text[:cut]
    end = hit.char_start + len(part)
    return Excerpt(hit, end, part, count(render_excerpt(hit, part)), partial=True)
