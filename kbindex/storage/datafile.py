"""The reader of the table's data files: Lance 2.2 → columns, within bounds of the size. Pure.

Lance's file format 2.2 (lance's protos/file2.proto): pages of columns, then what describes them,
then a footer of 40 bytes. A column is read as the layouts that LanceDB chooses for our schema say;
anything else is a ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.storage.columns import Columns
from kbindex.storage.encodings import (
    Numbers,
    decode_levels,
    decode_number_dictionary,
    decode_numbers,
    decode_text_dictionary,
    decode_texts,
    flat_bits,
    slice_texts,
    unpack_texts,
)
from kbindex.storage.manifest import read_schema
from kbindex.storage.protobuf import (
    Fields,
    bytes_of,
    messages_of,
    number_of,
    read_fields,
    read_varints,
    require_known,
)

_FOOTER = struct.Struct("<QQQIIHH4s")
_ENTRY = struct.Struct("<QQ")
_COLUMNS = (
    *("key", "embedder", "path", "ordinal", "blob", "char_start", "char_end"),
    *("heading", "tokens", "vector", "sum"),
)
_NUMBERS = {"ordinal": 32, "char_start": 64, "char_end": 64, "tokens": 32}
"""Integer columns and their width in bits."""
_LAYOUT_URL = b"/lance.encodings21.PageLayout"
_COLUMN_URL = b"/lance.encodings.ColumnEncoding"
_MINI_BLOCK, _CONSTANT, _FULL_ZIP = 1, 2, 3
_ALL_VALID, _ALL_VALID_LIST, _EMPTYABLE_LIST = 1, 2, 5
_ALIGNMENT = 8
_MOST_HEADINGS = 8
"""Most headings of a chunk on average; Markdown has six levels."""

Values = Sequence[bytes] | Numbers


@dataclass(frozen=True, slots=True)
class _Page:
    layout: int
    fields: Fields
    buffers: list[bytes]
    n_rows: int


@dataclass(frozen=True, slots=True)
class _Items:
    """Decoded values, and for lists the level of each: 1 begins a list; 1 is an empty one."""

    values: Values
    repetition: Numbers | None = None
    definition: Numbers | None = None


def read_data_file(content: bytes, n_rows: int, dimension: int) -> Columns:
    """Return the columns of a data file that a manifest says has so many rows. Raises ValueError.

    A vector takes its bytes, so that a file can't claim more rows than it has room for.
    """
    if n_rows * dimension * 2 > len(content):
        raise ValueError("it claims more rows than it has room for")
    described = _descriptions(content, dimension)
    pages = {name: list(_pages(content, d)) for name, d in zip(_COLUMNS, described, strict=True)}
    for name, found in pages.items():
        if sum(page.n_rows for page in found) != n_rows:
            raise ValueError(f"its column '{name}' has another number of rows")
    texts: dict[str, Any] = {
        name: [_text(value) for page in pages[name] for value in _flat_items(page, 0)]
        for name in ("key", "embedder", "path", "blob", "sum")
    }
    numbers: dict[str, Any] = {
        name: [n for page in pages[name] for n in _numbers(page, bits).tolist()]
        for name, bits in _NUMBERS.items()
    }
    return Columns(
        **texts,
        **numbers,
        heading=[path for page in pages["heading"] for path in _lists(page)],
        vector=_vectors(pages["vector"], n_rows, dimension),
    )


# Pages and their descriptions


def _descriptions(content: bytes, dimension: int) -> Iterator[bytes]:
    """Yield the metadata message of each column."""
    if len(content) < _FOOTER.size:
        raise ValueError("it is cut off")
    footer = _FOOTER.unpack(content[-_FOOTER.size :])
    _, columns_at, globals_at, n_globals, n_columns, major, minor, magic = footer
    if (n_globals, n_columns, major, minor, magic) != (1, len(_COLUMNS), 2, 2, b"LANC"):
        raise ValueError("it is no data file of this table")
    at, size = _entry(content, globals_at, 0)
    about = read_fields(_part(content, at, size))
    require_known(about, (1, 2), "the file's description")
    schema = read_fields(bytes_of(about, 1))
    require_known(schema, (1,), "the file's schema")
    if read_schema(messages_of(schema, 1)) != dimension:
        raise ValueError("its vectors are of another dimension")
    for number in range(len(_COLUMNS)):
        at, size = _entry(content, columns_at, number)
        yield _part(content, at, size)


def _entry(content: bytes, table: int, number: int) -> tuple[int, int]:
    at, size = _ENTRY.unpack(_part(content, table + number * _ENTRY.size, _ENTRY.size))
    return at, size


def _part(content: bytes, at: int, size: int) -> bytes:
    if at + size > len(content):
        raise ValueError("a part of it lies behind its end")
    return content[at : at + size]


def _pages(content: bytes, description: bytes) -> Iterator[_Page]:
    column = read_fields(description)
    require_known(column, (1, 2), "a column")
    if _described(bytes_of(column, 1), _COLUMN_URL) != {1: [b""]}:
        raise ValueError("a column is encoded in a way that is not read here")
    for message in messages_of(column, 2):
        page = read_fields(message)
        require_known(page, (1, 2, 3, 4, 5), "a page")
        offsets = read_varints(bytes_of(page, 1, b""))
        sizes = read_varints(bytes_of(page, 2, b""))
        layout = _described(bytes_of(page, 4), _LAYOUT_URL)
        if len(layout) != 1 or len(offsets) != len(sizes):
            raise ValueError("a page is laid out in a way that is not read here")
        (kind,) = layout
        buffers = [_part(content, *entry) for entry in zip(offsets, sizes, strict=True)]
        yield _Page(kind, read_fields(bytes_of(layout, kind)), buffers, number_of(page, 3))


def _described(message: bytes, url: bytes) -> Fields:
    """Return the fields of an encoding that is stored inline, packed as Any."""
    direct = read_fields(bytes_of(read_fields(message), 2))
    packed = read_fields(bytes_of(direct, 1))
    require_known(packed, (1, 2), "an encoding")
    if bytes_of(packed, 1) != url:
        raise ValueError("it is encoded in a way that is not read here")
    return read_fields(bytes_of(packed, 2))


# Columns


def _flat_items(page: _Page, bits: int) -> Values:
    """Return the values of a column without lists: texts, or numbers of ``bits`` bits."""
    layers = [_ALL_VALID]
    if page.layout == _MINI_BLOCK:
        items = _mini_blocks(page, layers, bits)
    elif page.layout == _CONSTANT:
        items = _constant(page, layers, bits)
    else:
        items = _full_zip(page, layers)
    if len(items.values) != page.n_rows:
        raise ValueError("a page has another number of values")
    return items.values


def _numbers(page: _Page, bits: int) -> Numbers:
    numbers = _flat_items(page, bits)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.itemsize * 8 != bits:
        raise ValueError("numbers are of another width")
    return numbers.view(f"<i{bits // 8}")


def _lists(page: _Page) -> Iterator[tuple[str, ...]]:
    """Yield the lists of texts of a page."""
    layers = _layers(page)
    if layers not in ([_ALL_VALID, _ALL_VALID_LIST], [_ALL_VALID, _EMPTYABLE_LIST]):
        raise ValueError("lists hold something that is no text")
    read = {_MINI_BLOCK: _mini_blocks, _CONSTANT: _constant}.get(page.layout)
    items = read(page, layers, 0) if read else _full_zip(page, layers)
    values = iter(items.values)
    lists: list[list[str]] = []
    starts = [] if items.repetition is None else items.repetition.tolist()
    empty = [0] * len(starts) if items.definition is None else items.definition.tolist()
    if len(empty) != len(starts):
        raise ValueError("lists and their levels are of different lengths")
    for start, is_empty in zip(starts, empty, strict=True):
        if start:
            lists.append([])
        if not is_empty:
            value = next(values, None)
            if value is None or not lists or not isinstance(value, bytes):
                raise ValueError("lists have fewer texts than places")
            lists[-1].append(_text(value))
    if len(lists) != page.n_rows or next(values, None) is not None:
        raise ValueError("a page has another number of lists")
    yield from map(tuple, lists)


def _vectors(pages: Sequence[_Page], n_rows: int, dimension: int) -> NDArray[np.float16]:
    parts = []
    for page in pages:
        read = {_MINI_BLOCK: _small_vectors, _FULL_ZIP: _zipped_vectors}.get(page.layout)
        if read is None:
            raise ValueError("vectors are laid out in a way that is not read here")
        parts.append(read(page, dimension))
    content = b"".join(parts)
    if len(content) != n_rows * dimension * 2:
        raise ValueError("vectors are missing")
    return np.frombuffer(content, "<f2").reshape(n_rows, dimension)


def _zipped_vectors(page: _Page, dimension: int) -> bytes:
    require_known(page.fields, (3, 5, 6, 7, 8), "a layout")
    _require_vector(bytes_of(page.fields, 7), dimension)
    if _layers(page) != [_ALL_VALID] or number_of(page.fields, 3) != dimension * 16:
        raise ValueError("vectors are laid out in a way that is not read here")
    (content,) = page.buffers
    return content


def _small_vectors(page: _Page, dimension: int) -> bytes:
    _require_vector(bytes_of(page.fields, 3), dimension)
    if _layers(page) != [_ALL_VALID]:
        raise ValueError("vectors are laid out in a way that is not read here")
    size = dimension * 2
    chunks = _chunks(page)
    return b"".join(_part(c.buffers[0], 0, c.n_values * size) for c in chunks)


def _require_vector(encoding: bytes, dimension: int) -> None:
    fields = read_fields(encoding)
    vector = read_fields(bytes_of(fields, 11))
    if len(fields) != 1 or vector.keys() != {1, 2} or number_of(vector, 1) != dimension:
        raise ValueError("vectors are of another dimension")
    if flat_bits(bytes_of(vector, 2)) != 16:
        raise ValueError("vectors are not of 16-bit numbers")


# Layouts


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A mini-block: the encoded values, and the levels if there are any."""

    n_values: int
    n_levels: int
    repetition: bytes | None
    definition: bytes | None
    buffers: list[bytes]


