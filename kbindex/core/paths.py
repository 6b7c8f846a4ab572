"""Where everything stands below the index folder, and the files in it that never change."""

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
"""Bytes; what Linux and macOS file systems allow for one name."""


def outline_path(index_dir: str, document_path: str) -> str:
    """Return where the outline of a document stands; ``document_path`` is below the bundle."""
    return f"{index_dir}/{OUTLINES}/{document_path}{OUTLINE_SUFFIX}"


def document_of_outline(index_dir: str, path: str) -> str:
    """Return the document, below the bundle, that an outline's path stands for."""
    return path.removeprefix(f"{index_dir}/{OUTLINES}/").removesuffix(OUTLINE_SUFFIX)


def has_outline_path(document_path: str) -> bool:
    """Whether a file system can hold the outline's name."""
    name = document_path.rsplit("/", 1)[-1]
    return len(name.encode("utf-8", "surrogateescape")) + len(OUTLINE_SUFFIX) <= _LONGEST_NAME
