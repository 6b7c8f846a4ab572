"""The snippets of bundle/procedures/set-up-ci.md are valid, and what they run works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.repositories import Repo

PAGE = Path(__file__).parent.parent / "bundle/procedures/set-up-ci.md"
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def commands(content: Any) -> list[str]:
    """Return every shell command below ``run``, ``script`` or ``before_script``."""
    if isinstance(content, list):
        return [found for item in content for found in commands(item)]
    if not isinstance(content, dict):
        return []
    found = []
    for key, value in content.items():
        if key in ("run", "script", "before_script"):
            found += value if isinstance(value, list) else [value]
        else:
            found += commands(value)
    return found


def kbindex_calls() -> list[str]:
    calls = [line for snippet in SNIPPETS for line in commands(yaml.safe_load(snippet))]
    return [call for call in calls if call.startswith("kbindex ")]


def test_there_is_a_snippet_for_github_and_one_for_gitlab() -> None:
    loaded = [yaml.safe_load(snippet) for snippet in SNIPPETS]
    assert any("jobs" in content for content in loaded if isinstance(content, dict))
    assert any(
        "script" in content.get("kbindex", {}) for content in loaded if isinstance(content, dict)
    )
    assert len(kbindex_calls()) >= 3


@pytest.mark.parametrize("call", kbindex_calls())
def test_what_a_job_runs_passes_on_a_fresh_shallow_clone_and_fails_on_a_stale_one(
    indexed: Repo, tmp_path: Path, call: str
) -> None:
    indexed.write("bundle/lamps.md", "# Lamps\n\nChanged behind the hook's back.\n")

    def job(name: str) -> Repo:
        root = tmp_path / name
        indexed.git("clone", "--quiet", "--depth=1", f"file://{indexed.root}", str(root))
        return Repo(root, indexed.environment | {"GITHUB_ACTIONS": "true"})

    fresh = job("fresh").call(*call.split()[1:])
    assert fresh.code == 0, fresh.out + fresh.err
    indexed.commit("stale", "--no-verify")
    stale = job("stale").call(*call.split()[1:])
    assert stale.code == 1
    assert "stale-document" in stale.out
    if "github" in call:
        assert stale.out.startswith("::error file=bundle/lamps.md,")


def test_notices_fail_a_check_only_when_asked(indexed: Repo) -> None:
    indexed.write("bundle/odd.md", "---\ntitle: a: b\n---\n\nText.\n")
    indexed.commit()
    assert indexed.call("check").code == 0
    assert "(notice)" in indexed.call("check").out
    assert indexed.call("check", "--fail-on-notices").code == 1
