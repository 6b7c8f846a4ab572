"""Two outlines, or two sets of them → what changed in the index, in a reader's words.

Outlines alone tell: no text, no model and no checkout is needed. What a passage says is in git's
own diff of the document; this says which passages were embedded anew, and which only moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from kbindex.core.model import NOT_EMBEDDED, Line
from kbindex.document.compose import heading_paths


@dataclass(frozen=True, slots=True)
class SectionChange:
    """A change of a section; ``n_embedded`` counts its chunks with a new key."""

    kind: str
    """added | removed | reworded | renamed | moved"""
    heading: tuple[str, ...]
    n_embedded: int
    was: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A change of a document. Chunks are counted by their keys."""

    kind: str
    """added | removed | renamed | changed"""
    path: str
    sections: tuple[SectionChange, ...]
    n_embedded: int
    n_reused: int
    was: str | None = None


@dataclass(frozen=True, slots=True)
class _Section:
    heading: tuple[str, ...]
    keys: tuple[str, ...]
    shape: tuple[int, ...]
    """The lengths of its regions after the one with the heading."""


def diff_outlines(
    before: Mapping[str, Sequence[Line]], after: Mapping[str, Sequence[Line]]
) -> list[DocumentChange]:
    """Return the changes between two sets of outlines by document path, those equal left out."""
    known = {key for lines in before.values() for key in _keys(lines)}
    gone = {path: lines for path, lines in before.items() if path not in after}
    changes = []
    for path in sorted(after):
        old, was, kind = before.get(path), None, "changed"
        if old is None:
            was = next((p for p, e in gone.items() if _looks_alike(e, after[path])), None)
            old, kind = (gone.pop(was), "renamed") if was else ((), "added")
        if kind == "changed" and list(old) == list(after[path]):
            continue
        changes.append(_document_change(kind, path, was, old, after[path], known))
    for path, lines in sorted(gone.items()):
        changes.append(_document_change("removed", path, None, lines, (), known))
    return changes


def _document_change(
    kind: str,
    path: str,
    was: str | None,
    before: Sequence[Line],
    after: Sequence[Line],
    known: set[str],
) -> DocumentChange:
    old_keys, new_keys = set(_keys(before)), _keys(after)
    new = [key for key in new_keys if key not in known]
    reused = [key for key in new_keys if key in known and key not in old_keys]
    sections = tuple(diff_sections(before, after)) if kind in ("changed", "renamed") else ()
    return DocumentChange(kind, path, sections, len(new), len(reused), was)


def diff_sections(before: Sequence[Line], after: Sequence[Line]) -> list[SectionChange]:
    """Return the change of each section of one document, in the order of ``after``."""
    old, new = _sections(before), _sections(after)
    matcher = SequenceMatcher(None, [s.heading for s in old], [s.heading for s in new], False)
    changes: list[SectionChange] = []
    removed: list[_Section] = []
    added: list[tuple[int, _Section]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            changes += [
                SectionChange("reworded", b.heading, _n_new(a, b))
                for a, b in zip(old[i:j], new[k:m], strict=True)
                if a.keys != b.keys
            ]
        else:
            removed += old[i:j]
            added += [(len(changes), section) for section in new[k:m]]
    for index, section in reversed(added):
        changes.insert(index, _arrival(section, removed))
    changes += [SectionChange("removed", s.heading, 0) for s in removed if s.keys]
    return changes


def _arrival(section: _Section, removed: list[_Section]) -> SectionChange:
    """Say whether a section is new, or one of ``removed``, which it is then taken from."""
    for other in removed:
        if other.keys == section.keys or other.heading == section.heading:
            removed.remove(other)
            return SectionChange("moved", section.heading, _n_new(other, section), other.heading)
    for other in removed:
        if other.shape == section.shape and len(other.heading) == len(section.heading):
            removed.remove(other)
            return SectionChange("renamed", section.heading, _n_new(other, section), other.heading)
    return SectionChange("added", section.heading, len(section.keys))


def _sections(lines: Sequence[Line]) -> list[_Section]:
    paths = heading_paths([line.region for line in lines])
    located = zip(paths, lines, strict=True)
    found = []
    for heading, group in groupby(located, key=lambda pair: pair[0]):
        members = [line for _, line in group]
        lengths = tuple(m.region.char_end - m.region.char_start for m in members[1:])
        found.append(_Section(heading, tuple(_keys(members)), lengths))
    return found


def _n_new(before: _Section, after: _Section) -> int:
    return len(set(after.keys) - set(before.keys))


def _keys(lines: Sequence[Line]) -> list[str]:
    return [line.key for line in lines if line.key != NOT_EMBEDDED]


def _looks_alike(before: Sequence[Line], after: Sequence[Line]) -> bool:
    """Whether most chunks of a vanished document occur in a new one."""
    old, new = set(_keys(before)), set(_keys(after))
    return bool(old) and 2 * len(old & new) > max(len(old), len(new))
