"""Configuration: defaults, ``kbindex.toml`` or ``[tool.kbindex]``, ``KBINDEX_*`` → Config.

Pure: the texts of the files and the environment come in as arguments. Nothing in a repository's
configuration can name a command to run.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbindex.errors import UsageError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE_NAME = "kbindex.toml"
PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class Config:
    """Every setting, its default and its unit (bundle/reference/configuration.md)."""

    bundle: str = "bundle"
    include: tuple[str, ...] = ("*.md",)
    exclude: tuple[str, ...] = ()
    index_dir: str = ".kbindex"
    embedder: str = "builtin"
    ollama_host: str = ""
    """Where Ollama is; a host of a repository's own choice needs its user's approval."""
    ollama_timeout: int = 120
    """Seconds that one call may take."""
    query_prefix: str = "auto"
    """Put before queries for a model of Ollama; ``auto`` is what the model wants."""
    document_prefix: str = "auto"
    chunk_tokens: int = 256
    """The size aimed at, in cl100k tokens."""
    chunk_max_tokens: int = 0
    """The largest size; 0 is one and a half times ``chunk_tokens``."""
    dense_weight: float = -1.0
    """Weight of the dense half, 0–1; negative is the embedder's own."""
    language: str = "auto"
    """Of the documents, for stems and stop words; ``auto`` tells it from each text."""
    checkpoint_every: int = 16
    """WAL files after which the hook checkpoints on the default branch; 0 is never."""
    default_branch: str = ""
    hook_max_chunks: int = 400
    """More chunks to embed than this are not embedded inside a commit."""

    @cached_property
    def _included(self) -> GitIgnoreSpec:
        return _compile_patterns(self.include)

    @cached_property
    def _excluded(self) -> GitIgnoreSpec:
        return _compile_patterns(self.exclude)

    @property
    def max_tokens(self) -> int:
        return self.chunk_max_tokens or self.chunk_tokens * 3 // 2

    def is_document(self, path: str) -> bool:
        """Whether a path from the repository's root is a document of the bundle."""
        if not self.in_bundle(path):
            return False
        below = self.document_path(path)
        return self._included.match_file(below) and not self._excluded.match_file(below)

    def in_bundle(self, path: str) -> bool:
        return self.bundle == "." or path.startswith(f"{self.bundle}/")

    def document_path(self, path: str) -> str:
        """Return the path below the bundle."""
        return path if self.bundle == "." else path[len(self.bundle) + 1 :]

    def document_id(self, path: str) -> str:
        """Return what a document is called: its path below the bundle without ``.md``."""
        return self.document_path(path).removesuffix(".md")


def _compile_patterns(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # 30 ms that a query or an idle hook need not pay

    return GitIgnoreSpec.from_lines(patterns)


def load_config(
    kbindex_toml: str | None, pyproject_toml: str | None, environment: Mapping[str, str]
) -> Config:
    """Merge the sources, the strongest last. Raises UsageError naming the source at fault."""
    settings = _from_pyproject(pyproject_toml)
    source = f"[tool.kbindex] in {PYPROJECT}"
    if kbindex_toml is not None:
        settings, source = _parse_toml(kbindex_toml, FILE_NAME), FILE_NAME
    config = _apply(Config(), settings, source)
    return _apply(config, _from_environment(environment), "the environment")


def _from_pyproject(text: str | None) -> dict[str, Any]:
    if text is None or "kbindex" not in text:
        return {}
    settings = _parse_toml(text, PYPROJECT).get("tool", {}).get("kbindex", {})
    return dict(settings) if isinstance(settings, dict) else {}


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for field in fields(Config):
        value = environment.get(f"KBINDEX_{field.name.upper()}")
        if value is None:
            continue
        kind: type[Any] = type(field.default)
        try:
            settings[field.name] = value.split() if kind is tuple else kind(value)
        except ValueError:
            raise UsageError(
                f"KBINDEX_{field.name.upper()}='{value}' is not {_KINDS[kind]}"
            ) from None
    return settings


_KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", tuple: "a list"}


def _apply(config: Config, settings: Mapping[str, Any], source: str) -> Config:
    defaults = {field.name: field.default for field in fields(Config)}
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise UsageError(f"{source} sets '{name}', which is unknown", f"known are: {known}")
        kind: type[Any] = type(defaults[name])
        checked[name] = _checked(name, value, kind, source)
    config = replace(config, **checked)
    _verify(config, source)
    return config


def _checked(name: str, value: Any, kind: type[Any], source: str) -> Any:
    if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UsageError(f"{source} sets '{name}' to {value!r}, which is not {_KINDS[kind]}")
    if name in ("bundle", "index_dir"):
        return value.rstrip("/").removeprefix("./") or "."
    return value


def _verify(config: Config, source: str) -> None:
    folders = (config.bundle, config.index_dir)
    if any(".." in folder.split("/") or folder.startswith("/") for folder in folders):
        raise UsageError(f"{source}: bundle and index_dir must lie inside the repository")
    if config.index_dir == "." or config.index_dir == config.bundle:
        raise UsageError(f"{source}: index_dir needs a folder of its own")
    if config.chunk_tokens < 32 or config.max_tokens < config.chunk_tokens:
        raise UsageError(
            f"{source}: chunk_tokens is at least 32 and chunk_max_tokens at least chunk_tokens"
        )
    if config.language not in ("auto", "none"):
        from kbindex.language import known_languages, named_language

        if named_language(config.language) is None:
            raise UsageError(
                f"{source}: language '{config.language}' is unknown",
                f"use auto, none, or one of {', '.join(known_languages())}",
            )
    if config.ollama_timeout < 1:
        raise UsageError(f"{source}: ollama_timeout is at least 1 second")
    if not -math.inf < config.dense_weight <= 1:  # NaN, too
        raise UsageError(f"{source}: dense_weight lies between 0 and 1")
