"""The output formats, apart from ``render`` so that the command line starts without it."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JSONL = "jsonl"
    GITHUB = "github"
    SARIF = "sarif"
