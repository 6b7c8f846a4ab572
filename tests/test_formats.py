"""Older and newer formats, and damage to ``recipe.json``: what each verb says and what mends it."""

from __future__ import annotations

import json

import pytest

from testing.documents import NOTE
from testing.index import forget_local_state, init_and_commit, update_and_commit
from testing.repositories import Repo, Template, run

RECIPE = ".kbindex/recipe.json"
N_CHUNKS = 7


@pytest.fixture
def built(from_template: Template) -> Repo:
    """A copy of a repository with rows in the table and in the WAL, its index committed."""

    def fill(repo: Repo) -> None:
        repo.write("bundle/lamps.md", NOTE)
        repo.write("bundle/plain.md", "Just a paragraph, without any heading.\n")
        init_and_commit(repo)
        repo.write("bundle/late.md", "Came by the WAL.\n")
        update_and_commit(repo)

    return from_template("formats", fill)


def rewritten(name: str, text: str) -> str | None:
    """Return what becomes of the recipe."""
    content = json.loads(text)
    without = {part: value for part, value in content.items() if part != "chunker"}
    return {
        "older": json.dumps(content | {"format": 0, "embedder": "was a string"}),
        "newer": json.dumps({"format": 2, "needs": "0.7.2", "everything else": "is different"}),
        "no JSON": text[:30],
        "a field missing": json.dumps(without, indent=2) + "\n",
        "a field more": json.dumps(content | {"more": 1}, indent=2, ensure_ascii=False) + "\n",
        "conflict": f"<<<<<<< ours\n{text}=======\n{{}}\n>>>>>>> theirs\n",
        "pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "crlf": text.replace("\n", "\r\n"),
        "gone": None,
    }[name]


SAID = {
    "older": "the index has format 0, older than the 1 that is read here",
    "newer": "the index has format 2, newer than the 1 that is read here",
    "no JSON": "is not a recipe (",
    "a field missing": "lacks or garbles a field ('chunker')",
    "a field more": "was rewritten: line ends, fields or their order are others",
    "conflict": "holds conflict markers",
    "pointer": "is a Git LFS pointer, not the file",
    "crlf": "was rewritten: line ends, fields or their order are others",
    "gone": "is missing (or in conflict), while the rest of the index is there",
}
RULE = {"older": "recipe-mismatch", "newer": "recipe-mismatch", "conflict": "conflict-markers"}
REFUSING = [
    ("query", "lamps"),
    ("query", "lamps", "--mode", "lexical"),
    ("get", "lamps"),
    ("related", "lamps"),
    ("context", "lamps", "--budget", "200"),
    ("status",),
    ("checkpoint",),
    ("compact",),
    ("hook", "pre-commit"),
    ("hook", "pre-merge-commit"),
]
EACH = pytest.mark.parametrize("name", SAID)


def damage(repo: Repo, name: str) -> None:
    """Commit another recipe, as somebody without hooks, in a clone without local state."""
    changed = rewritten(name, (repo.root / RECIPE).read_text())
    if changed is None:
        (repo.root / RECIPE).unlink()
    else:
        repo.write(RECIPE, changed)
    repo.commit("damage", "--no-verify")
    forget_local_state(repo)


@EACH
def test_every_verb_says_one_thing_with_its_remedy_and_exits_3(built: Repo, name: str) -> None:
    damage(built, name)
    before = built.git("ls-files", "--stage")
    remedy = "pip install 'kbindex>=0.7.2'" if name == "newer" else "kbindex update"
    for arguments in REFUSING:
        done = run(built, *arguments)
        assert done.code == 3, arguments
        assert done.out == ""
        message, mend = done.err.splitlines()
        assert message.startswith(f"kbindex: {RECIPE}: {SAID[name]}")
        assert mend.startswith(f"kbindex: remedy: {remedy}")
    assert built.git("ls-files", "--stage") == before
    assert built.git("status", "--porcelain") == ""


@EACH
@pytest.mark.parametrize("options", [(), ("--rev", "HEAD"), ("--strict",), ("--audit", "2")])
def test_check_names_the_recipe_alone(built: Repo, name: str, options: tuple[str, ...]) -> None:
    damage(built, name)
    done = run(built, "check", "--format", "json", *options)
    assert done.code == 3
    [problem] = done.json()["problems"]
    assert (problem["rule"], problem["path"]) == (RULE.get(name, "damaged-file"), RECIPE)
    assert problem["message"].startswith(SAID[name])
    assert problem["remedy"].startswith("pip" if name == "newer" else "kbindex update")
    assert ("nothing was audited" in done.err) == ("--audit" in options)


