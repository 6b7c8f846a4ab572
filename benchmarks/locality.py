"""How many chunks one edit changes: our boundaries against greedy packing, in the same run.

    python benchmarks/locality.py [--edits 200] [--seed 1]

Each edit inserts, deletes or replaces one sentence (table row, line of code) at a random place of a
document. A chunk counts as changed when the embedder would be shown a text that it has not seen.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from kbindex.core.model import Document, Region
from kbindex.document.chunk import Limits, chunk
from kbindex.document.compose import compose
from kbindex.document.markdown import parse
from kbindex.document.tokens import count_tokens, token_starts

ROOT = Path(__file__).parent.parent
MAX_TOKENS = 384
TARGET_TOKENS = 256

Chunker = Callable[[Document], list[Region]]


def content_defined(document: Document) -> list[Region]:
    return chunk(document, Limits(MAX_TOKENS), count_tokens, token_starts)


def greedy(document: Document) -> list[Region]:
    """Fill chunks with whole sentences or lines, never across a heading: the usual way."""
    text = document.text
    headings = {heading.char_start: heading for heading in document.headings}
    units = sorted({0, len(text), document.frontmatter.end, *headings, *_unit_starts(text)})
    regions: list[Region] = []
    begin, filled = 0, 0
    for start, end in pairwise(units):
        size = count_tokens(text[start:end])
        if start > begin and (start in headings or filled + size > TARGET_TOKENS):
            regions.append(_region(begin, start, headings))
            begin, filled = start, 0
        filled += size
    return [*regions, _region(begin, len(text), headings)]


def _region(begin: int, end: int, headings: dict) -> Region:
    opening = headings.get(begin)
    if opening is None:
        return Region(begin, end, 0, "0")
    return Region(begin, end, 0, str(opening.level), opening.text)


def _unit_starts(text: str) -> list[int]:
    return [match.end() for match in re.finditer(r"(?<=[.!?])\s+|\n+", text)]


def shown_texts(text: str, chunker: Chunker) -> list[str]:
    document = parse(text)
    chunks = compose(text, document.frontmatter, chunker(document))
    return [made.shown for made in chunks if made.shown is not None]


def edited(text: str, units: Sequence[tuple[int, int]], unit: str, rng: random.Random) -> str:
    start, end = rng.choice(units)
    kind = rng.choice(("insert", "delete", "replace"))
    new = unit.format(number=rng.randrange(10**6))
    return (
        text[:start]
        + ("" if kind == "delete" else new)
        + text[start if kind == "insert" else end :]
    )


def sentences(text: str) -> list[tuple[int, int]]:
    body = parse(text).frontmatter.end
    ends = [match.end() for match in re.finditer(r"(?<=[.!?])[ \n]+(?=[A-Z¿¡])", text)]
    return [(a, b) for a, b in pairwise(ends) if a >= body and "\n#" not in text[a:b]]


def rows(text: str) -> list[tuple[int, int]]:
    """Body rows: an edited header is shown with every piece of its table."""
    lines = [match.span() for match in re.finditer(r"[^\n]*\n", text)]
    is_row = [text[start] == "|" for start, _ in lines]
    return [lines[i] for i in range(2, len(lines)) if is_row[i] and is_row[i - 1] and is_row[i - 2]]


def code_lines(text: str) -> list[tuple[int, int]]:
    lines = [match.span() for match in re.finditer(r"[^\n]*\n", text)]
    return [span for span in lines if not text[slice(*span)].startswith(("#", "```", "\n"))]


def bundle_texts() -> list[str]:
    files = sorted((ROOT / "bundle").rglob("*.md"))
    return [file.read_text(encoding="utf-8") for file in files]


def transcript() -> str:
    return (ROOT / "tests/material/bundle/sources/design-review-transcript.md").read_text(
        encoding="utf-8"
    )


def sectioned() -> str:
    parts, size = [], 0
    for text in bundle_texts():
        body = text[parse(text).frontmatter.end :]
        if size < 100_000 and len(body) < 20_000:
            parts.append(f"# Part {len(parts)}\n\n{body}")
            size += len(body)
    return "\n\n".join(parts)


def table_heavy() -> str:
    words = re.findall(r"[a-z]{4,}", transcript())
    rng = random.Random(7)
    parts = ["# Parts list\n"]
    for section in range(12):
        parts.append(f"\n## Shelf {section}\n\n| part | kept for | room |\n|---|---|---|\n")
        for _ in range(rng.randrange(10, 80)):
            cells = (" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(3))
            parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


def code_heavy() -> str:
    files = sorted((ROOT / "kbindex").glob("*.py"))
    parts = [
        f"## `{f.name}`\n\nIts source:\n\n```python\n{f.read_text('utf-8')}```\n" for f in files
    ]
    return "# Sources\n\n" + "\n".join(parts)


DOCUMENTS = {
    "(a) transcript, no headings": (
        transcript,
        sentences,
        "Nobody had counted the {number} lamps. ",
    ),
    "(b) with sections": (sectioned, sentences, "Nobody had counted the {number} lamps. "),
    "(c) table-heavy": (table_heavy, rows, "| lamp {number} | the tower | cellar |\n"),
    "(d) code-heavy": (code_heavy, code_lines, "    lamp = {number}\n"),
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--edits", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    print(
        f"{'document':30} {'characters':>10} {'chunks':>6} {'median':>6} {'<60':>5}"
        f" {'changed, mean':>13} {'max':>4} {'greedy, mean':>12} {'max':>4} {'ratio':>6}"
    )
    for name, (make, find_units, unit) in DOCUMENTS.items():
        text = make()
        units = find_units(text)
        sizes = [region.n_tokens for region in content_defined(parse(text))]
        results = []
        for chunker in (content_defined, greedy):
            rng = random.Random(options.seed)
            before = set(shown_texts(text, chunker))
            results.append(
                [
                    sum(shown not in before for shown in shown_texts(new, chunker))
                    for new in (edited(text, units, unit, rng) for _ in range(options.edits))
                ]
            )
        ours, theirs = map(np.array, results)
        print(
            f"{name:30} {len(text):10} {len(sizes):6} {np.median(sizes):6.0f}"
            f" {np.mean(np.array(sizes) < 60):5.0%} {ours.mean():13.2f} {ours.max():4}"
            f" {theirs.mean():12.2f} {theirs.max():4} {ours.mean() / theirs.mean():6.3f}"
        )


if __name__ == "__main__":
    main()
