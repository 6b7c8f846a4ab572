"""The recipe: what made an index. Its JSON form, the embedder's identity, and the key of a text.

Two vectors are comparable when their embedders' identities are equal; a key names the identity
and the exact text that was shown, so equal keys mean equal vectors.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache

from kbindex.configuration.config import Config
from kbindex.core.errors import DamagedIndexError, OlderFormatError, RecipeError
from kbindex.core.model import MOST_DIMENSIONS, EmbedderIdentity, Origin, Recipe, Rule
from kbindex.core.paths import LFS_POINTER, POINTER_REASON
from kbindex.core.text import printable

FORMAT = 1
"""The format on disk that this version reads and writes (bundle/reference/recipe-json.md)."""

CHUNKER_VERSION = 1
"""Raise when ``chunk`` would give other regions for the same document and limits."""

COMPOSITION_VERSION = 1
"""Raise when ``compose`` would show the embedder another text for the same region."""

NEEDS = "0.1.0"
"""The first version of kbindex with these three. It stands in the recipe when it is not the first
of all, so that older ones can name it as what they are lacking."""

_FIRST = "0.1.0"
_MOST_BYTES = 1 << 16
_LONGEST_NAME = 256
_LONGEST_PREFIX = 4096
_MOST_CANARIES = 16
_CANARY = re.compile(r"[A-Za-z0-9+/]{1,2048}={0,2}")
_LARGEST_NUMBER = 1 << 24

TOKENIZER = "cl100k_base"

NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """One part of a recipe with its two values."""

    part: str
    before: str
    after: str
    is_of_embedder: bool = False
    """Whether the embedder differs, and not what is embedded."""

    def __str__(self) -> str:
        return f"{self.part}: {self.before} → {self.after}"


def versions() -> tuple[int, int, int]:
    """Return the versions of format, chunker and composition."""
    return FORMAT, CHUNKER_VERSION, COMPOSITION_VERSION


def wanted_recipe(config: Config, embedder: EmbedderIdentity, origin: Origin = NO_ORIGIN) -> Recipe:
    """Return the recipe of an index that this version makes under a configuration."""
    return Recipe(
        embedder=embedder,
        chunk_tokens=config.chunk_tokens,
        chunk_max_tokens=config.max_tokens,
        format=FORMAT,
        chunker=CHUNKER_VERSION,
        composition=COMPOSITION_VERSION,
        needs=NEEDS,
        origin=origin,
    )


def render_recipe(recipe: Recipe) -> str:
    """Return the text of ``recipe.json``; equal recipes give equal bytes."""
    content: dict[str, object] = {
        "format": recipe.format,
        **({} if recipe.needs == _FIRST else {"needs": recipe.needs}),
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
    """Read ``recipe.json``. Raises DamagedIndexError, or RecipeError for another format.

    Equal recipes are equal bytes, so a file with other line ends, fields or order is damaged, too.
    """
    if len(text) > _MOST_BYTES:
        raise DamagedIndexError(path, f"is no recipe: it has more than {_MOST_BYTES} characters")
    if "<<<<<<< " in text:
        raise DamagedIndexError(path, "holds conflict markers", rule=Rule.CONFLICT_MARKERS)
    if text.startswith(LFS_POINTER):
        raise DamagedIndexError(path, POINTER_REASON)
    try:
        content = json.loads(text)
        found = int(content["format"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DamagedIndexError(path, f"is not a recipe ({error})") from None
    if found < FORMAT:
        raise OlderFormatError(path, found, FORMAT)
    if found > FORMAT:
        reason = f"the index has format {found}, newer than the {FORMAT} that is read here"
        raise RecipeError(reason, _upgrade(content.get("needs")), path=path)
    try:
        embedder = dict(content["embedder"])
        dtype = str(embedder.pop("dtype"))
        identity = EmbedderIdentity(**embedder)
        if not _is_sane(identity):
            raise ValueError("the embedder's fields have other types")
        recipe = Recipe(
            embedder=identity,
            chunk_tokens=int(content["chunker"]["tokens"]),
            chunk_max_tokens=int(content["chunker"]["max_tokens"]),
            chunker=int(content["chunker"]["version"]),
            composition=int(content["composition"]["version"]),
            needs=str(content.get("needs", _FIRST)),
            dtype=dtype,
            origin=_parse_origin(content.get("origin", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedIndexError(path, f"lacks or garbles a field ({error})") from None
    _require_sane(recipe, path)
    if render_recipe(recipe) != text:
        raise DamagedIndexError(path, "was rewritten: line ends, fields or their order are others")
    return recipe


def refuse_newer(recipe: Recipe) -> None:
    """Raise RecipeError if a newer kbindex made the index: an update would downgrade it."""
    for part, found, known in (
        ("chunker", recipe.chunker, CHUNKER_VERSION),
        ("composition", recipe.composition, COMPOSITION_VERSION),
    ):
        if found > known:
            raise RecipeError(
                f"a newer kbindex made the index: {part} version {found}, here it is {known}",
                _upgrade(recipe.needs),
            )


def refuse_other_composition(recipe: Recipe) -> None:
    """Raise RecipeError for another composition: its keys, and so its vectors, can't be derived."""
    if recipe.composition != COMPOSITION_VERSION:
        refuse_newer(recipe)
        raise RecipeError(
            f"the index was made with composition version {recipe.composition}, here it is "
            f"{COMPOSITION_VERSION}: its vectors can't be matched with passages",
            "kbindex update   (--mode lexical works meanwhile)",
            mended_by_update=True,
        )


