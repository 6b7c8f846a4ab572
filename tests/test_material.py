"""Long documents and many questions about them, with the real model: a repository in material/.

Its texts are invented, and what they say of kbindex is not true of it: they are no documentation.
One has ten thousand words and no heading. Its index is committed beside them, so that a test embeds
nothing but its questions; material/README.md says how to make it again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kbindex.document.markdown import decode, parse_frontmatter
from kbindex.embed.builtin import BuiltinEmbedder
from kbindex.outline.states import Proven
from kbindex.storage.tree import open_index
from kbindex.storage.wal import decode_wal
from testing.repositories import Repo, make_environment

ROOT = Path(__file__).resolve().parent.parent
MATERIAL = ROOT / "tests/material"
TRANSCRIPT = "bundle/sources/design-review-transcript.md"
FACT = ("second Tuesday", "Cuxhaven", "tape drive", "Ines")

pytestmark = pytest.mark.model


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The material as a repository, in one commit with its index."""
    root = tmp_path_factory.mktemp("material") / "repository"
    shutil.copytree(MATERIAL, root)
    repo = Repo(root, make_environment(tmp_path_factory))
    repo.git("init", "--quiet", "--initial-branch=main")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "Material")
    return root


@pytest.fixture
def material(committed: Path, environment: dict[str, str]) -> Repo:
    return Repo(committed, environment)


@pytest.fixture(scope="session")
def embedder() -> BuiltinEmbedder:
    return BuiltinEmbedder()


def test_its_index_is_fresh(material: Repo) -> None:
    assert material.call("check", "--strict", "--rev", "HEAD").code == 0


def test_it_holds_ten_thousand_words_without_a_heading(material: Repo) -> None:
    text = decode(material.blob(TRANSCRIPT))
    body = text[parse_frontmatter(text).end :]
    assert len(body.split()) >= 10_000
    assert not re.search(r"^#", body, re.MULTILINE)


def test_answers_in_long_documents_are_found(material: Repo) -> None:
    """The gates are what half of the questions reached, less a question or two of noise."""
    gates = ("tail/span-hit@5>=0.7", "lexical/span-hit@5>=0.7", "coverage>=0.999", "round_trip>=1")
    options = [word for gate in gates for word in ("--gate", gate)]
    done = material.call("eval", "questions.jsonl", *options)
    assert done.code == 0, done.out


@pytest.mark.parametrize(
    "question",
    [
        "who carries a copy of the museum's data to the library basement?",
        "on which day of the month is the museum pilot's index saved, and onto what?",
    ],
)
def test_a_fact_at_the_end_of_a_long_document_is_found_by_meaning_alone(
    material: Repo, question: str
) -> None:
    assert not any(word.casefold() in question.casefold() for word in FACT)
    answer = material.call("query", "--mode", "dense", "--format", "json", question).json()
    hit = answer["hits"][0]
    assert hit["path"] == TRANSCRIPT
    lines = decode(material.blob(TRANSCRIPT)).split("\n")
    cited = "\n".join(lines[hit["lines"][0] - 1 : hit["lines"][1]])
    assert all(word in cited for word in FACT)
    got = material.call("get", hit["id"], "--span", "{}:{}".format(*hit["span"]))
    assert all(word in got.out for word in FACT)


def test_one_edited_sentence_embeds_at_most_three_chunks_in_the_same_commit(
    material: Repo, tmp_path: Path
) -> None:
    subprocess.run(["git", "clone", "--quiet", material.root, tmp_path / "edit"], check=True)
    repo = Repo(tmp_path / "edit", material.environment)
    repo.git("config", "core.hooksPath", str(ROOT / "hooks"))
    repo.git("checkout", "--quiet", "-b", "parrot")  # on the default branch a checkpoint may be due
    before = set(repo.files(".kbindex"))
    text = decode(repo.blob(TRANSCRIPT))
    at = text.index(". ", len(text) // 2) + 2
    repo.write(TRANSCRIPT, f"{text[:at]}The curator's parrot is called Gustav. {text[at:]}")
    repo.git("add", TRANSCRIPT)
    repo.git("commit", "--quiet", "--message", "Name the parrot")
    changed = repo.git("show", "--format=", "--name-only", "HEAD").split()
    outline = f".kbindex/outline/{TRANSCRIPT.removeprefix('bundle/')}.tsv"
    (new,) = set(repo.files(".kbindex")) - before
    assert re.fullmatch(r"\.kbindex/wal/[0-9a-f]+\.arrow", new)
    assert sorted(changed) == sorted([TRANSCRIPT, outline, new])
    rows, _ = decode_wal(repo.blob(new))
    assert 1 <= len(rows) <= 3
    assert any(
        "Gustav" in repo.call("get", TRANSCRIPT, "--span", f"{row.char_start}:{row.char_end}").out
        for row in rows
    )
    assert repo.git("status", "--porcelain") == ""
    assert repo.call("check").code == 0
    hit = repo.call("query", "--format", "json", "what is the name of the bird Gustav?").json()
    assert hit["hits"][0]["path"] == TRANSCRIPT


def test_the_last_sentence_of_a_chunk_counts(material: Repo, embedder: BuiltinEmbedder) -> None:
    tree = open_index(material.root, "HEAD")
    shown = [
        entry.shown
        for state in tree.compare(BuiltinEmbedder.identity)
        if isinstance(state, Proven) and state.path == TRANSCRIPT
        for entry in state.entries
        if entry.shown is not None
    ]
    longest = max(shown, key=embedder.count_tokens)
    assert embedder.count_tokens(longest) > 200
    head, separator, _ = longest.rstrip().rpartition(". ")
    assert separator
    one, other = embedder.embed_documents(
        [f"{head}. The spare key hangs behind the clock.", f"{head}. Nobody ever liked the soup."]
    )
    assert float(one @ other) < 0.9999