def _mini_blocks(page: _Page, layers: list[int], bits: int) -> _Items:
    fields = page.fields
    require_known(fields, range(1, 11), "a layout")
    if _layers(page) != layers:
        raise ValueError("a page holds something that is no value")
    encoding = bytes_of(fields, 3)
    is_packed = 4 in fields
    parts: list[Values] = []
    levels: tuple[list[Numbers], list[Numbers]] = ([], [])
    for chunk in _chunks(page):
        is_number = bits or is_packed
        decode = decode_numbers if is_number else decode_texts
        parts.append(decode(encoding, chunk.buffers, chunk.n_values))
        for found, field, block in zip(
            levels, (1, 2), (chunk.repetition, chunk.definition), strict=True
        ):
            if block is not None:
                found.append(decode_levels(bytes_of(fields, field), block, chunk.n_levels))
    repetition, definition = (np.concatenate(found) if found else None for found in levels)
    return _Items(_joined(page, parts, bits, is_packed), repetition, definition)


def _joined(page: _Page, parts: Sequence[Values], bits: int, is_packed: bool) -> Values:
    """Return the values of all mini-blocks, looked up in the page's dictionary if it has one."""
    if not (bits or is_packed):
        return [value for part in parts for value in part]
    numbers: Numbers = np.concatenate([np.asarray(part) for part in parts])
    if not is_packed:
        return numbers
    encoding, n_words = bytes_of(page.fields, 4), number_of(page.fields, 5)
    if n_words > page.n_rows * _MOST_HEADINGS:
        raise ValueError("a dictionary has more words than are used")
    if len(numbers) and int(numbers.max()) >= n_words:
        raise ValueError("a value is not in its dictionary")
    if bits:
        return decode_number_dictionary(encoding, page.buffers[2], n_words)[numbers]
    words = decode_text_dictionary(encoding, page.buffers[2], n_words)
    return [words[number] for number in numbers.tolist()]


