"""The recipe: what made an index. Its JSON form, the embedder's identity, and the key of a text.

Two vectors are comparable when their embedders' identities are equal; a key names the identity
and the exact text that was shown, so equal keys mean equal vectors.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache

from kbindex.config import Config
from kbindex.errors import DamagedIndexError, OlderFormatError, RecipeError
from kbindex.model import EmbedderIdentity, Origin, Recipe

FORMAT = 1
"""The format on disk that this version reads and writes (bundle/reference/recipe-json.md)."""

CHUNKER_VERSION = 1
"""Raise when ``chunk`` would give other regions for the same document and limits."""

COMPOSITION_VERSION = 1
"""Raise when ``compose`` would show the embedder another text for the same region."""

TOKENIZER = "cl100k_base"

NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """One part of a recipe that differs, like with like."""

    part: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.part}: {self.before} → {self.after}"


def wanted_recipe(config: Config, embedder: EmbedderIdentity, origin: Origin = NO_ORIGIN) -> Recipe:
    """Return the recipe that a configuration and this version of kbindex make."""
    return Recipe(
        embedder=embedder,
        chunk_tokens=config.chunk_tokens,
        chunk_max_tokens=config.max_tokens,
        format=FORMAT,
        chunker=CHUNKER_VERSION,
        composition=COMPOSITION_VERSION,
        origin=origin,
    )


def render_recipe(recipe: Recipe) -> str:
    """Return the text of ``recipe.json``; equal recipes give equal bytes."""
    content: dict[str, object] = {
        "format": recipe.format,
        "chunker": {
            "version": recipe.chunker,
            "tokenizer": TOKENIZER,
            "tokens": recipe.chunk_tokens,
            "max_tokens": recipe.chunk_max_tokens,
        },
        "composition": {"version": recipe.composition},
        "embedder": {**asdict(recipe.embedder), "dtype": recipe.dtype},
    }
    if recipe.origin != NO_ORIGIN:
        content["origin"] = asdict(recipe.origin)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def parse_recipe(text: str, path: str) -> Recipe:
    """Read ``recipe.json``. Raises DamagedIndexError, or RecipeError for another format."""
    if "<<<<<<< " in text:
        raise DamagedIndexError(path, "holds conflict markers", "kbindex update")
    try:
        content = json.loads(text)
        found = int(content["format"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedIndexError(path, f"is not a recipe ({error})") from None
    if found != FORMAT:
        says = f"{path}: the index has format {found}, {{}} than the {FORMAT} that is read here"
        if found < FORMAT:
            raise OlderFormatError(says.format("older"), "kbindex update")
        raise RecipeError(says.format("newer"), "pip install --upgrade kbindex")
    try:
        embedder = dict(content["embedder"])
        dtype = str(embedder.pop("dtype"))
        identity = EmbedderIdentity(**embedder)
        if not _is_sane(identity):
            raise ValueError("the embedder's fields have other types")
        return Recipe(
            embedder=identity,
            chunk_tokens=int(content["chunker"]["tokens"]),
            chunk_max_tokens=int(content["chunker"]["max_tokens"]),
            chunker=int(content["chunker"]["version"]),
            composition=int(content["composition"]["version"]),
            dtype=dtype,
            origin=_parse_origin(content.get("origin", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedIndexError(path, f"lacks or garbles a field ({error})") from None


def _parse_origin(content: dict[str, object]) -> Origin:
    canaries = content.get("canaries", [])
    if not isinstance(canaries, list):
        raise TypeError("the canaries are no list")
    return Origin(str(content.get("server", "")), tuple(map(str, canaries)))


def _is_sane(identity: EmbedderIdentity) -> bool:
    fields = asdict(identity)
    dimension = fields.pop("dimension")
    are_texts = all(isinstance(value, str) for value in fields.values())
    return are_texts and type(dimension) is int and dimension > 0


def compare_recipes(before: Recipe, after: Recipe) -> list[RecipeChange]:
    """Name every part in which two recipes differ, the embedder's fields one by one."""
    fields_before = _flatten(before)
    fields_after = _flatten(after)
    changes = [
        RecipeChange(part, str(fields_before[part]), str(fields_after[part]))
        for part in fields_before
        if fields_before[part] != fields_after[part]
    ]
    one, other = before.embedder.digest, after.embedder.digest
    if one != other and weights(one) == weights(other):
        servers = (recipe.origin.server or "a server" for recipe in (before, after))
        changes.append(RecipeChange("embedder's computation, of the same weights", *servers))
    return changes


def weights(digest: str) -> str:
    """Return the digest of the weights alone, without the mark of a server that computes apart."""
    return digest.split("+", 1)[0]


def _flatten(recipe: Recipe) -> dict[str, object]:
    embedder = {f"embedder {name}": value for name, value in asdict(recipe.embedder).items()}
    embedder["embedder digest"] = weights(recipe.embedder.digest)
    return embedder | {
        "vector type": recipe.dtype,
        "chunker version": recipe.chunker,
        "chunk_tokens": recipe.chunk_tokens,
        "chunk_max_tokens": recipe.chunk_max_tokens,
        "composition version": recipe.composition,
        "index format": recipe.format,
    }


@cache
def identity_id(identity: EmbedderIdentity) -> str:
    """Return the short name of an identity that stands in every row: 12 hex digits."""
    return _identity_digest(identity)[:12]


@cache
def _identity_digest(identity: EmbedderIdentity) -> str:
    canonical = json.dumps(asdict(identity), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def recipe_id(recipe: Recipe) -> str:
    """Return a name for everything that decides whether an outline is valid: 16 hex digits."""
    content = render_recipe(replace(recipe, origin=NO_ORIGIN))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def key_of(identity: EmbedderIdentity, shown: str) -> str:
    """Return the key of a text under an embedder: 32 hex digits."""
    content = f"{_identity_digest(identity)}\0{shown}"
    return hashlib.sha256(content.encode()).hexdigest()[:32]
