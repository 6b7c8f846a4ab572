"""Coverage-guided fuzzing of everything that reads bytes from a repository.

    python tests/stress/fuzz.py TARGET [SEEDS] [-max_total_time=60 …]

Needs atheris (``pip install -e '.[dev,fuzz]'``). A target fails on anything but a value or the
refusal it documents. Targets: those of ``TARGETS`` below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["kbindex"]):
    from kbindex.configuration.config import load_config
    from kbindex.configuration.recipe import parse_recipe
    from kbindex.core.errors import KbindexError
    from kbindex.document.markdown import UnreadableDocument, decode, nested_headings, parse
    from kbindex.embed.hashing import HashEmbedder
    from kbindex.evaluation.questions import parse_questions
    from kbindex.outline.file import OutlineMismatch, parse_outline, verify_outline
    from kbindex.storage.arrow_stream import read_stream
    from kbindex.storage.columns import read_rows
    from kbindex.storage.datafile import read_data_file
    from kbindex.storage.manifest import read_manifest


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def wal(data: bytes) -> None:
    read_rows(read_stream(data))


def manifest(data: bytes) -> None:
    read_manifest(data)


def data_file(data: bytes) -> None:
    read_data_file(data[1:], data[0] if data else 0, 16)


def recipe(data: bytes) -> None:
    parse_recipe(as_text(data), "recipe.json")


def outline(data: bytes) -> None:
    text, _, listing = as_text(data).partition("\x00")
    verify_outline(text, parse_outline(listing), HashEmbedder.identity, 384)


def document(data: bytes) -> None:
    text = decode(data)
    parse(text)
    nested_headings(text)


def configuration(data: bytes) -> None:
    load_config(as_text(data), None, {})


def questions(data: bytes) -> None:
    parse_questions(as_text(data), "questions")


TARGETS: dict[str, tuple[Callable[[bytes], None], type[Exception]]] = {
    "wal": (wal, ValueError),
    "manifest": (manifest, ValueError),
    "data_file": (data_file, ValueError),
    "recipe": (recipe, KbindexError),
    "outline": (outline, OutlineMismatch),
    "document": (document, UnreadableDocument),
    "configuration": (configuration, KbindexError),
    "questions": (questions, KbindexError),
}


def main() -> None:
    read, refusal = TARGETS[sys.argv.pop(1)]

    def one(data: bytes) -> None:
        try:
            read(data)
        except refusal:
            return

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
