"""Decoders of Lance's compressive encodings that LanceDB chooses for our columns. Pure.

Described in lance's protos/encodings_v2_1.proto. Every decoder yields exactly as many values as it
is asked for, and no more than a small multiple of the bytes it is given; anything else is a
ValueError. FastLanes bit packing: Afroozeh and Boncz 2023; FSST: Boncz, Neumann and Leis 2020.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kbindex.storage.protobuf import bytes_of, number_of, read_fields, require_known

Numbers = NDArray[np.unsignedinteger]

_FLAT, _VARIABLE, _OUT_OF_LINE, _INLINE, _FSST, _RLE, _GENERAL = 1, 2, 4, 5, 6, 8, 10
_LZ4 = 1
_BLOCK = 1024
"""Values in a bit-packed block."""
_ORDER = np.array((0, 4, 2, 6, 1, 5, 3, 7))
_ESCAPE = 255
_FSST_HEADER = struct.Struct("<Q")
_FSST_MAGIC = 0x46535354
_FSST_TABLE = 8 + 256 * 8 + 256
_MOST_DICTIONARY_BYTES = 1 << 28


def decode_numbers(encoding: bytes, buffers: Sequence[bytes], n_values: int) -> Numbers:
    """Return the values of a mini-block of fixed-width numbers: ``(n_values,)`` unsigned."""
    kind, fields = _encoding(encoding)
    if kind == _FLAT and len(buffers) == 1:
        return _flat(_width(fields), buffers[0], n_values)
    if kind == _INLINE and len(buffers) == 1:
        return _unpack_inline(_width(fields), buffers[0], n_values)
    if kind == _RLE and len(buffers) == 2:
        return _runs(fields, buffers[0], buffers[1], n_values)
    raise ValueError(f"numbers are encoded in a way that is not read here ({kind})")


def decode_levels(encoding: bytes, block: bytes, n_values: int) -> Numbers:
    """Return the values of a block of fixed-width numbers, as levels are stored."""
    kind, fields = _encoding(encoding)
    if kind == _OUT_OF_LINE:
        packed, width = _encoding(bytes_of(fields, 3))
        if packed != _FLAT:
            raise ValueError("packed numbers are compressed again")
        return _unpack_blocks(_width(fields), number_of(width, 1), block, n_values)
    if kind == _RLE:
        (size,) = struct.unpack_from("<Q", block) if len(block) >= 8 else (0,)
        return _runs(fields, block[8 : 8 + size], block[8 + size :], n_values)
    return decode_numbers(encoding, [block], n_values)


def decode_texts(encoding: bytes, buffers: Sequence[bytes], n_values: int) -> list[bytes]:
    """Return the values of a mini-block of texts."""
    if len(buffers) != 1:
        raise ValueError("texts stand in several buffers")
    return unpack_texts(encoding, slice_texts(buffers[0], buffers[0], n_values))


def unpack_texts(encoding: bytes, texts: list[bytes]) -> list[bytes]:
    """Return texts decompressed one by one, or unchanged if they weren't compressed."""
    kind, fields = _encoding(encoding)
    if kind != _FSST:
        _require_plain_texts(encoding)
        return texts
    _require_plain_texts(bytes_of(fields, 2))
    symbols = _symbols(bytes_of(fields, 1))
    return texts if symbols is None else [_expand(text, symbols) for text in texts]


def decode_number_dictionary(encoding: bytes, block: bytes, n_values: int) -> Numbers:
    """Return the numbers of a dictionary: ``(n_values,)`` unsigned."""
    encoding, block = _decompressed(encoding, block)
    return decode_levels(encoding, block, n_values)


def decode_text_dictionary(encoding: bytes, block: bytes, n_values: int) -> list[bytes]:
    """Return the texts of a dictionary."""
    encoding, block = _decompressed(encoding, block)
    _require_plain_texts(encoding)
    width, begin = struct.unpack_from("<II", block) if len(block) >= 8 else (0, 0)
    if width != 32 or not 8 <= begin <= len(block):
        raise ValueError("a dictionary's offsets are no 32-bit numbers")
    return slice_texts(block[8:begin], block[begin:], n_values)


