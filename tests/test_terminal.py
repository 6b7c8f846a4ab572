"""Nothing that a repository holds steers a terminal, forges a line, or breaks out of a command."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbindex.commands.update import render_report
from kbindex.configuration.recipe import RecipeChange
from kbindex.core.model import Finding
from kbindex.core.text import as_text, escape_hidden, shell_word
from kbindex.index.report import Report
from kbindex.output.console import note, put, put_document
from kbindex.output.formats import Format
from kbindex.output.render import render_findings
from testing.repositories import Repo, Template, run

STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|^(::error::)?forged",
    re.MULTILINE,
)
HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
EVIL = "\x1b]0;x\x07\x1b[31m\x9b2J\u202egnp\u2066\u200f\u2028"
LINES = "\n::error::forged\nforged:fresh"
QUOTED = json.dumps(EVIL + LINES)
HEAD = f"---\ntitle: {QUOTED}\ntype: {QUOTED}\ntags: [{QUOTED}]\n---\n\n# Lamps{EVIL}\n\n"
NAME = f"bundle/it's `$(x)` {EVIL}{LINES}.md"


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.items() for text in texts_of(list(item)))
    elif isinstance(value, list):
        yield from (text for item in value for text in texts_of(item))


@pytest.fixture
def evil(from_template: Template) -> Repo:
    """A repository whose every text is made to steer a terminal, with a stale index."""

    def fill(repo: Repo) -> None:
        repo.write(NAME, f"{HEAD}The lamps burn {EVIL} paraffin.\n\n## Part{EVIL}\n\nOf it.\n")
        repo.write(f"bundle/gone{EVIL}{LINES}.md", "# Gone\n\nA text about lamps.\n")
        repo.write(f"bundle/bad{EVIL}{LINES}.md", b"\xff\xfe\n")
        repo.write("bundle/yaml.md", f"---\ntitle: [{EVIL[:8]}\n---\n# Yaml\n")
        repo.write("questions.jsonl", _questions())
        assert run(repo, "init", "--hooks", "none").code == 1
        repo.commit("first")

    repo = from_template("evil", fill)
    repo.git("rm", "--quiet", f"bundle/gone{EVIL}{LINES}.md")
    repo.write(NAME, f"{HEAD}The lamps burn oil.\n\n## Part{EVIL}\n\nOf it all.\n")
    repo.write(f"bundle/new{EVIL}{LINES}.md", "# New\n")
    repo.git("add", "--all")
    repo.write(f"bundle/unstaged{EVIL}{LINES}.md", "# Unstaged\n")
    repo.write(NAME, f"{HEAD}The lamps burn gas.\n")
    return repo


def _questions() -> str:
    wanted = [{"id": NAME[7:-3]}]
    question = {"id": f"q{EVIL}{LINES}", "query": f"lamps{EVIL}", "relevant": wanted}
    return json.dumps(question | {"kind": EVIL}) + "\n"


VERBS = [
    "query lamps",
    "query lamps --text --explain",
    f"query lamps --type {EVIL}",
    f"get {EVIL}",
    f"get bundle/gon{EVIL}",
    f"related gone{EVIL}{LINES}",
    "status",
    "check",
    "check --rev HEAD",
    "check --strict",
    "check --format github",
    "diff",
    "diff --format markdown",
    "diff --queries questions.jsonl",
    "diff --queries questions.jsonl --format markdown",
    "eval questions.jsonl",
    "doctor",
    "update --dry-run",
    f"update --re-embed {EVIL}",
    "hook pre-commit",
    "update",
    "resolve",
]
JSON_VERBS = ["query lamps --text", "status", "check", "check --format sarif", "diff", "doctor"]
JSON_VERBS += ["diff --queries questions.jsonl", "eval questions.jsonl"]


def test_text_output_is_harmless_whatever_the_repository_holds(
    evil: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(evil.root)
    for verb in VERBS:
        done = run(evil, *verb.split(" "))
        assert done.code in (0, 1, 2), (verb, done)
        assert done.out + done.err, verb
        for stream in (done.out, done.err):
            found = STEERING.search(stream)
            assert not found, (verb, found, stream)
        for line in done.err.splitlines():
            assert line.startswith(("kbindex: ", "  ")), (verb, done.err)


def test_json_output_is_exact_and_harmless(evil: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(evil.root)
    for verb in JSON_VERBS:
        form = [] if "--format" in verb else ["--format", "json"]
        done = run(evil, *verb.split(" "), *form)
        assert done.code in (0, 1), (verb, done.err)
        assert not HIDDEN.search(done.out.replace("\n", "")), verb
        texts = list(texts_of(done.json()))
        assert any(EVIL in text for text in texts) or "sarif" in verb or verb == "doctor", verb
    got = run(evil, "get", NAME[7:-3], "--format", "json")
    assert got.json()["text"] == evil.blob(NAME, revision="").decode()
    assert run(evil, "get", NAME[7:-3]).out == got.json()["text"]  # into a pipe
    assert EVIL in run(evil, "context", "lamps", "--budget", "900").out


def test_a_remedy_with_an_odd_name_is_one_command(evil: Repo) -> None:
    evil.git("reset", "--quiet", "--", NAME, f"bundle/gone{EVIL}{LINES}.md")
    evil.git("rm", "--cached", "--quiet", NAME)
    problems = run(evil, "check", "--format", "json").json()["problems"]
    remedies = [p["remedy"] for p in problems if p.get("remedy", "").startswith("git add --")]
    (remedy,) = remedies
    subprocess.run(["bash", "-c", remedy], cwd=evil.root, env=evil.environment, check=True)
    assert NAME in evil.git("ls-files", "-z").split("\0")
    assert not (evil.root / "x").exists()


@given(st.text(st.characters(exclude_characters="\0")))
def test_a_word_of_a_command_is_safe_to_print_and_means_the_path(path: str) -> None:
    path = path.encode("utf-8", "replace").decode("utf-8")
    word = shell_word(path)
    assert as_text([word]) == word
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout == path.encode()


def test_words_of_a_command() -> None:
    assert shell_word("a b") == "'a b'"
    assert shell_word("it's") == "'it'\"'\"'s'"
    assert shell_word("-rf") == "'-rf'"
    assert shell_word("a\nb\udcff") == r"$'a\012b\377'"
    assert shell_word("docs/a", bare=True) == "docs/a"
    assert shell_word("-rf", bare=True) == "'-rf'"
    assert shell_word("a$b", bare=True) == "'a$b'"


def test_each_line_of_a_report_is_one_whatever_it_names() -> None:
    change = RecipeChange(LINES, EVIL, LINES)
    report = Report(recipe_changes=[change], repaired=[LINES])
    finding = Finding("git", "error", LINES, LINES)
    for text in (render_report(report), render_findings([finding], Format.TEXT)):
        assert not STEERING.search(text), text


def test_what_is_printed_is_made_printable_where_it_is_printed(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    put("a\x1b\nb\n")
    put("")
    put_document("a\x1b\r\nb")
    assert capsysbinary.readouterr().out.decode() == "a\ufffd\nb\na\x1b\r\nb"


def test_what_is_harmless_in_json_stays() -> None:
    family = json.dumps("\u0646\u200c\u0645 👨\u200d👩 é\t", ensure_ascii=False)
    assert escape_hidden(family) == family
    marks = json.dumps("".join(map(chr, (0x7F, 0x9B, 0x61C, 0x200E, 0x202E, 0x2028, 0x2069))))
    assert escape_hidden(json.dumps(json.loads(marks), ensure_ascii=False)) == marks


def test_further_lines_of_a_message_are_indented(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    note("one\nkbindex: two\x1b\n\ud800")
    assert (
        capsysbinary.readouterr().err.decode() == "kbindex: one\n  kbindex: two\ufffd\n  \ufffd\n"
    )
