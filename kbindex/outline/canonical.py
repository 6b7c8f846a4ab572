"""Compares an outline's boundaries with the chunker's, for ``check --strict`` and updates.

A valid outline can have other boundaries: a merge may bring one that was made with other limits.
"""

from __future__ import annotations

from kbindex.core.model import Region
from kbindex.document.chunk import Limits, chunk
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts
from kbindex.outline.states import Proven


def find_deviation(state: Proven, limits: Limits) -> tuple[int, str] | None:
    """Return line and message of the first deviation from what chunking again gives.

    Every canonical boundary must stand in the outline, finer ones may.
    """
    canonical = chunk(parse(state.text), limits, count_tokens, token_starts)
    regions = [entry.region for entry in state.entries]
    present = {_opening(region) for region in regions}
    missing = [region for region in canonical if _opening(region) not in present]
    canonical_starts = {region.char_start for region in canonical}
    extra = [r for r in regions if r.char_start not in canonical_starts and r.level]
    counts = {(region.char_start, region.char_end): region.n_tokens for region in canonical}
    miscounted = [
        region
        for region in regions
        if region.char_end > region.char_start
        and region.n_tokens != _expected_count(state.text, region, counts)
    ]
    for wrong, message in (
        (missing, "a chunk does not begin where it should"),
        (extra, "the outline names a heading that is none"),
        (miscounted, "the outline's token count is wrong"),
    ):
        if wrong:
            return state.text.count("\n", 0, wrong[0].char_start) + 1, message
    return None


def _expected_count(text: str, region: Region, canonical: dict[tuple[int, int], int]) -> int:
    span = (region.char_start, region.char_end)
    return canonical[span] if span in canonical else count_tokens(text[slice(*span)])


def _opening(region: Region) -> tuple[int, str, str]:
    return region.char_start, region.opens, region.heading
