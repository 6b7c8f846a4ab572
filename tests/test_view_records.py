"""What a view stores of documents and chunks: columns, checksums, and records read back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields, replace

import numpy as np
import pytest

from kbindex.local.row_sums import row_sum
from kbindex.view.database import (
    CHUNK_VALUES,
    DOCUMENT_VALUES,
    SCHEMA,
    SCHEMA_VERSION,
    DamagedView,
    View,
)
from kbindex.view.files import view_in_memory
from kbindex.view.records import (
    ChunkRecord,
    ChunkTerms,
    DocumentRecord,
    IndexedDocument,
    Opening,
    read_chunk,
    read_document,
)
from kbindex.view.update import replace_documents

pytestmark = pytest.mark.quick

KEY = "0123456789abcdef" * 2
DOCUMENT = DocumentRecord(
    path="bundle/a\udcff.md",
    blob="b" * 40,
    outline=None,
    recipe="r auto",
    stale="no outline",
    title="Lámpara",
    type="Note",
    status=None,
    tags=("sea", "luz"),
    language="spanish",
    headings=(Opening(1, "Lámpara", "lámpara", 20), Opening(2, "Aceite", "aceite", 40)),
    problems="line 2: odd",
)
FIRST = ChunkRecord(0, 0, 19, 1, 4, 7, (), None, KEY, "title: Lámpara")
FURTHER = replace(FIRST, ordinal=1, key=KEY[::-1], text=None)
SECTION = ChunkRecord(2, 20, 60, 5, 9, 12, ("Lámpara", "Aceite"), "aceite", KEY, "## Aceite")
TERMS = ChunkTerms("lamp", "aceit", "aceit", "", "lámpara")


@pytest.fixture
def view() -> View:
    view = view_in_memory()
    chunks = tuple((chunk, TERMS) for chunk in (FIRST, FURTHER, SECTION))
    vectors = {KEY: np.ones(4, np.float16)}
    replace_documents(view, "e", {}, (), [IndexedDocument(DOCUMENT, chunks)], vectors, 4)
    return view


def test_records_name_the_columns_in_their_order() -> None:
    document = ", ".join(["id", *(field.name for field in fields(DocumentRecord))])
    assert document == DOCUMENT_VALUES
    chunk = ", ".join(["id", "document", *(field.name for field in fields(ChunkRecord))])
    assert chunk.replace("n_tokens", "tokens") == CHUNK_VALUES


@pytest.mark.parametrize(
    ("table", "covered", "others"),
    [("document", DOCUMENT_VALUES, {"sum"}), ("chunk", CHUNK_VALUES, {"slot", "sum"})],
)
def test_a_checksum_covers_every_column_but_those_that_change(
    table: str, covered: str, others: set[str]
) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    assert set(covered.split(", ")) | others == columns


def test_records_come_back_as_they_were_stored(view: View) -> None:
    assert read_document(DOCUMENT.columns()) == DOCUMENT
    assert view.document(DOCUMENT.path) == DOCUMENT
    for number, chunk in enumerate((FIRST, FURTHER, SECTION), start=1):
        assert read_chunk(chunk.columns()) == chunk
        assert view.chunk(number).chunk == chunk
        assert view.chunk(number).document == DOCUMENT
    assert view.chunk(2).text == FIRST.text, "metadata in pieces has one text"


def test_stored_values_are_those_of_views_made_before(view: View) -> None:
    """Another value or order here needs another schema version: views are read on."""
    assert SCHEMA_VERSION == 4
    values = (
        b"bundle/a\xff.md",
        "b" * 40,
        None,
        "r auto",
        "no outline",
        "Lámpara",
        "Note",
        None,
        '["sea", "luz"]',
        "spanish",
        '[[1, "L\\u00e1mpara", "l\\u00e1mpara", 20], [2, "Aceite", "aceite", 40]]',
        "line 2: odd",
    )
    (found,) = view.db.execute(f"SELECT {DOCUMENT_VALUES}, sum FROM document")
    assert found == (1, *values, row_sum(1, *values))
    assert found[-1].hex() == "c6bed8474bc01251"
    chunks = view.db.execute(f"SELECT {CHUNK_VALUES}, sum FROM chunk ORDER BY id").fetchall()
    key = bytes.fromhex(KEY)
    heading = '["L\\u00e1mpara", "Aceite"]'
    assert chunks[1][:-1] == (2, 1, 1, 0, 19, 1, 4, 7, "[]", None, bytes.fromhex(KEY[::-1]), None)
    assert chunks[2][:-1] == (3, 1, 2, 20, 60, 5, 9, 12, heading, "aceite", key, "## Aceite")
    assert [row[-1].hex() for row in chunks] == [
        "db04d892f7b0449f",
        "3b61c6fcbcc91fcd",
        "16276bd53123b4a8",
    ]


@pytest.mark.parametrize("column", ["headings", "tags", "path"])
def test_a_row_is_proven_before_it_is_decoded(view: View, column: str) -> None:
    view.db.execute(f"UPDATE document SET {column} = 'no JSON' WHERE id = 1")
    with pytest.raises(DamagedView, match="checksum"):
        view.document_at(1)


def test_stored_values_that_cannot_be_decoded_are_damage_though_their_checksum_holds(
    view: View,
) -> None:
    values = (1, *replace(DOCUMENT, problems="").columns())
    values = tuple("no JSON" if value == '["sea", "luz"]' else value for value in values)
    marks = ", ".join("?" * (len(values) + 1))
    view.db.execute("DELETE FROM document")
    view.db.execute(
        f"INSERT INTO document ({DOCUMENT_VALUES}, sum) VALUES ({marks})",
        (*values, row_sum(*values)),
    )
    with pytest.raises(DamagedView):
        view.document_at(1)
    with pytest.raises(DamagedView):
        view.chunk(1)
