"""Paths and pathspecs as git gives and takes them: bytes of any kind, separated by NUL. Pure."""

from __future__ import annotations

import os
from pathlib import Path


def decode_path(path: bytes) -> str:
    """Return git's bytes as a string that gives them back, whatever they are."""
    return path.decode("utf-8", "surrogateescape")


def encode_path(path: str) -> bytes:
    """Return the bytes of a path that ``decode_path`` or the command line gave."""
    return path.encode("utf-8", "surrogateescape")


def as_folder(path: str) -> Path:
    """Return a path that git printed as one of the file system."""
    return Path(os.fsdecode(encode_path(path)))


def split_paths(output: bytes) -> list[str]:
    """Return the paths of a ``-z`` listing, in order."""
    return [decode_path(path) for path in output.split(b"\0") if path]


def pathspec(folder: str) -> str:
    """Return the pathspec of everything below a folder; it means the same in any command."""
    return ":(top)" if folder == "." else f":(top,literal){folder}"
