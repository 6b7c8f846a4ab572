"""The output formats, and what may reach a terminal: apart from ``render`` to be cheap."""

from __future__ import annotations

import re
from enum import StrEnum


class Format(StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JSONL = "jsonl"
    GITHUB = "github"
    SARIF = "sarif"


_CONTROL = re.compile(r"[\x00-\x08\n\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(line: str) -> str:
    """Return one line without anything that could steer a terminal or begin another line."""
    return _CONTROL.sub("\ufffd", line)
