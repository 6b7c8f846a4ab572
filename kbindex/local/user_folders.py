"""The user's own folders, outside any repository, where the system keeps such folders.

``XDG_CONFIG_HOME`` and ``XDG_CACHE_HOME`` count everywhere. A relative one does not: it could lead
into a repository, and the standard ignores it, too.
"""

from __future__ import annotations

from pathlib import Path

_NAME = "kbindex"


def config_file(name: str) -> Path:
    """Return the path of a file in the user's configuration, whether it exists or not.

    Where versions before 0.2 left one in ``~/.config``, that one is read on.
    """
    import platformdirs  # 25 ms that hardly any command needs

    file = platformdirs.user_config_path(_NAME, appauthor=False) / name
    earlier = Path.home() / ".config" / _NAME / name
    return earlier if earlier.is_file() and not file.exists() else file


def cache_folder() -> Path:
    """Return the user's cache folder of kbindex, whether it exists or not."""
    import platformdirs

    return platformdirs.user_cache_path(_NAME, appauthor=False)
