"""Finds files of a bundle that look like documents and are left out of the index. Pure.

Links, submodules and files with another ending are left out on purpose. They are reported unless
``exclude`` names them. Not here: documents that can't be read.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from kbindex.configuration.config import Config
from kbindex.core.model import Problem, Rule

_LINK, _SUBMODULE = "120000", "160000"
_ENDINGS = (".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdwn", ".mdx")


def left_out(config: Config, mode: str, path: str) -> Problem | None:
    """Return why an entry of a tree is left out, ``None`` where nobody expects it in the index."""
    is_bundle = path == config.bundle
    if not (is_bundle or config.in_bundle(path)):
        return None
    name = PurePosixPath(path).name
    if not is_bundle and (config.excludes(path) or config.excludes(f"{path}/{name}")):
        return None
    ending = PurePosixPath(name.casefold()).suffix
    if mode == _SUBMODULE:
        message = "is a submodule, whose documents another repository holds"
        remedy = "index them there"
    elif mode == _LINK and (is_bundle or ending in ("", *_ENDINGS)):
        message = "is a symbolic link, which is not followed"
        remedy = "put the document or folder itself there"
    elif mode not in (_LINK, _SUBMODULE) and ending in _ENDINGS and not name.endswith(".md"):
        message = "looks like Markdown, but 'include' leaves it out"
        remedy = f"add '*{PurePosixPath(name).suffix}' to 'include' in kbindex.toml"
    else:
        return None
    return Problem(Rule.LEFT_OUT, path, message, remedy=f"{remedy}, or add it to 'exclude'")
