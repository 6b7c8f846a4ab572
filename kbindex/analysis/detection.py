"""Tells the language of a text with py3langid (Lui and Baldwin 2012)."""

from __future__ import annotations

import io
import lzma
import threading
from array import array
from functools import cache
from typing import Any

_LEAST_PROBABILITY = 0.3
"""Of notes of 10 words in 41 languages 97% are told right and 0.4% wrong; with 0.1 it is 98% and
0.4%, but of 5 words 2.5% are wrong instead of 1.3% (``benchmarks/language.py``)."""
_loading = threading.Lock()


def detect_code(text: str) -> str | None:
    """Return the ISO 639 code of the language of ``text``, ``None`` when unsure."""
    code, probability = _identifier().classify(text)
    return str(code) if probability >= _LEAST_PROBABILITY else None


def prepare_detection() -> None:
    """Load the model in the background: it takes half a second."""
    threading.Thread(target=_identifier, daemon=True).start()


def _identifier() -> Any:
    with _loading:
        return _loaded_identifier()


@cache
def _loaded_identifier() -> Any:
    """Return the identifier, made as ``LanguageIdentifier.from_model_file`` (0.4) makes it.

    That one unpacks 68 MB into a temporary file, for which a full disk has no room.
    """
    import numpy as np
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

    with lzma.open(MODEL_DIR / MODEL_FILE) as packed:
        content = io.BytesIO(packed.read())
    with np.load(content, allow_pickle=False) as model:
        automaton = {name: _as_array(model[name]) for name in ("nextmove", "nextmove_row")}
        return LanguageIdentifier(
            model["ptc"],
            model["pc"],
            model["classes"].tolist(),
            automaton["nextmove"],
            model["out_feat"].tolist(),
            norm_probs=True,
            tk_row=automaton["nextmove_row"],
        )


def _as_array(numbers: Any) -> array[int]:
    found = array({2: "H", 4: "I", 8: "L"}[numbers.dtype.itemsize])
    found.frombytes(numbers.tobytes())
    return found
