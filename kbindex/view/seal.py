"""The seal of a view: which files were proven, so that no query has to prove them again.

It names each file's inode, size and times, the view's revision, and what git's index was. Nobody
can change a file and keep the time of its last change (``ctime``), so a seal that fits says that
the files are those that were proven. One that doesn't fit says nothing; ``proof`` then looks.

Written by whoever holds the lock. A reader may replace it by one that differs only in git's index.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kbindex.local.files import parse_json, read_text
from kbindex.local.row_sums import row_sum
from kbindex.local.scratch import write_whole

_SETTLED_SECONDS = 300
"""Linux writes out within a minute what is not synced."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LOG = "-wal"
"""Its ctime says nothing: opened by root, SQLite (3.40) sets its owner each time. It has checksums
of its own, and what they make SQLite leave out shows in the revision."""
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Seal:
    """The stamps of the files of a proven view."""

    revision: str
    """The name in the view of the state that was written last."""
    files: Mapping[str, Stamp]
    """File name → stamp; an empty file counts as missing."""
    boot: str
    """The run of the system that the seal holds for, empty once the files are on the disk.

    Stopped by a power cut, a system may leave a file with its new times and its old content.
    """
    index: str = ""
    """Names the state of git's index, and the configuration, that the view is of."""


def make_seal(folder: Path, names: Iterable[str], revision: str) -> Seal:
    """Return the seal of the files as they are now."""
    stamps = {name: _stamp(folder / name) for name in names}
    return Seal(revision, {n: stamp for n, stamp in stamps.items() if stamp}, _boot())


def is_intact(seal: Seal, folder: Path, names: Iterable[str]) -> bool:
    """Whether the sealed files, and those of ``names`` that weren't there, are as they were."""
    wanted = {**dict.fromkeys(names, ()), **seal.files}
    return seal.boot in ("", _boot()) and all(_stamp(folder / n) == s for n, s in wanted.items())


def is_settled(seal: Seal) -> bool:
    """Whether the files have not changed for so long that the system has written them out."""
    newest = max((stamp[-1] for stamp in seal.files.values()), default=0)
    return time.time_ns() - newest > _SETTLED_SECONDS * 1_000_000_000


def write_seal(file: Path, seal: Seal) -> None:
    """Replace the seal; where that can't be done, the next command proves the view again."""
    content = json.dumps(asdict(seal))
    with suppress(OSError):
        write_whole(file, f"{row_sum(content).hex()}\n{content}\n")


def read_seal(file: Path) -> Seal | None:
    """Return the seal, ``None`` where there is none or it is not what was written."""
    stored, _, content = (read_text(file) or "").rstrip("\n").partition("\n")
    if stored != row_sum(content).hex():
        return None
    found = parse_json(content)
    files = {name: tuple(stamp) for name, stamp in found["files"].items()}
    return Seal(found["revision"], files, found["boot"], found["index"])


def _stamp(file: Path) -> Stamp:
    try:
        found = file.lstat()
    except OSError:
        return ()
    stamp: Stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
    if not file.name.endswith(_LOG):
        stamp += (found.st_ctime_ns,)
    return stamp if found.st_size else ()


def _boot() -> str:
    """Return what names this run of the system, empty where nothing does (not Linux)."""
    return (read_text(_BOOT) or "").strip()
