"""Which entries of a tree are files of an index: only what our own writer makes. Pure.

A tree of git may hold what no checkout would write: ``..``, ``.git``, empty or absolute names,
symbolic links and submodules in place of folders. Names that are admitted here are plain, and safe
to join to a folder.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from kbindex.core.model import Problem, Rule
from kbindex.core.paths import CONSTANT_FILES, LINEAGE, OUTLINES, RECIPE, TABLE, WAL

_TABLE_FILE = re.compile(
    r"_versions/[0-9]{20}\.manifest|_versions/latest_version_hint\.json"
    r"|_transactions/[0-9]{1,20}-[0-9a-f-]{36}\.txn|data/[0-9a-f-]{16,80}\.lance"
)
_FILE_MODES = ("100644", "100755")
_WAL_FILE = re.compile(r"[0-9a-f]{32}\.arrow")
_MOST_NAMED = 20
"""Most refused entries that are reported; a tree may hold millions."""
_IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)


@dataclass
class Admitted:
    """The entries of a tree below the index folder, sorted into index files and others."""

    files: dict[str, str] = field(default_factory=dict)
    """Name to blob id."""
    refused: list[Problem] = field(default_factory=list)
    """Entries that could do harm or block one of our files; with any, the index is not read."""
    strays: list[Problem] = field(default_factory=list)
    """Files that nothing reads."""


def admit(entries: Iterable[tuple[str, str, str]], index_dir: str) -> Admitted:
    """Sort the (mode, object id, path) entries at and below the index folder."""
    found = Admitted()
    for mode, oid, path in entries:
        name = path.removeprefix(f"{index_dir}/")
        reason = _refusal(mode, name, path == index_dir)
        if reason is None and name in found.files:
            reason = "stands in the tree twice"
        if reason is not None:
            if len(found.refused) < _MOST_NAMED:
                remedy = "kbindex update"
                problem = Problem(
                    Rule.DAMAGED_FILE, path, reason, remedy=remedy, mended_by_update=True
                )
                found.refused.append(problem)
        elif _is_ours(name):
            found.files[name] = oid
        else:
            message = "is no file of the index and is not read"
            found.strays.append(Problem(Rule.STRAY_FILE, path, message))
    return found


def is_regular(mode: str) -> bool:
    """Whether a tree entry is a file: no symbolic link, no submodule."""
    return mode in _FILE_MODES


def is_plain_path(path: str) -> bool:
    """Whether ``path`` names a file below the folder that it is joined to, on every system."""
    return all(map(_is_plain, path.split("/")))


def as_loosest_read(component: str) -> str:
    """Return the normal form of a name: names that any file system could confuse share it.

    Case, HFS+'s ignored characters, NTFS's endings and streams (git's own verify_path, path.c).
    """
    bare = unicodedata.normalize("NFC", component.translate(_IGNORED_BY_HFS)).casefold()
    return bare.partition(":")[0].rstrip(". ")


def _refusal(mode: str, name: str, is_folder: bool) -> str | None:
    """Return why an entry is refused, ``None`` for a harmless one."""
    if not is_regular(mode):
        return f"is a {'submodule' if mode == '160000' else 'symbolic link'}, not a file"
    if is_folder:
        return "is a file, not a folder"
    if not is_plain_path(name):
        return "has a name that leads out of the index folder"
    folder, _, below = name.partition("/")
    if not below and folder in (OUTLINES, TABLE, WAL):
        return "is a file, not a folder"
    if folder == TABLE and not _TABLE_FILE.fullmatch(below):
        return "is no file of a table that kbindex writes"
    if folder == WAL and below.endswith(".arrow") and not _WAL_FILE.fullmatch(below):
        return "is not the content that its name stands for"
    return None


def _is_ours(name: str) -> bool:
    folder, _, below = name.partition("/")
    is_wal = folder == WAL and _WAL_FILE.fullmatch(below) is not None
    is_single = name in (RECIPE, LINEAGE) or name in CONSTANT_FILES
    return is_wal or is_single or folder in (OUTLINES, TABLE)


def _is_plain(component: str) -> bool:
    if "\\" in component:  # a letter like any other, except where Windows reads the name
        return all(part == "" or _is_plain(part) for part in component.split("\\"))
    if component in ("", ".", "..") or "\0" in component:
        return False
    return as_loosest_read(component) not in (".git", "git~1")
