"""Patterns select what git would select, and none of them can keep anybody waiting."""

from __future__ import annotations

import random
import signal
import time

import pytest

from kbindex.configuration.patterns import Patterns
from testing.repositories import Repo

pytestmark = pytest.mark.quick

PIECES = ["a", "b", "-", ".", "*", "*", "?", "[ab]", "[!a]", "[^b]", "[a-b]", "\\a", "\\*"]


def some_pattern(rng: random.Random) -> str:
    parts = [
        "**" if rng.random() < 0.2 else "".join(rng.choices(PIECES, k=rng.randint(1, 4)))
        for _ in range(rng.randint(1, 4))
    ]
    if parts[-1] == "**":
        parts.append("a")  # of "a/**/" git says otherwise than its documentation
    return "/" * (rng.random() < 0.3) + "/".join(parts) + "/" * (rng.random() < 0.3)


def some_path(rng: random.Random) -> str:
    names = ("".join(rng.choices("aab-.", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 5)))
    return "/".join("a" if name in (".", "..") else name for name in names)


def test_one_pattern_selects_what_git_ignores_by_it(repo: Repo) -> None:
    rng = random.Random(20)
    cases = []
    for number in range(400):
        pattern = some_pattern(rng)
        repo.write(f"{number}/.gitignore", f"{pattern}\n")
        cases += [(number, pattern, some_path(rng)) for _ in range(10)]
    asked = "".join(f"{number}/{path}\0" for number, _, path in cases).encode()
    answer = repo.git("check-ignore", "--no-index", "--stdin", "-z", stdin=asked)
    ignored = set(answer.split("\0"))
    assert len(ignored) > 200
    for number, pattern, path in cases:
        is_ignored = f"{number}/{path}" in ignored
        assert Patterns([pattern]).match(path) == is_ignored, (pattern, path)


@pytest.mark.parametrize(
    ("lines", "path", "is_selected"),
    [
        (["*.md"], "a/b.md", True),
        (["*.md", "!a.md"], "x/a.md", False),
        (["!a.md", "*.md"], "x/a.md", True),
        (["drafts/", "!drafts/kept.md"], "drafts/kept.md", False),
        (["!drafts/kept.md", "drafts/"], "drafts/kept.md", False),
        (["*.md", "!drafts/"], "drafts/a.md", True),
        (["drafts/"], "drafts", False),
        (["drafts"], "drafts", True),
        (["**"], "a", True),
        (["**/"], "a", False),
        (["**/"], "a/b", True),
        (["a/**"], "a/b/c", True),
        (["a/**"], "a", False),
        (["a/**/c"], "a/c", True),
        (["*"], "a\nb/c", True),
        (["a\nb"], "a\nb/c", True),
        (["\\ "], " ", True),
        (["a  "], "a", True),
        (["\\#a", "\\!b"], "#a", True),
        (["\\#a", "\\!b"], "!b", True),
        (["# a", "", " ", "/"], "a", False),
        (["[]-]x"], "-x", True),
        (["[]-]x"], "]x", True),
        (["a[!b]c"], "a/c", False),
        (["[+-9]"], "a/b", False),
        (["größe[nr].md"], "größen.md", True),
        (["\udcff*"], "\udcffx", True),
        ([], "a", False),
    ],
)
def test_the_last_that_matches_the_file_decides_then_its_folders(
    lines: list[str], path: str, is_selected: bool
) -> None:
    assert Patterns(lines).match(path) is is_selected


@pytest.mark.parametrize("line", ["!", "\\", "a\\", "[", "[a", "[z-a]", "![", "//", "!/", "a\\/b"])
def test_a_line_that_is_no_pattern_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="is no pattern") as caught:
        Patterns(["*.md", line])
    assert f"'{line}'" in str(caught.value)


LONG = "a" * 250
DEEP = "/".join("a" * 2000)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 5 + "*b", LONG),
        ("*a" * 250 + "*b", LONG),
        ("*?" * 125 + "b", LONG),
        ("*[!b]" * 50 + "*b", LONG),
        ("*" + "a" * 120 + "b*" + "a" * 120 + "b", LONG),
        ("**/a/" * 5 + "b", DEEP),
        ("**/a/" * 100 + "b", DEEP),
        ("**/*a*a/" * 60 + "b", DEEP),
        ("a/**/" * 100 + "b/", DEEP),
        ("**/" + "*/" * 200 + "b", DEEP),
    ],
    ids=lambda value: value[:10],
)
def test_no_pattern_takes_long_for_any_path(pattern: str, path: str) -> None:
    patterns = Patterns([pattern[:512]])
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(5)
    began = time.process_time()
    try:
        patterns.match(path)
    finally:
        signal.alarm(0)
    assert time.process_time() - began < 0.1


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError("rather than to wait for minutes")
