"""The names of a model that Ollama takes for one. Pure."""

from __future__ import annotations

_USUAL_PARTS = ("registry.ollama.ai/", "library/")


def canonical_name(model: str) -> str:
    """Return the shortest name of a model, in lower case: ``registry.ollama.ai/library/X`` is X.

    The tag ``latest`` is left out, any other stays.
    """
    name = model.lower()
    for part in _USUAL_PARTS:
        name = name.removeprefix(part)
    return name.removesuffix(":latest")
