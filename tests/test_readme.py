"""The README is a real session: its commands run, its output is theirs, its links lead on."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer

from kbindex.cli import app
from kbindex.document.anchors import Anchors
from kbindex.document.markdown import parse
from testing.commands import run_program
from testing.repositories import ROOT, Repo, clone_own

README = ROOT / "README.md"
LINKED = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "bundle").rglob("*.md")),
]
NOT_RUN = ("pip", "pipx", "make", "git clone", "python -m venv", "brew", "uv")
"""They install something or take minutes; of make the rules are looked at."""


@dataclass(frozen=True)
class Example:
    """A command of the README and what it prints; ``…`` there stands for anything."""

    command: str
    output: str
    exit_code: int


def examples(text: str) -> Iterator[Example]:
    for block in re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            code = re.search(r"\s# exit (\d+)\s*$", line)
            command = line[: code.start()] if code else line
            yield Example(command.strip(), output.strip("\n"), int(code[1]) if code else 0)


EXAMPLES = list(dict.fromkeys(examples(README.read_text(encoding="utf-8"))))
RUN = [example for example in EXAMPLES if not example.command.startswith(NOT_RUN)]


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_own(tmp_path_factory.mktemp("own") / "clone")


def matches(expected: str, printed: str) -> bool:
    """Whether ``printed`` is ``expected``, whose ``…`` stand for any text.

    Scores are not compared: each new document of the bundle moves them a little.
    """
    expected, printed = (re.sub(r"  \d\.\d\d$", "", t, flags=re.M) for t in (expected, printed))
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, printed.strip("\n"), re.DOTALL) is not None


def test_an_ellipsis_stands_for_any_text() -> None:
    assert matches("a\n…", "a\nb\nc\n")
    assert matches("a: …", "a: 1")
    assert matches("a", "a\n")
    assert not matches("a", "a\nb")
    assert not matches("a…", "b")
    assert matches("a.md:1: A  0.53\n…", "a.md:1: A  0.68\nb.md:1: B  0.01\n")


def test_examples_are_read_with_their_output_and_exit_code() -> None:
    text = "```console\n$ one x\nout\n…\n$ two   # exit 1\n```\n```toml\n$ no\n```\n"
    assert list(examples(text)) == [Example("one x", "out\n…", 0), Example("two", "", 1)]


def test_the_readme_shows_the_main_verbs() -> None:
    assert len(RUN) >= 3
    for verb in ("query", "get", "check"):
        assert any(example.command.startswith(f"kbindex {verb}") for example in RUN), verb


@pytest.mark.model
@pytest.mark.parametrize("example", RUN, ids=lambda example: example.command)
def test_a_command_of_the_readme_does_what_it_shows(
    cloned: Path, environment: dict[str, str], example: Example
) -> None:
    done = run_program("bash", "-c", example.command, cwd=cloned, environment=environment)
    assert done.code == example.exit_code, done.err
    assert matches(example.output, done.out) or not example.output, done.out


@pytest.mark.parametrize(
    "command", [e.command for e in EXAMPLES if e.command.startswith("make ")] or ["make test"]
)
def test_a_make_rule_of_the_readme_exists(cloned: Path, command: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    words = shlex.split(command)
    done = subprocess.run(
        ["make", "-n", *words[1:]], cwd=cloned, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_install_commands_of_the_readme_are_those_of_pip() -> None:
    commands = [e.command for e in EXAMPLES if e.command.startswith(("pip ", "pipx "))]
    for command in commands:
        assert shlex.split(command)[1] == "install"
        if shlex.split(command)[-1] == ".":
            assert (ROOT / "pyproject.toml").exists()


@pytest.mark.parametrize("verb", sorted(typer.main.get_command(app).commands))
def test_every_verb_stands_in_the_readme(verb: str) -> None:
    assert f"kbindex {verb}" in README.read_text(encoding="utf-8")


def links(text: str) -> Iterator[str]:
    """Yield the targets of links, those in code aside."""
    text = re.sub(r"^(```+|~~~+).*?^\1[`~]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    yield from re.findall(r"\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)", text)
    yield from re.findall(r"^\[[^\]]+\]:\s+(\S+)", text, re.MULTILINE)


def anchors(file: Path) -> list[str]:
    given = Anchors()
    return [given.add(heading.text) for heading in parse(file.read_text("utf-8")).headings]


@pytest.mark.parametrize("file", LINKED, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(file: Path) -> None:
    for target in links(file.read_text(encoding="utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        # A leading slash begins at the bundle, in Open Knowledge Format.
        base = ROOT / "bundle" if path.startswith("/") else file.parent
        found = (base / path.lstrip("/")) if path else file
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), target


def test_links_are_found_outside_code() -> None:
    text = "[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n[g](<h.md> 'title')\n[i]: j.md\n"
    assert list(links(text)) == ["b.md", "h.md", "j.md"]


def test_the_readme_documents_every_exit_code_of_the_contract(
    environment: dict[str, str], cloned: Path
) -> None:
    table = re.findall(r"^\| (\d+) \| ", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(code) for code in table} >= {0, 1, 2, 3, 4, 70, 130}
    assert Repo(cloned, environment).call("get", "no/such/document").code == 2