def _upgrade(needs: object) -> str:
    known = isinstance(needs, str) and re.fullmatch(r"[0-9][0-9a-z.]{0,20}", needs)
    return f"pip install 'kbindex>={needs}'" if known else "pip install --upgrade kbindex"


def _parse_origin(content: dict[str, object]) -> Origin:
    canaries = content.get("canaries", [])
    if not isinstance(canaries, list):
        raise TypeError("the canaries are no list")
    return Origin(str(content.get("server", "")), tuple(map(str, canaries)))


def _is_sane(identity: EmbedderIdentity) -> bool:
    fields = asdict(identity)
    dimension = fields.pop("dimension")
    are_texts = all(isinstance(value, str) for value in fields.values())
    return are_texts and type(dimension) is int and 0 < dimension <= MOST_DIMENSIONS


def _require_sane(recipe: Recipe, path: str) -> None:
    """Raise DamagedIndexError for values outside the ranges of settings and embedders."""
    embedder, origin = recipe.embedder, recipe.origin
    names = (embedder.provider, embedder.model, embedder.digest, recipe.needs, origin.server)
    prefixes = (embedder.query_prefix, embedder.document_prefix)
    numbers = (recipe.chunk_tokens, recipe.chunk_max_tokens, recipe.chunker, recipe.composition)
    is_sane = (
        all(len(name) <= _LONGEST_NAME and printable(name) == name for name in names)
        and all(len(prefix) <= _LONGEST_PREFIX for prefix in prefixes)
        and all(printable(line) == line for prefix in prefixes for line in prefix.split("\n"))
        and len(origin.canaries) <= _MOST_CANARIES
        and all(map(_CANARY.fullmatch, origin.canaries))
        and all(0 <= number <= _LARGEST_NUMBER for number in numbers)
        and recipe.dtype == "float16"
    )
    if not is_sane:
        raise DamagedIndexError(path, "holds a value that kbindex never writes")


def compare_recipes(before: Recipe, after: Recipe) -> list[RecipeChange]:
    """Return every part in which two recipes differ.

    For different embedders these are name and dimension, for the same one each field that differs.
    """
    fields_before, fields_after = _flatten(before), _flatten(after)
    differing = [part for part in fields_before if fields_before[part] != fields_after[part]]
    of_embedder = _of_embedder(before)
    if "embedder" in differing:
        differing = [part for part in differing if part not in _OF_THE_MODEL]
    changes = [
        RecipeChange(
            part,
            *_in_words(part, fields_before[part], fields_after[part]),
            is_of_embedder=part in of_embedder,
        )
        for part in differing
    ]
    one, other = before.embedder.digest, after.embedder.digest
    if one != other and weights(one) == weights(other):
        was, now = (recipe.origin.server or "a server" for recipe in (before, after))
        changes.append(RecipeChange("embedder's computation, of the same weights", was, now, True))
    return changes


def weights(digest: str) -> str:
    """Return the digest of the weights, without the mark of a server that computes others."""
    return digest.split("+", 1)[0]


def name_changes(changes: Iterable[RecipeChange]) -> str:
    """Return the changes as a phrase, separated by semicolons."""
    return "; ".join(map(str, changes))


_OF_THE_MODEL = ("embedder digest", "embedder query_prefix", "embedder document_prefix")
_LONGEST = 24


def _in_words(part: str, before: object, after: object) -> tuple[str, str]:
    """Return two values as text for people: quoted if spaces would be lost, digests shortened."""
    if not isinstance(before, str) or not isinstance(after, str):
        return str(before), str(after)
    if part == "embedder digest":
        return _as_far_as_they_differ(before, after)
    quote = any(value != value.strip() or not value for value in (before, after))
    return (f'"{before}"', f'"{after}"') if quote else (before, after)


def _as_far_as_they_differ(before: str, after: str) -> tuple[str, str]:
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    until = max(same + 1, _LONGEST)
    before, after = (v if len(v) <= until else f"{v[:until]}…" for v in (before, after))
    return before, after


def _of_embedder(recipe: Recipe) -> dict[str, object]:
    fields = asdict(recipe.embedder)
    fields["digest"] = weights(recipe.embedder.digest)
    rest = {f"embedder {n}": v for n, v in fields.items() if n not in ("provider", "model")}
    return {"embedder": recipe.embedder.name, **rest}


def _flatten(recipe: Recipe) -> dict[str, object]:
    return _of_embedder(recipe) | {
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
