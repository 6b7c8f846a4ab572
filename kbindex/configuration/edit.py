"""Sets values in a configuration file's text; comments, order and line ends stay. Pure.

Not here: whether a value is allowed, and whether the text can be parsed at all (``file``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def set_values(text: str, values: Mapping[str, str], table: Sequence[str] = ()) -> str:
    """Return the TOML ``text`` with ``values`` set in a table, which is made if it is missing.

    ``table`` is the path of its name, ``("tool", "kbindex")`` for instance; empty is the top level.
    ``text`` is valid TOML.
    """
    import tomlkit  # for init alone

    document = tomlkit.parse(text)
    target: tomlkit.TOMLDocument | tomlkit.items.Table = document
    for name in table:
        if name not in target:
            target[name] = tomlkit.table()
        target = target[name]
    for name, value in values.items():
        target[name] = value
    edited = tomlkit.dumps(document)
    # tomlkit ends new lines with a line feed, whatever the others end with.
    ends_with_crlf = "\r\n" in text and not re.search(r"(?<!\r)\n", text)
    return re.sub(r"(?<!\r)\n", "\r\n", edited) if ends_with_crlf else edited