@EACH
def test_diff_goes_on_and_says_it_once(built: Repo, name: str) -> None:
    damage(built, name)
    done = run(built, "diff", "HEAD~1", "HEAD")
    assert done.code == 0
    assert "recipe: there is no readable recipe on one side" in done.out
    assert done.err.count(SAID[name]) == 1
    assert "remedy: " in done.err
    assert run(built, "diff", "HEAD", "staged").err.count(SAID[name]) == 1


@EACH
def test_hooks_after_the_fact_name_what_mends_it(built: Repo, name: str) -> None:
    damage(built, name)
    head = built.git("rev-parse", "HEAD").strip()
    pushed = f"refs/heads/main {head} refs/heads/main {'0' * 40}\n".encode()
    after = run(built, "hook", "post-commit")
    push = run(built, "hook", "pre-push", stdin=pushed)
    assert (after.code, push.code) == (0, 1)
    for done, subject in ((after, "the index in HEAD"), (push, "refs/heads/main: its index")):
        if name == "newer":  # an update would refuse
            assert f"{subject} can't be used: {RECIPE}: {SAID[name]}" in done.err
            assert "remedy: pip install 'kbindex>=0.7.2'" in done.err
        else:
            found = "stale" if name in RULE else "damaged"
            assert f"{subject} is {found}; mend it with: kbindex update && git" in done.err


@pytest.mark.parametrize("name", [name for name in SAID if name != "newer"])
def test_an_update_says_so_mends_it_and_embeds_nothing(built: Repo, name: str) -> None:
    before = built.git("ls-files", "--stage", ".kbindex")
    damage(built, name)
    dry = run(built, "update", "--dry-run")
    done = run(built, "update")
    assert done.code == 0, done.err
    first = "recipe: index format: 0 → 1" if name == "older" else f"{RECIPE}: {SAID[name]}"
    assert first in done.out.splitlines()[0]
    assert f"{N_CHUNKS} in all, 0 kept, {N_CHUNKS} reused, 0 embedded in 0 calls" in done.out
    assert dry.out.replace(" to embed in ", " embedded in ") == done.out
    assert run(built, "check", "--strict").code == 0
    if name != "older":  # the table stands: each row names its embedder
        assert built.git("ls-files", "--stage", ".kbindex") == before


def test_an_update_leaves_a_newer_format_alone(built: Repo) -> None:
    damage(built, "newer")
    before = built.git("ls-files", "--stage")
    for verb in (("update",), ("update", "--dry-run"), ("init", "--hooks", "none")):
        done = run(built, *verb)
        assert done.code == 3
        assert "remedy: pip install 'kbindex>=0.7.2'" in done.err
    assert built.git("ls-files", "--stage") == before


# A migration never leaves an index that looks full and is empty


def test_an_older_index_whose_rows_can_t_be_read_is_embedded_anew(built: Repo) -> None:
    for file in (built.root / ".kbindex").rglob("*"):
        if file.is_file() and file.suffix in (".lance", ".arrow"):
            file.write_bytes(b"of another time")
    built.git("checkout", "--quiet", "--orphan", "alone")  # no parent has the rows either
    damage(built, "older")
    done = run(built, "update")
    assert done.code == 0, done.err
    assert f"{N_CHUNKS} embedded in 1 calls" in done.out
    assert f"of these, {N_CHUNKS} because of the recipe" in done.out
    assert run(built, "check", "--strict", "--audit", "99").code == 0
    found = run(built, "query", "lamps", "--format", "json").json()["retrieval"]["coverage"]
    assert found["dense"] == found["lexical"] == found["chunks"] == N_CHUNKS


@pytest.mark.parametrize("name", ["older", "crlf"])
def test_an_index_that_can_t_be_covered_stays_as_it_is(built: Repo, name: str) -> None:
    built.write("bundle/bad.md", b"\xff\n")
    damage(built, name)
    before = built.git("ls-files", "--stage")
    done = run(built, "update")
    assert done.code == 1
    assert "bundle/bad.md:1: it is not UTF-8" in done.err
    assert built.git("ls-files", "--stage") == before
    assert run(built, "check").code == 3
    built.git("rm", "--quiet", "bundle/bad.md")
    assert "0 embedded" in run(built, "update").out
    assert run(built, "check").code == 0


def test_a_recipe_in_conflict_is_named_while_the_merge_goes_on(built: Repo) -> None:
    for number, name in enumerate(("one", "two")):
        built.git("checkout", "--quiet", "-b", name, "main")
        built.write("kbindex.toml", f'embedder = "hash"\nchunk_tokens = {64 + number}\n')
        built.git("add", "--all")
        assert run(built, "update").code == 0
        built.commit(name)
    built.git("merge", "--quiet", "one", check=False)
    built.write("kbindex.toml", 'embedder = "hash"\nchunk_tokens = 64\n')
    done = run(built, "query", "lamps", "--mode", "lexical")
    assert done.code == 3
    assert f"{RECIPE}: {SAID['gone']}" in done.err
    assert "remedy: kbindex update" in done.err