def slice_texts(offsets: bytes, data: bytes, n_values: int) -> list[bytes]:
    """Return the parts of ``data`` between 32-bit offsets."""
    if len(offsets) < 4 * (n_values + 1):
        raise ValueError("texts have fewer offsets than values")
    places = np.frombuffer(offsets, "<u4", n_values + 1)
    if places[-1] > len(data) or bool((places[1:] < places[:-1]).any()):
        raise ValueError("the offsets of texts don't lie in their data")
    return [data[start:end] for start, end in pairwise(places.tolist())]


def flat_bits(encoding: bytes) -> int:
    """Return the width in bits of a flat encoding. Raises ValueError for another encoding."""
    kind, fields = _encoding(encoding)
    if kind != _FLAT:
        raise ValueError("a value is not stored as it is")
    return _width(fields)


def _decompressed(encoding: bytes, block: bytes) -> tuple[bytes, bytes]:
    """Return a block with general compression removed, and the encoding of the result."""
    kind, fields = _encoding(encoding)
    if kind != _GENERAL:
        return encoding, block
    require_known(fields, (1, 3), "an encoding")
    if number_of(read_fields(bytes_of(fields, 1)), 1) != _LZ4:
        raise ValueError("a dictionary is compressed in a way that is not read here")
    return bytes_of(fields, 3), _decompress_lz4(block)


def _encoding(message: bytes) -> tuple[int, dict[int, list[int | bytes]]]:
    """Return which encoding a message describes, and that encoding's fields."""
    fields = read_fields(message)
    if len(fields) != 1:
        raise ValueError("an encoding is none or several")
    (kind,) = fields
    return kind, read_fields(bytes_of(fields, kind))


def _width(fields: dict[int, list[int | bytes]]) -> int:
    """Return the bits of an unpacked number; buffers that are compressed again are refused."""
    require_known(fields, (1, 3), "an encoding")
    bits = number_of(fields, 1)
    if bits not in (8, 16, 32, 64):
        raise ValueError(f"numbers have {bits} bits")
    return bits


def _require_plain_texts(encoding: bytes) -> None:
    """Raise ValueError unless texts stand one behind the other, with 32-bit offsets."""
    kind, fields = _encoding(encoding)
    if kind != _VARIABLE:
        raise ValueError(f"texts are encoded in a way that is not read here ({kind})")
    require_known(fields, (1,), "an encoding")
    if flat_bits(bytes_of(fields, 1)) != 32:
        raise ValueError("texts have offsets of another width")


def _flat(bits: int, buffer: bytes, n_values: int) -> Numbers:
    if len(buffer) < n_values * bits // 8:
        raise ValueError("numbers are missing")
    return np.frombuffer(buffer, f"<u{bits // 8}", n_values)


def _runs(
    fields: dict[int, list[int | bytes]], values: bytes, lengths: bytes, n_values: int
) -> Numbers:
    """Decode runs: pairs of a value and its number of repetitions, up to 255."""
    require_known(fields, (1, 2), "an encoding")
    bits = flat_bits(bytes_of(fields, 1))
    if flat_bits(bytes_of(fields, 2)) != 8:
        raise ValueError("runs have lengths of another width")
    counts = np.frombuffer(lengths, np.uint8)
    if int(counts.sum()) != n_values:
        raise ValueError("runs are of another length than their values")
    return np.repeat(_flat(bits, values, len(counts)), counts)