def _chunks(page: _Page) -> Iterator[_Chunk]:
    fields = page.fields
    n_items = number_of(fields, 9)
    if len(page.buffers) < (3 if 4 in fields else 2):
        raise ValueError("a page lacks a buffer")
    if number_of(fields, 10) != 1 or n_items > _MOST_HEADINGS * page.n_rows:
        raise ValueError("a page has another number of values")
    about = np.frombuffer(page.buffers[0], "<u4").tolist()
    at = done = 0
    for number, word in enumerate(about):
        is_last = number == len(about) - 1
        n_values = n_items - done if is_last else 1 << (word & 15)
        size = ((word >> 4) + 1) * _ALIGNMENT
        if n_values < 0:
            raise ValueError("a page has more values than it says")
        yield _chunk(fields, _part(page.buffers[1], at, size), n_values)
        at, done = at + size, done + n_values
    if done != n_items:
        raise ValueError("a page has fewer values than it says")


def _chunk(fields: Fields, block: bytes, n_values: int) -> _Chunk:
    has_levels = (1 in fields, 2 in fields)
    n_buffers = number_of(fields, 7)
    if n_buffers > 2:
        raise ValueError("a block has more buffers than an encoding fills")
    header = struct.Struct(f"<H{sum(has_levels)}H{n_buffers}I")
    n_levels, *sizes = header.unpack(_part(block, 0, header.size))
    parts = []
    at = header.size
    for size in sizes:
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        parts.append(_part(block, at, size))
        at += size
    repetition = parts.pop(0) if has_levels[0] else None
    definition = parts.pop(0) if has_levels[1] else None
    return _Chunk(n_values, n_levels, repetition, definition, parts)


