"""Configuration: defaults, ``kbindex.toml`` or ``[tool.kbindex]``, ``KBINDEX_*`` → Config.

Pure: the texts of the files and the environment come in as arguments. Nothing in a repository's
configuration can name a command to run. Not here: how a file is read, and what a value may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from kbindex.configuration.allowed import overlap, refusal
from kbindex.configuration.file import FILE_NAME, PYPROJECT, read_settings
from kbindex.configuration.patterns import Patterns
from kbindex.core.errors import UsageError

_LONGEST_SHOWN = 80
"""Characters of a value that a message names."""
_LARGEST = 1 << 53


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
    openai_base_url: str = ""
    """Base URL of an OpenAI-compatible server; as ``ollama_host``."""
    openai_timeout: int = 120
    """Seconds that one call may take."""
    query_timeout: int = 30
    """Seconds that one call may take for a query, which can be answered from words."""
    query_prefix: str = "auto"
    """Put before queries for a model of a server; ``auto`` is what the model wants."""
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
    def _included(self) -> Patterns:
        return Patterns(self.include)

    @cached_property
    def _excluded(self) -> Patterns:
        return Patterns(self.exclude)

    @property
    def max_tokens(self) -> int:
        return self.chunk_max_tokens or self.chunk_tokens * 3 // 2

    def is_document(self, path: str) -> bool:
        """Whether a path from the repository's root is a document of the bundle."""
        if not self.in_bundle(path):
            return False
        below = self.document_path(path)
        return self._included.match(below) and not self._excluded.match(below)

    def excludes(self, path: str) -> bool:
        """Whether ``exclude`` leaves out a path of the bundle."""
        return self._excluded.match(self.document_path(path))

    def in_bundle(self, path: str) -> bool:
        return self.bundle == "." or path.startswith(f"{self.bundle}/")

    def document_path(self, path: str) -> str:
        """Return the path below the bundle."""
        return path if self.bundle == "." else path[len(self.bundle) + 1 :]

    def document_id(self, path: str) -> str:
        """Return what a document is called: its path below the bundle without ``.md``."""
        return self.document_path(path).removesuffix(".md")


def load_config(
    kbindex_toml: str | None, pyproject_toml: str | None, environment: Mapping[str, str]
) -> Config:
    """Merge the sources, the strongest last. Raises UsageError naming the source at fault.

    Without ``kbindex.toml`` its settings may stand in ``pyproject.toml``.
    """
    source = FILE_NAME if kbindex_toml is not None else f"[tool.kbindex] in {PYPROJECT}"
    config = _apply(Config(), read_settings(kbindex_toml, pyproject_toml), source)
    return _apply(config, _from_environment(environment), "the environment")


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
                f"KBINDEX_{field.name.upper()}={_shortened(value)} is not {_KINDS[kind]}"
            ) from None
    return settings


_KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", tuple: "a list"}


def _apply(config: Config, settings: Mapping[str, Any], source: str) -> Config:
    defaults = {field.name: field.default for field in fields(Config)}
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise UsageError(
                f"{source} sets {_shortened(name)}, which is unknown", f"known are: {known}"
            )
        checked[name] = _checked(name, value, type(defaults[name]), source)
        reason = refusal(name, checked[name])
        if reason:
            raise UsageError(f"{source} sets '{name}' to {_shortened(value)}: {name} {reason}")
    config = replace(config, **checked)
    _verify(config, source)
    return config


def _checked(name: str, value: Any, kind: type[Any], source: str) -> Any:
    """Return the value in the setting's type. Raises UsageError if it has another."""
    if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind is float and type(value) is int and abs(value) < _LARGEST:
        return float(value)
    if type(value) is not kind:
        raise UsageError(
            f"{source} sets '{name}' to {_shortened(value)}, which is not {_KINDS[kind]}"
        )
    if name in ("bundle", "index_dir"):
        return value.rstrip("/").removeprefix("./") or "."
    return value


def _shortened(value: object) -> str:
    """Return a value as a message can hold it."""
    try:
        shown = repr(value)
    except ValueError:  # written in hexadecimal, a number may have more digits than Python prints
        return "a number without end"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _verify(config: Config, source: str) -> None:
    """Refuse settings that don't go together, or whose meaning has to be looked up."""
    reason = overlap(config.bundle, config.index_dir)
    if reason:
        raise UsageError(
            f"{source}: {reason}", "set 'index_dir' to a folder beside the documents or among them"
        )
    if config.max_tokens < config.chunk_tokens:
        raise UsageError(f"{source}: chunk_max_tokens is at least chunk_tokens")
    if config.language not in ("auto", "none"):
        from kbindex.analysis.language import known_languages, named_language

        if named_language(config.language) is None:
            raise UsageError(
                f"{source}: language '{config.language}' is unknown",
                f"use auto, none, or one of {', '.join(known_languages())}",
            )
