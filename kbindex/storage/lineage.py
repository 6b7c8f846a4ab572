"""The table's mark: a file of one line beside the table that every change of it rewrites.

Lance numbers its versions, so the files of two tables that grew apart merge without a conflict
into one that names files which aren't there. With a mark each they conflict in it. An index
without one (older versions wrote none) gets it with the next change of its table: were it added
to every index, it would conflict with each checkpoint meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def render_lineage(names: Iterable[str]) -> bytes:
    """Return the mark of the table that consists of files of these names.

    Lance names data files and transactions at random: equal names are one table.
    """
    listing = "".join(f"{name}\0" for name in sorted(names)).encode("utf-8", "surrogateescape")
    return f"{hashlib.sha256(listing).hexdigest()[:32]}\n".encode()