def _constant(page: _Page, layers: list[int], bits: int) -> _Items:
    """Decode a page whose values are all equal; the layout or a buffer holds the value.

    A page of nothing but empty lists has levels and no value.
    """
    fields = page.fields
    require_known(fields, range(5, 11), "a layout")
    if _layers(page) != layers:
        raise ValueError("a page holds something that is no value")
    buffers = list(page.buffers)
    value = bytes_of(fields, 6, b"")
    has_value = 6 in fields or len(buffers) != 2
    if 6 not in fields and has_value:
        value = _scalar(buffers.pop(0) if buffers else b"")
    if len(layers) == 1:
        if buffers:
            raise ValueError("a constant has more buffers than one")
        if not bits:
            return _Items([value] * page.n_rows)
        return _Items(np.repeat(np.frombuffer(value, f"<u{bits // 8}", 1), page.n_rows))
    repetition, definition = (_constant_levels(page, buffers, index) for index in (0, 1))
    n_levels = len(repetition) if repetition is not None else 0
    n_empty = 0 if definition is None else int(np.count_nonzero(definition))
    if n_empty > n_levels or (n_empty < n_levels and not has_value):
        raise ValueError("a constant has no value")
    return _Items([value] * (n_levels - n_empty), repetition, definition)


def _constant_levels(page: _Page, buffers: Sequence[bytes], index: int) -> Numbers | None:
    if index >= len(buffers) or not buffers[index]:
        return None
    block = buffers[index]
    n_levels = number_of(page.fields, 9 + index, len(block) // 2)
    if n_levels > _MOST_HEADINGS * page.n_rows:
        raise ValueError("a page has more values than it says")
    if 7 + index in page.fields:
        return decode_levels(bytes_of(page.fields, 7 + index), block, n_levels)
    if len(block) != 2 * n_levels:
        raise ValueError("levels are missing")
    return np.frombuffer(block, "<u2")


def _scalar(buffer: bytes) -> bytes:
    """Return the text of an Arrow array with one value, from its buffers."""
    if len(buffer) < 12:
        raise ValueError("a constant is cut off")
    n_buffers, n_offsets, n_bytes = struct.unpack_from("<III", buffer)
    if n_buffers != 2 or n_offsets != 8 or len(buffer) != 20 + n_bytes:
        raise ValueError("a constant is no text")
    return slice_texts(buffer[12:20], buffer[20:], 1)[0]


def _full_zip(page: _Page, layers: list[int]) -> _Items:
    """Decode a page of long texts, each behind its length and, in lists, its levels."""
    fields = page.fields
    require_known(fields, (1, 2, 4, 5, 6, 7, 8), "a layout")
    if page.layout != _FULL_ZIP or _layers(page) != layers or number_of(fields, 4) != 32:
        raise ValueError("a page is laid out in a way that is not read here")
    n_items = number_of(fields, 5)
    bits = (number_of(fields, 1, 0), number_of(fields, 2, 0))
    if n_items > _MOST_HEADINGS * page.n_rows or max(bits) > 1:
        raise ValueError("a page has more values than it says")
    control = 1 if any(bits) else 0
    zipped, at = b"".join(page.buffers[:1]), 0
    texts, repetition, definition = [], [], []
    for _ in range(n_items):
        word = _part(zipped, at, control)[0] if control else 0
        at += control
        repetition.append(word >> bits[1] & 1)
        definition.append(word & 1 if bits[1] else 0)
        if not definition[-1]:
            (size,) = struct.unpack("<I", _part(zipped, at, 4))
            texts.append(_part(zipped, at + 4, size))
            at += 4 + size
    values = unpack_texts(bytes_of(fields, 7), texts)
    if len(layers) == 1:
        return _Items(values)
    return _Items(values, np.array(repetition, np.uint16), np.array(definition, np.uint16))


def _layers(page: _Page) -> list[int]:
    field = {_MINI_BLOCK: 6, _CONSTANT: 5, _FULL_ZIP: 8}.get(page.layout)
    if field is None:
        raise ValueError("a page is laid out in a way that is not read here")
    return read_varints(bytes_of(page.fields, field))


def _text(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode("utf-8")
