"""``kbindex get``: documents, sections and passages come back exactly as they are indexed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from testing.documents import NOTE
from testing.index import init_and_commit
from testing.repositories import Repo, Template, copied

CRLF = (
    b"\xef\xbb\xbf# Begin\r\n\r\ntext \xf0\x9f\x97\xbc here\r\n\r\n## End\r\n\r\nno newline follows"
)
CONTROLS = b"# Bell\n\nring \x07 and \x1b[31mred\x1b[0m and \x00 and \xc2\x9b.\n"
DOCUMENTS: dict[str, str | bytes] = {
    "lamps.md": NOTE,
    "ops/rota.md": "# Rota\n\nInes takes Mondays.\n\n## Swaps\n\nAsk Jonas first.\n\n### Late\n\n"
    "Ring twice.\n\n## Pay & leave\n\nMonthly.\n",
    "plain.md": "Just a paragraph, without any heading.\n",
    "crlf.md": CRLF,
    "controls.md": CONTROLS,
    "odd#name.md": "# Odd\n\nA name with a hash sign.\n\n## Part\n\nOf it.\n",
    "empty-line.md": "one\ntwo\nthree\n",
}


@pytest.fixture
def shared(template: Template) -> Repo:
    """The documents, indexed; for tests that only read."""

    def fill(repo: Repo) -> None:
        repo.git("config", "core.autocrlf", "false")
        for path, text in DOCUMENTS.items():
            repo.write(f"bundle/{path}", text)
        init_and_commit(repo)
        assert repo.call("get", "plain").code == 0

    return template("get", fill)


@pytest.fixture
def library(shared: Repo, tmp_path: Path) -> Repo:
    """A copy to change."""
    return copied(shared, tmp_path / "library", shared.environment)


def got(repo: Repo, *arguments: str) -> bytes:
    """Return what ``get`` prints, byte for byte."""
    done = repo.call("get", *arguments)
    assert done.code == 0, done.err
    return done.out.encode("utf-8", "surrogateescape")


def test_a_document_goes_by_its_id_and_by_its_path(shared: Repo) -> None:
    for name in (
        "ops/rota",
        "ops/rota.md",
        "bundle/ops/rota.md",
        "bundle/ops/rota",
        "./bundle/ops/rota.md",
        "./ops/rota",
    ):
        done = shared.call("get", name)
        assert (done.code, done.out, done.err) == (0, DOCUMENTS["ops/rota.md"], ""), name


@pytest.mark.parametrize("name", ["crlf", "controls", "plain", "lamps", "empty-line"])
def test_text_comes_back_byte_for_byte(shared: Repo, name: str) -> None:
    content = DOCUMENTS[f"{name}.md"]
    wanted = content if isinstance(content, bytes) else content.encode()
    assert got(shared, name) == wanted


def test_pieces_of_a_document_add_up_to_its_bytes(shared: Repo) -> None:
    n_characters = len(CRLF.decode())
    spans = [f"{at}:{min(at + 20, n_characters)}" for at in range(0, n_characters, 20)]
    assert b"".join(got(shared, "crlf", "--span", span) for span in spans) == CRLF
    assert shared.kbindex("get", "crlf").out.encode() == CRLF  # and so does a process
    assert got(shared, "crlf", "--lines", "3:3") == "text 🗼 here\r\n".encode()
    assert got(shared, "crlf", "--section", "end") == b"## End\r\n\r\nno newline follows"


SWAPS = "## Swaps\n\nAsk Jonas first.\n\n### Late\n\nRing twice.\n\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ops/rota#swaps",),
        ("bundle/ops/rota.md#swaps",),
        ("ops/rota", "--section", "swaps"),
        ("ops/rota", "--section", "#swaps"),
        ("ops/rota", "--section", "Swaps"),
        ("ops/rota", "--section", "SWAPS"),
    ],
    ids=" ".join,
)
def test_a_section_with_its_subsections_goes_by_anchor_and_by_heading(
    shared: Repo, arguments: tuple[str, ...]
) -> None:
    done = shared.call("get", *arguments)
    assert (done.code, done.out) == (0, SWAPS)


def test_a_heading_with_punctuation_goes_by_its_words_and_by_its_anchor(shared: Repo) -> None:
    for section in ("Pay & leave", "pay & LEAVE", "pay--leave"):
        done = shared.call("get", "ops/rota", "--section", section)
        assert done.out == "## Pay & leave\n\nMonthly.\n"


def test_headings_that_occur_twice_are_each_reachable(shared: Repo) -> None:
    assert "Spare wicks" in shared.call("get", "lamps", "--section", "notes").out
    assert "cellar key" in shared.call("get", "lamps", "--section", "notes-1").out
    done = shared.call("get", "lamps", "--section", "Notes")
    assert "Spare wicks" in done.out
    assert "2 sections have this heading; the others are: notes-1" in done.err


def test_an_unknown_section_lists_the_real_ones_nearest_first(shared: Repo) -> None:
    for arguments in (("lamps", "--section", "note"), ("lamps#note",)):
        done = shared.call("get", *arguments)
        assert (done.code, done.out) == (2, "")
        assert "bundle/lamps.md has no section 'note'" in done.err
        assert "its sections are: notes, notes-1, cleaning" in done.err


def test_a_document_without_sections_says_so(shared: Repo) -> None:
    done = shared.call("get", "plain", "--section", "any")
    assert done.code == 2
    assert "has no sections" in done.err


def test_an_unknown_document_comes_with_suggestions(shared: Repo) -> None:
    done = shared.call("get", "ops/rotas")
    assert (done.code, done.out) == (2, "")
    assert "no document 'ops/rotas' is indexed" in done.err
    assert "nearest are: ops/rota" in done.err
    done = shared.call("get", "qqqqqqqqqqqq")
    assert done.code == 2
    assert "kbindex query finds documents by content" in done.err


def test_a_hash_sign_in_a_name_is_not_a_section(shared: Repo) -> None:
    assert shared.call("get", "odd#name").out == DOCUMENTS["odd#name.md"]
    assert shared.call("get", "odd#name#part").out == "## Part\n\nOf it.\n"


def test_a_span_is_code_points_and_lines_are_inclusive(shared: Repo) -> None:
    text = CRLF.decode()
    at = text.index("🗼")
    assert got(shared, "crlf", "--span", f"{at}:{at + 1}").decode() == "🗼"
    assert got(shared, "crlf", "--span", "0:0") == b""
    assert shared.call("get", "empty-line", "--lines", "2:3").out == "two\nthree\n"
    assert shared.call("get", "empty-line", "--lines", "2").out == "two\n"
    assert shared.call("get", "plain", "--span", f"0:{len(str(DOCUMENTS['plain.md']))}").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--span", "5:3"),
        ("--span", "0:999"),
        ("--span", "39:40"),
        ("--lines", "0:1"),
        ("--lines", "9:9"),
        ("--lines", "9:10"),
        ("--span", "a:b"),
        ("--span", "-1:2"),
        ("--span", ":"),
        ("--lines", ""),
        ("--lines", "1:2:3"),
        ("--lines", "1", "--span", "1:2"),
        ("--section", "x", "--lines", "1"),
    ],
    ids=" ".join,
)
def test_what_lies_outside_or_is_given_twice_is_a_usage_error(
    shared: Repo, arguments: tuple[str, ...]
) -> None:
    done = shared.call("get", "plain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err


def test_reversed_lines_are_named_without_an_unknown_limit(shared: Repo) -> None:
    done = shared.call("get", "plain", "--lines", "5:3")
    assert done.code == 2
    assert "None" not in done.err


def test_the_end_of_the_last_line_is_not_a_line(shared: Repo) -> None:
    assert shared.call("get", "empty-line", "--lines", "4:4").code == 2


def test_json_names_what_the_text_is(shared: Repo) -> None:
    done = shared.call("get", "lamps", "--section", "notes-1", "--format", "json")
    start = NOTE.rindex("## Notes")
    assert done.json() == {
        "id": "lamps",
        "path": "bundle/lamps.md",
        "title": "Lamps",
        "type": "Note",
        "section": {"heading": ["Notes"], "anchor": "notes-1"},
        "lines": [18, 20],
        "span": [start, len(NOTE)],
        "blob": shared.git("rev-parse", "HEAD:bundle/lamps.md").strip(),
        "text": NOTE[start:],
    }


def test_json_leaves_out_what_does_not_apply_and_keeps_every_character(shared: Repo) -> None:
    found = shared.call("get", "controls", "--format", "json").json()
    assert found.keys() == {"id", "path", "title", "lines", "span", "blob", "text"}
    assert found["text"] == CONTROLS.decode()
    assert found["lines"] == [1, 3]


def test_a_newer_text_in_the_work_tree_is_mentioned_and_not_printed(library: Repo) -> None:
    library.write("bundle/plain.md", "Something else.\n")
    done = library.call("get", "plain")
    assert (done.code, done.out) == (0, DOCUMENTS["plain.md"])
    assert "bundle/plain.md in the work tree differs from this, the indexed text" in done.err
    assert library.call("get", "lamps").err == ""
    (library.root / "bundle/plain.md").unlink()
    assert library.call("get", "plain").out == DOCUMENTS["plain.md"]


def test_what_is_staged_is_what_is_indexed(library: Repo) -> None:
    library.write("bundle/plain.md", "Something else.\n")
    library.git("add", "bundle")
    assert library.call("get", "plain").out == "Something else.\n"


def test_get_works_in_a_subfolder_and_with_repo(shared: Repo, tmp_path: Path) -> None:
    inside = shared.call("get", "ops/rota", cwd=shared.root / "bundle/ops")
    assert inside.out == DOCUMENTS["ops/rota.md"]
    outside = shared.call("--repo", str(shared.root), "get", "ops/rota", cwd=tmp_path)
    assert outside.out == DOCUMENTS["ops/rota.md"]


def test_a_name_with_odd_bytes_is_found(library: Repo) -> None:
    try:
        library.write("bundle/\udcff\udcfe y.md", "Odd bytes.\n")
    except OSError:
        pytest.skip("this file system wants UTF-8")
    library.git("add", "bundle")
    for name in ("\udcff\udcfe y", "bundle/\udcff\udcfe y.md"):
        done = library.call("get", name)
        assert (done.code, done.out) == (0, "Odd bytes.\n")
    done = library.call("get", "\udcff\udcfe y", "--format", "json")
    assert done.json()["id"] == "\udcff\udcfe y"


@pytest.mark.parametrize("verb", ["get controls", "context bell --budget 500"])
def test_control_characters_do_not_reach_a_terminal(shared: Repo, verb: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kbindex", *verb.split()],
        cwd=shared.root,
        env=shared.environment,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.wait() == 0
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "# Bell" in shown
    assert "ring \ufffd and \ufffd[31mred" in shown
    assert not set("\x00\x07\x1b\x9b") & set(shown)
