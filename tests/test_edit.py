"""Setting a value in a configuration file keeps everything else in it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbindex.configuration.edit import set_values
from kbindex.configuration.file import TABLE
from testing.repositories import Repo, run

pytestmark = pytest.mark.quick

KEPT = """\
# Ours

bundle = "docs"   # the handbook
exclude = [
  "drafts/**",  # never
]
"""


def test_comments_order_and_lists_stay() -> None:
    edited = set_values(KEPT, {"bundle": "notes", "embedder": "hash"})
    assert edited == KEPT.replace('"docs"', '"notes"') + 'embedder = "hash"\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        'bundle = "a"',
        "'bundle' = 'a'\n",
        '"bundle"="a" # quoted\n',
        'bundle = """\nover\nlines"""\n',
        'embedder = "hash"\n\n\n',
    ],
)
@pytest.mark.parametrize("value", ["docs", 'a "b"', "back\\slash", "ñandú/漢字", "a\tb", "it's"])
def test_a_value_is_set_whatever_stands_there(text: str, value: str) -> None:
    edited = set_values(text, {"bundle": value})
    assert tomllib.loads(edited) == tomllib.loads(text) | {"bundle": value}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(deadline=None)
def test_any_text_can_be_a_value(value: str) -> None:
    assert tomllib.loads(set_values(KEPT, {"bundle": value}))["bundle"] == value


def test_line_ends_stay() -> None:
    edited = set_values(KEPT.replace("\n", "\r\n"), {"embedder": "hash"})
    assert edited == KEPT.replace("\n", "\r\n") + 'embedder = "hash"\r\n'
    assert "\r" not in set_values(KEPT, {"embedder": "hash"})


PYPROJECTS = {
    "a table": '[project]\nname = "x"\n\n[tool.kbindex]\nbundle = "docs"\n\n[tool.x]\ny = 1\n',
    "dotted keys": '[project]\nname = "x"\n\n[tool]\nkbindex.bundle = "docs"\n',
    "an inline table": '[tool]\nkbindex = { bundle = "docs" }\nother = 1\n',
}


@pytest.mark.parametrize("text", PYPROJECTS.values(), ids=PYPROJECTS)
def test_pyproject_is_edited_where_the_settings_are(text: str) -> None:
    before, after = tomllib.loads(text), tomllib.loads(set_values(text, {"bundle": "b"}, TABLE))
    assert after["tool"]["kbindex"] == {"bundle": "b"}
    after["tool"]["kbindex"]["bundle"] = "docs"
    assert after == before


@pytest.fixture
def project(repo: Repo) -> Repo:
    """A repository with its settings in pyproject.toml."""
    (repo.root / "kbindex.toml").unlink()
    repo.write("pyproject.toml", '# ours\n[tool.kbindex]\nembedder = "hash" # for now\n')
    repo.write('docs "new"/a.md', "# A\n\nLamps.\n")
    return repo


def test_init_sets_what_pyproject_holds(project: Repo) -> None:
    before = (project.root / "pyproject.toml").read_text()
    done = run(project, "init", "--hooks", "none", "--bundle", 'docs "new"')
    assert done.code == 0, done.err
    after = (project.root / "pyproject.toml").read_text()
    assert after == before + 'bundle = "docs \\"new\\""\n'
    assert not (project.root / "kbindex.toml").exists()
    assert "pyproject.toml" in project.git("diff", "--cached", "--name-only").splitlines()
    assert run(project, "query", "lamps").code == 1  # the documents are not staged yet


def test_init_does_not_stage_other_edits_of_pyproject(project: Repo) -> None:
    project.git("add", "--all")
    file = project.root / "pyproject.toml"
    file.write_text(file.read_text() + "\n[tool.mine]\nx = 1\n")
    done = run(project, "init", "--hooks", "none", "--bundle", 'docs "new"')
    assert done.code == 0, done.err
    assert "stage it with git add -- pyproject.toml" in done.err
    assert "mine" not in project.git("show", ":pyproject.toml")
    assert "mine" in file.read_text()
