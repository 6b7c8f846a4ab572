"""What an index should be, worked out anew from documents and embedder: no cache, no plan.

Memory here is by content alone and only for speed: the outline of a document version, the rows of
a WAL file or table.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kbindex.core.model import Rule
from kbindex.document.chunk import Limits
from kbindex.embed.hashing import HashEmbedder
from kbindex.index.outline_builder import draft_document
from kbindex.outline.file import render_outline
from kbindex.outline.states import Stale
from kbindex.storage.wal import decode_wal
from testing.repositories import Repo

EMBEDDER = HashEmbedder()
INDEX, BUNDLE = ".kbindex", "bundle"


@dataclass
class Truth:
    """What is wrong with the index of a tree, by kind; nothing if it is fresh."""

    stale: list[str] = field(default_factory=list)
    """Documents whose outline is not that of a rebuild, and outlines without a document."""
    missing: set[str] = field(default_factory=set)
    """Keys of a rebuild that have no right vector."""
    damaged: list[str] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        return not (self.stale or self.missing or self.damaged)


class Judge:
    """Judges trees of repositories that share their settings."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._drafts: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._vectors: dict[str, bytes] = {}
        self._rows: dict[str, dict[str, bytes] | None] = {}
        self._judged: dict[str, Truth] = {}

    def judge(self, repo: Repo, tree: str) -> Truth:
        """Return the truth about a tree."""
        if tree not in self._judged:
            self._judged[tree] = self._judge(repo, _files(repo, tree))
        return self._judged[tree]

    def _judge(self, repo: Repo, files: dict[str, str]) -> Truth:
        truth = Truth()
        shown: dict[str, str] = {}
        outlines = {path for path in files if path.startswith(f"{INDEX}/outline/")}
        for path in sorted(p for p in files if p.startswith(f"{BUNDLE}/")):
            outline = f"{INDEX}/outline/{path.removeprefix(f'{BUNDLE}/')}.tsv"
            wanted, texts = self._draft(repo, path, files[path])
            shown |= texts
            outlines.discard(outline)
            if outline not in files or _blob(repo, files[outline]) != wanted:
                truth.stale.append(path)
        truth.stale += sorted(outlines)
        rows: dict[str, list[bytes]] = {}
        for name, blobs in _sources(files):
            found = self._read(repo, name, blobs)
            if found is None:
                truth.damaged.append(name)
            for key, vector in (found or {}).items():
                rows.setdefault(key, []).append(vector)
        for key, text in shown.items():
            if self._vector(text) not in rows.get(key, []):
                truth.missing.add(key)
        return truth

    def has_embedded(self, repo: Repo, tree: str, *sides: str) -> bool:
        """Whether all that the documents of ``tree`` need has a row in one of the ``sides``."""
        files = _files(repo, tree)
        documents = {path: oid for path, oid in files.items() if path.startswith(f"{BUNDLE}/")}
        keys = {key for path, oid in documents.items() for key in self._draft(repo, path, oid)[1]}
        for side in sides:
            for name, blobs in _sources(_files(repo, side)):
                keys -= (self._read(repo, name, blobs) or {}).keys()
        return not keys

    def _draft(self, repo: Repo, path: str, oid: str) -> tuple[bytes, dict[str, str]]:
        if oid not in self._drafts:
            text = _blob(repo, oid).decode()
            state = Stale(path, oid, None, text, Rule.MISSING_OUTLINE, "")
            draft = draft_document(state, self._limits, EMBEDDER, lambda _: set())
            shown = {entry.key: entry.shown for entry in draft.entries if entry.shown is not None}
            self._drafts[oid] = render_outline(draft.entries).encode(), shown
        return self._drafts[oid]

    def _vector(self, text: str) -> bytes:
        if text not in self._vectors:
            self._vectors[text] = EMBEDDER.embed_query(text).astype(np.float16).tobytes()
        return self._vectors[text]

    def _read(self, repo: Repo, name: str, blobs: dict[str, str]) -> dict[str, bytes] | None:
        """Return the vectors by key, ``None`` where it can't be read."""
        memory = f"{name} {sorted(blobs.items())}"
        if memory not in self._rows:
            self._rows[memory] = _read_source(repo, name, blobs)
        return self._rows[memory]


def _read_source(repo: Repo, name: str, blobs: dict[str, str]) -> dict[str, bytes] | None:
    try:
        if name != "chunks.lance":
            content = _blob(repo, blobs[name])
            if Path(name).stem != hashlib.sha256(content).hexdigest()[:32]:
                return None
            rows, vectors = decode_wal(content)
        else:
            with tempfile.TemporaryDirectory() as scratch:
                for path, oid in blobs.items():
                    file = Path(scratch, name, path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(_blob(repo, oid))
                return _read_by_lancedb(Path(scratch))
    except ValueError:
        return None
    return {row.key: vector.tobytes() for row, vector in zip(rows, vectors, strict=True)}


def _read_by_lancedb(folder: Path) -> dict[str, bytes] | None:
    """Return the vectors of a table by key, read by another than our own reader."""
    import lancedb

    try:
        found = lancedb.connect(folder).open_table("chunks").to_arrow()
    except Exception:  # whatever a table that can't be read does to it
        return None
    keys, vectors = found["key"].to_pylist(), found["vector"].to_pylist()
    return {k: np.array(v, np.float16).tobytes() for k, v in zip(keys, vectors, strict=True)}


def _sources(files: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    table = f"{INDEX}/chunks.lance/"
    found = {path.removeprefix(table): oid for path, oid in files.items() if path.startswith(table)}
    sources = [("chunks.lance", found)] if found else []
    for path, oid in files.items():
        if path.endswith(".arrow"):
            sources.append((path, {path: oid}))
    return sources


def _files(repo: Repo, tree: str) -> dict[str, str]:
    listing = repo.git("ls-tree", "-r", "-z", "--full-tree", tree)
    entries = (entry.split("\t", 1) for entry in listing.split("\0") if entry)
    return {path: meta.split()[2] for meta, path in entries}


_contents: dict[str, bytes] = {}


def _blob(repo: Repo, oid: str) -> bytes:
    if oid not in _contents:
        content = repo.git("cat-file", "blob", oid)
        _contents[oid] = content.encode("utf-8", "surrogateescape")
    return _contents[oid]
