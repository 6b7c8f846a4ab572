"""The states of a document beside its outline: known, proven, stale or unreadable. Pure.

``freshness`` decides which one it is. Known and proven documents are fresh.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbindex.core.model import NOT_EMBEDDED, Entry, Rule


@dataclass(frozen=True, slots=True)
class Known:
    """A document whose outline was proven before; neither was read this time."""

    path: str
    blob: str
    outline: str
    """The blob id of the outline."""
    keys: tuple[str, ...]
    """The keys of its embedded regions, in document order."""


@dataclass(frozen=True, slots=True)
class Proven:
    """A document whose outline was proven just now."""

    path: str
    blob: str
    outline: str
    """The blob id of the outline."""
    text: str
    entries: tuple[Entry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its embedded regions, in document order."""
        return tuple(entry.key for entry in self.entries if entry.key != NOT_EMBEDDED)

    def known(self) -> Known:
        """Return the state without text and entries: those of many documents fill the memory."""
        return Known(self.path, self.blob, self.outline, self.keys)

    def outdated(self, rule: Rule, message: str, line: int | None = None) -> Stale:
        """Return the state of the document where its outline, though proven, can't stay."""
        return Stale(self.path, self.blob, self.outline, self.text, rule, message, line)


@dataclass(frozen=True, slots=True)
class Stale:
    """A document whose outline can't stay, or that has none."""

    path: str
    blob: str
    outline: str | None
    """The blob id of the outline, ``None`` without one."""
    text: str
    rule: Rule
    """MISSING_OUTLINE, STALE_DOCUMENT, CONFLICT_MARKERS or, in an update, NOT_CANONICAL."""
    message: str
    line: int | None = None
    """The first line (1-based) where document and outline differ, ``None`` if unknown."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A document that is no text, or too large to be read."""

    path: str
    blob: str
    outline: str | None
    message: str
    line: int | None = None


Fresh = Known | Proven
DocumentState = Known | Proven | Stale | Unreadable
