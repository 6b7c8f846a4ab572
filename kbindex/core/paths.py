"""Paths below the index folder, and the contents of its constant files."""

from __future__ import annotations

RECIPE = "recipe.json"
OUTLINES = "outline"
TABLE = "chunks.lance"
WAL = "wal"
LINEAGE = "lineage"

# An absent file of this name would let git take a checkpoint, which moves rows from wal/ into the
# table, for a rename of the folder, and every later WAL file on a branch for a conflict.
CONSTANT_FILES = {
    "wal/README": (
        "Rows that are not yet in the table; 'kbindex checkpoint' moves them there.\n"
        "This file keeps the folder from being empty.\n"
    ),
    ".gitattributes": (
        "# Hashed as they are: no conversion of line endings, no filters, no keyword expansion.\n"
        "* -text -filter -ident\n"
        "outline/** diff linguist-generated\n"
        "chunks.lance/** -diff -merge linguist-generated\n"
        "wal/*.arrow -diff linguist-generated\n"
    ),
}

LFS_POINTER = "version https://git-lfs.github.com/spec/"
POINTER_REASON = "is a Git LFS pointer, not the file (git lfs pull, or untrack it)"

OUTLINE_SUFFIX = ".tsv"
_LONGEST_NAME = 255
"""Most bytes of a file name on Linux and macOS."""


def outline_path(index_dir: str, document_path: str) -> str:
    """Return the outline's path from the root; ``document_path`` is relative to the bundle."""
    return f"{index_dir}/{OUTLINES}/{document_path}{OUTLINE_SUFFIX}"


def document_of_outline(index_dir: str, path: str) -> str:
    """Return the path of an outline's document, relative to the bundle."""
    return path.removeprefix(f"{index_dir}/{OUTLINES}/").removesuffix(OUTLINE_SUFFIX)


def has_outline_path(document_path: str) -> bool:
    """Whether the outline's file name is short enough for a file system."""
    name = document_path.rsplit("/", 1)[-1]
    return len(name.encode("utf-8", "surrogateescape")) + len(OUTLINE_SUFFIX) <= _LONGEST_NAME