def _unpack_inline(bits: int, buffer: bytes, n_values: int) -> Numbers:
    """Decode a block that begins with the number of bits it was packed to."""
    width = int(_flat(bits, buffer, 1)[0])
    return _unpack_blocks(bits, width, buffer[bits // 8 :], n_values, whole=True)


def _unpack_blocks(
    bits: int, width: int, buffer: bytes, n_values: int, *, whole: bool = False
) -> Numbers:
    """Decode blocks of 1,024 numbers of ``width`` bits; the last may be unpacked."""
    if not 0 <= width <= bits:
        raise ValueError("numbers are packed to more bits than they have")
    words = np.frombuffer(buffer, f"<u{bits // 8}", len(buffer) // (bits // 8))
    per_block = _BLOCK * width // bits
    n_blocks, n_rest = divmod(n_values, _BLOCK)
    is_raw = bool(n_rest) and not whole and len(words) == n_blocks * per_block + n_rest
    if n_rest and not is_raw:
        n_blocks += 1
    if whole and n_blocks > 1:
        raise ValueError("a block holds more numbers than fit")
    if len(words) < n_blocks * per_block + (n_rest if is_raw else 0):
        raise ValueError("packed numbers are missing")
    packed = words[: n_blocks * per_block].reshape(n_blocks, per_block)
    unpacked = _unpack(packed, bits, width).reshape(-1)
    if is_raw:
        unpacked = np.concatenate([unpacked, words[n_blocks * per_block :]])
    return unpacked[:n_values]


def _unpack(packed: Numbers, bits: int, width: int) -> Numbers:
    """Return the numbers ``(n_blocks, 1024)`` of blocks of packed words."""
    n_blocks, lanes = len(packed), _BLOCK // bits
    unpacked = np.zeros((n_blocks, _BLOCK), packed.dtype)
    if width == 0:
        return unpacked
    rows = packed.reshape(n_blocks, width, lanes)
    mask = packed.dtype.type((1 << width) - 1)
    for row, place in enumerate(_places(bits)):
        word, shift = divmod(row * width, bits)
        value = rows[:, word] >> packed.dtype.type(shift)
        if shift + width > bits:
            value = value | rows[:, word + 1] << packed.dtype.type(bits - shift)
        unpacked[:, place : place + lanes] = value & mask
    return unpacked


@cache
def _places(bits: int) -> list[int]:
    """Return the index of the first value in each row of packed words."""
    rows = np.arange(bits)
    places: list[int] = (_ORDER[rows // 8] * 16 + rows % 8 * 128).tolist()
    return places


def _symbols(table: bytes) -> list[bytes] | None:
    """Return the symbol of each code, ``None`` where the texts are not compressed."""
    if len(table) != _FSST_TABLE:
        raise ValueError("a table of symbols is of another size")
    (header,) = _FSST_HEADER.unpack_from(table)
    if header >> 32 != _FSST_MAGIC:
        raise ValueError("a table of symbols is none")
    if not header & 1 << 24:
        return None
    count = header & 255
    lengths = table[8 + 8 * count : 8 + 9 * count]
    if any(length > 8 for length in lengths):
        raise ValueError("a symbol is longer than eight bytes")
    return [table[8 + 8 * i : 8 + 8 * i + length] for i, length in enumerate(lengths)]


def _expand(text: bytes, symbols: list[bytes]) -> bytes:
    parts = []
    codes = iter(text)
    for code in codes:
        if code == _ESCAPE:
            parts.append(bytes((next(codes, 0),)))
        elif code < len(symbols):
            parts.append(symbols[code])
        else:
            raise ValueError("a code stands for no symbol")
    return b"".join(parts)


def _decompress_lz4(block: bytes) -> bytes:
    """Return the decompressed LZ4 block behind a length (lz4's doc/lz4_Block_format.md)."""
    if len(block) < 4:
        raise ValueError("a compressed block is cut off")
    (size,) = struct.unpack_from("<I", block)
    if size > min(255 * len(block), _MOST_DICTIONARY_BYTES):
        raise ValueError("a compressed block claims to hold more than it can")
    out = bytearray()
    at = 4
    while at < len(block):
        token = block[at]
        n_literals, at = _lz4_length(block, at + 1, token >> 4)
        out += block[at : at + n_literals]
        at += n_literals
        if at >= len(block):
            break
        offset = int.from_bytes(block[at : at + 2], "little")
        n_repeated, at = _lz4_length(block, at + 2, token & 15)
        n_repeated += 4
        if not 0 < offset <= len(out) or len(out) + n_repeated > size:
            raise ValueError("a compressed block is damaged")
        start = len(out) - offset
        seen = bytes(out[start : start + n_repeated])
        out += (seen * (n_repeated // len(seen) + 1))[:n_repeated]
    if len(out) != size:
        raise ValueError("a compressed block is damaged")
    return bytes(out)


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length < 15:
        return length, at
    while True:
        if at >= len(block):
            raise ValueError("a compressed block is cut off")
        length, at = length + block[at], at + 1
        if block[at - 1] != 255:
            return length, at
