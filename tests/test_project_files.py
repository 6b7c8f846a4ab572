"""The workflows run what the Makefile has, on the versions that the project names."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github").rglob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RULES = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def load(name: str) -> dict[str, Any]:
    # YAML 1.1 reads the key "on" as a truth value.
    text = (ROOT / ".github/workflows" / name).read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("\non:", '\n"on":'))


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_for_the_host_is_valid_yaml(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_a_workflow_calls_rules_that_exist_and_pins_its_actions(name: str) -> None:
    called = [step["run"] for step in steps(load(name)) if step.get("run", "").startswith("make ")]
    assert called == ["make lint", "make test", "make check"]
    assert {call.split()[1] for call in called} <= RULES
    used = [step["uses"] for step in steps(load(name)) if "uses" in step]
    assert all(re.search(r"@(v\d+|release/v\d+)$", action) for action in used)


def test_the_matrix_spans_the_versions_that_the_project_names() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [c.removeprefix(prefix) for c in PROJECT["project"]["classifiers"] if prefix in c]
    tried = load("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    minors = [version.removeprefix("3.") for version in tried]
    assert {min(named, key=int), max(named, key=int)} <= set(minors) <= set(named)
    assert PROJECT["project"]["requires-python"] == f">=3.{min(named, key=int)}"


def test_no_workflow_may_write_and_only_the_last_job_may_publish() -> None:
    for name in ("ci.yml", "release.yml"):
        assert load(name)["permissions"] == {"contents": "read"}
    jobs = load("release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert "permissions" not in jobs["build"]


def test_lint_comes_first_where_a_change_is_tried() -> None:
    calls = re.findall(r"^make (\w+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert calls == ["lint", "test", "check"]


@pytest.mark.parametrize("folder", ["bundle", "tests/material/bundle"])
def test_a_question_quotes_what_its_document_says(folder: str) -> None:
    file = ROOT / ("tests" if folder == "bundle" else "tests/material") / "questions.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        for wanted in question["relevant"]:
            text = (ROOT / folder / f"{wanted['id']}.md").read_text(encoding="utf-8")
            assert wanted.get("quote", "") in text, (question["id"], wanted["id"])
