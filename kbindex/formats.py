"""The output formats, apart from ``render`` so that the command line needn't import it."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    GITHUB = "github"
    SARIF = "sarif"
