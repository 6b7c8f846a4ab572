"""One walk down the whole line: set up, commit through the hook, check, search, read, merge."""

from __future__ import annotations

import pytest

from testing.repositories import Repo, run

pytestmark = pytest.mark.quick


def test_what_is_committed_is_indexed_searched_and_read(repo: Repo) -> None:
    repo.write("bundle/lamps.md", "# Lamps\n\n## Oil\n\nThe wick is trimmed at dusk.\n")
    assert run(repo, "init", "--hooks", "native").code == 0
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "First")
    assert run(repo, "check", "--strict", "--rev", "HEAD").code == 0
    repo.git("checkout", "--quiet", "-b", "other")
    repo.write("bundle/gulls.md", "# Gulls\n\nThey steal bread from the keeper.\n")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "Gulls")
    repo.git("checkout", "--quiet", "main")
    repo.write("bundle/lamps.md", "# Lamps\n\n## Oil\n\nThe wick is trimmed at dawn.\n")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "Dawn")
    repo.git("merge", "--quiet", "--no-edit", "other")
    assert run(repo, "check", "--strict", "--rev", "HEAD").code == 0
    (hit, *_) = run(repo, "query", "--format", "json", "wick dawn").json()["hits"]
    assert hit["matched_section"] == {"heading": ["Lamps", "Oil"], "anchor": "oil"}
    got = run(repo, "get", f"{hit['id']}#oil")
    assert got.out == "## Oil\n\nThe wick is trimmed at dawn.\n"
