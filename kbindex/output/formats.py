"""The output formats: apart from ``render`` to be cheap."""

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
