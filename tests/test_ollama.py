"""The Ollama embedder against a server: what it sends, what it takes, what it says.

Tests that take ``live`` run against the server at ``KBINDEX_TEST_OLLAMA``, if that is set (model:
``KBINDEX_TEST_OLLAMA_MODEL``, else bge-m3); otherwise, as all others, against a loopback server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbindex.configuration.config import Config
from kbindex.core.errors import EmbeddingError, NoEmbedderError, TooLongError, UsageError
from kbindex.core.model import Recipe
from kbindex.embed import Embedder, load_embedder
from kbindex.embed.ollama.client import weights_digest
from kbindex.embed.select import open_embedder
from kbindex.embed.servers.canaries import come_out_same, pack_vectors
from testing.embedding import embed_all, recipe_of
from testing.fake_ollama import (
    CRASHES,
    E5,
    NOT_A_NUMBER,
    FakeOllama,
    builtin_model,
    hash_model,
    model_server,
    serving,
)

PAUSES: list[float] = []
"""The pauses that embedders would have made."""


@pytest.fixture
def no_waiting() -> list[float]:
    PAUSES.clear()
    return PAUSES


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with serving(FakeOllama({"toy:latest": hash_model(512)})) as state:
        yield state


@pytest.fixture
def live() -> Iterator[tuple[str, str]]:
    """A server with a model that knows meanings: (url, model)."""
    with model_server() as named:
        yield named


def embedder_for(
    url: str, local: Path, model: str = "toy", stored: Recipe | None = None, **settings: object
) -> Embedder:
    config = Config(embedder=f"ollama:{model}", **settings)  # type: ignore[arg-type]
    embedder = open_embedder(config, stored, local, {"OLLAMA_HOST": url})
    embedder._calls.pause = PAUSES.append  # type: ignore[attr-defined]
    return embedder


# What is sent


def test_every_call_forbids_truncation_and_has_the_same_options(
    server: FakeOllama, tmp_path: Path
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp", "a lens"])
    embedder.embed_query("a wick")
    calls = server.embed_calls()
    assert len(calls) > 4
    assert all(call["truncate"] is False for call in calls)
    assert {str(call["options"]) for call in calls} == {"{'num_ctx': 512, 'num_batch': 512}"}


@pytest.mark.parametrize(
    ("context_length", "chunk_tokens", "expected"),
    [(512, 256, 512), (8192, 256, 2048), (8192, 2000, 6256), (8192, 4000, 8192)],
)
def test_the_context_asked_for_holds_every_chunk_and_no_more(
    tmp_path: Path, context_length: int, chunk_tokens: int, expected: int
) -> None:
    """Memory grows with its square, and a model can't read more than it has learned to."""
    with serving(FakeOllama({"toy:latest": hash_model(context_length)})) as server:
        embedder = embedder_for(server.url, tmp_path, chunk_tokens=chunk_tokens)
        embedder.embed_documents(["a lamp"])
        assert server.embed_calls()[-1]["options"]["num_ctx"] == expected


def test_prefixes_are_those_of_the_model_or_of_the_configuration(tmp_path: Path) -> None:
    with serving(FakeOllama({"nomic-embed-text:latest": hash_model()})) as server:
        embedder = embedder_for(server.url, tmp_path, "nomic-embed-text")
        embedder.embed_documents(["a lamp"])
        embedder.embed_query("a wick")
        assert server.asked[-2:] == ["search_document: a lamp", "search_query: a wick"]
        own = embedder_for(
            server.url, tmp_path, "nomic-embed-text", query_prefix="q> ", document_prefix=""
        )
        own.embed_documents(["a lamp"])
        own.embed_query("a wick")
        assert server.asked[-2:] == ["a lamp", "q> a wick"]
        assert own.identity != embedder.identity
        assert (own.identity.query_prefix, own.identity.document_prefix) == ("q> ", "")


def test_a_nul_can_not_hide_what_follows(server: FakeOllama, tmp_path: Path) -> None:
    embedder_for(server.url, tmp_path).embed_documents(["a\0b"])
    assert server.asked[-1] == "a\ufffdb"


def test_batches_are_small_and_one_after_the_other(server: FakeOllama, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path)
    result = embed_all(embedder, [f"lamp {i}" for i in range(30)], tmp_path)
    assert len(result.vectors) == 30
    assert result.n_calls == 4
    assert max(len(call["input"]) for call in server.embed_calls()) == 8


# What comes back


def test_the_vectors_are_those_of_the_model(tmp_path: Path) -> None:
    """Through HTTP, prefixes and normalisation, nothing is lost or swapped."""
    texts = ["Wipe the lenses.", "Ask Jonas first.", "Él pidió añadir el número."]
    with serving(FakeOllama({f"{E5}:latest": builtin_model()})) as server:
        embedder = embedder_for(server.url, tmp_path, E5)
        builtin = load_embedder("builtin")
        ours, theirs = embedder.embed_documents(texts), builtin.embed_documents(texts)
        assert np.allclose(ours, theirs, atol=1e-6)
        assert np.allclose(embedder.embed_query("lens"), builtin.embed_query("lens"), atol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 7.5])
def test_vectors_of_another_length_are_brought_to_one(
    server: FakeOllama, tmp_path: Path, factor: float
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    before = embedder.embed_documents(["a lamp"])
    server.change = lambda _text, vector: [x * factor for x in vector]
    after = embedder.embed_documents(["a lamp"])
    assert np.allclose(np.linalg.norm(after), 1)
    assert np.allclose(before, after, atol=1e-6)


def spoil(vector: list[float], how: str) -> list[float]:
    return {
        "NaN": [float("nan"), *vector[1:]],
        "infinite": [float("inf"), *vector[1:]],
        "zero": [0.0] * len(vector),
        "short": vector[:-1],
        "empty": [],
    }[how]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("NaN", "NaN or infinite"),
        ("infinite", "NaN or infinite"),
        ("zero", "zero"),
        ("short", "255 components came back, not of 256"),
        ("empty", "0 components came back, not of 256"),
    ],
)
def test_a_spoilt_vector_fails_its_document_alone(
    server: FakeOllama, tmp_path: Path, how: str, says: str
) -> None:
    server.change = lambda text, vector: spoil(vector, how) if "bad" in text else vector
    embedder = embedder_for(server.url, tmp_path)
    texts = ["a lamp", "a lens", "a bad wick", "a key", "a cellar"]
    result = embed_all(embedder, texts, tmp_path)
    assert list(result.failures) == ["doc2.md"]
    assert says in result.failures["doc2.md"]
    assert len(result.vectors) == 4


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, NOT_A_NUMBER),
        (500, "failed to encode response: json: unsupported value: NaN"),
        (400, "invalid input"),
    ],
)
def test_one_bad_text_of_a_batch_is_found_by_halves(
    server: FakeOllama, tmp_path: Path, status: int, message: str
) -> None:
    server.refuse = lambda text: (status, message) if "bad" in text else None
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.forget()
    texts = [f"lamp {i}" for i in range(8)]
    texts[5] = "a bad wick"
    result = embed_all(embedder, texts, tmp_path)
    assert list(result.failures) == ["doc5.md"]
    assert message in result.failures["doc5.md"]
    assert len(result.vectors) == 7
    # 8, 4+4, 2+2, 1+1, and one plain sentence to tell a bad text from a broken server.
    assert [len(call["input"]) for call in server.embed_calls()] == [8, 4, 4, 2, 1, 1, 1, 2]


@pytest.mark.parametrize("answered", ["too few", "too many", "none"])
def test_a_wrong_count_is_never_matched_up(
    server: FakeOllama, tmp_path: Path, answered: str
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])

    def change(answer: dict[str, list[object]]) -> dict[str, list[object]]:
        vectors = answer["embeddings"]
        if len(vectors) > 1 or answered == "none":
            some = {"too few": vectors[1:], "too many": [*vectors, vectors[0]], "none": []}
            return answer | {"embeddings": some[answered]}
        return answer

    server.answer = change
    if answered == "none":  # for every text: the server is broken, no document is to blame
        with pytest.raises(NoEmbedderError, match="fails for every text: 0 vectors"):
            embed_all(embedder, ["a lens", "a wick"], tmp_path)
        return
    result = embed_all(embedder, ["a lens", "a wick", "a key"], tmp_path)
    assert len(result.vectors) == 3
    expected = load_embedder("hash").embed_query("a wick")
    assert np.allclose(result.vectors[f"{1:032x}"], expected, atol=1e-3)


@pytest.mark.parametrize("garbage", ["<html>", {"embeddings": None}, {"embeddings": [[None]]}, []])
def test_an_answer_that_is_not_ollamas_is_said_to_be_none(
    server: FakeOllama, tmp_path: Path, garbage: object
) -> None:
    server.answer = lambda _answer: garbage
    with pytest.raises(NoEmbedderError, match="something that is not Ollama's"):
        _ = embedder_for(server.url, tmp_path).identity


# Too long


def test_a_text_over_the_limit_is_reported_as_too_long(server: FakeOllama, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path)
    with pytest.raises(TooLongError):
        embedder.embed_documents(["wick " * 600])
    result = embed_all(embedder, ["a lamp", "wick " * 600, "a lens"], tmp_path)
    assert result.too_long == {f"{1:032x}"}
    assert not result.failures
    assert len(result.vectors) == 2


@pytest.mark.parametrize(
    "message",
    [
        "the input length exceeds the context length",
        "input length exceeds maximum context length",
        "input exceeds maximum context length and cannot be truncated further",
        "input is too large to process. increase the physical batch size",
    ],
)
def test_every_wording_of_too_long_is_understood(
    server: FakeOllama, tmp_path: Path, message: str
) -> None:
    server.refuse = lambda text: (400, message) if "long" in text else None
    result = embed_all(embedder_for(server.url, tmp_path), ["a lamp", "long"], tmp_path)
    assert result.too_long == {f"{1:032x}"}


def test_a_query_over_the_limit_is_no_embedder_rather_than_cut(
    server: FakeOllama, tmp_path: Path
) -> None:
    with pytest.raises(NoEmbedderError, match="longer than toy reads") as caught:
        embedder_for(server.url, tmp_path).embed_query("wick " * 600)
    assert caught.value.remedy == "shorten the query"


def test_a_server_that_cuts_texts_is_found_out_and_refused(
    server: FakeOllama, tmp_path: Path
) -> None:
    server.ignores_truncate = True
    with pytest.raises(NoEmbedderError, match="cuts long texts for toy although") as caught:
        embedder_for(server.url, tmp_path).embed_documents(["a lamp"])
    assert "another release of Ollama" in str(caught.value.remedy)
    assert "a lamp" not in server.asked


def test_a_limit_below_the_one_that_is_declared_is_found_out(tmp_path: Path) -> None:
    """The server refuses over 2048 tokens, and silently drops what stands behind the 300th."""
    model = hash_model(8192)
    whole = model.embed

    def embed(text: str) -> NDArray[np.float32]:
        return whole(" ".join(text.split()[:300]))

    model.embed = embed
    with (
        serving(FakeOllama({"toy:latest": model})) as server,
        pytest.raises(NoEmbedderError, match="cuts long texts"),
    ):
        embedder_for(server.url, tmp_path).embed_documents(["a lamp"])


def test_the_probe_runs_once_for_a_server_and_model(server: FakeOllama, tmp_path: Path) -> None:
    embedder_for(server.url, tmp_path).embed_documents(["a lamp"])
    server.forget()
    embedder_for(server.url, tmp_path).embed_documents(["a lens"])
    assert server.asked == ["a lens"]
    server.version = "0.13.0"
    embedder_for(server.url, tmp_path).embed_documents(["a wick"])
    assert len(server.asked) > 5


# Too slow, down, gone


def test_a_dropped_call_is_made_again_after_a_pause(
    server: FakeOllama, tmp_path: Path, no_waiting: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.drops = 3
    assert embedder.embed_documents(["a lens"]).shape == (1, 256)
    assert no_waiting == [0.5, 1.0, 2.0]


def test_calls_that_stay_dropped_end_the_run(server: FakeOllama, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.drops = 4
    with pytest.raises(NoEmbedderError, match="broke the connection off") as caught:
        embedder.embed_documents(["a lens"])
    assert "OLLAMA_HOST" in str(caught.value.remedy)


def test_a_busy_server_is_asked_again(
    server: FakeOllama, tmp_path: Path, no_waiting: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.replies = [(503, "server busy, please try again"), (500, "llama runner process died")]
    assert embedder.embed_documents(["a lens"]).shape == (1, 256)
    assert no_waiting == [0.5, 1.0]


def test_a_server_that_fails_for_every_text_blames_no_document(
    server: FakeOllama, tmp_path: Path
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.refuse = lambda _text: (500, "llama runner process has terminated: CUDA error")
    server.forget()
    with pytest.raises(NoEmbedderError, match=r"fails for every text: .*CUDA error"):
        embed_all(embedder, ["a lens", "a wick"], tmp_path)
    # Four attempts, and one plain sentence twice: no batch is halved for nothing.
    assert [len(call["input"]) for call in server.embed_calls()] == [2, 2, 2, 2, 1, 1]


@pytest.mark.parametrize("version", CRASHES)
def test_a_text_that_kills_the_runner_fails_its_document_alone(
    server: FakeOllama, tmp_path: Path, version: str
) -> None:
    server.version, server.kills = version, lambda text: "bad" in text
    result = embed_all(embedder_for(server.url, tmp_path), ["a lamp", "bad", "a key"], tmp_path)
    assert list(result.failures) == ["doc1.md"]
    assert "do embedding request" in result.failures["doc1.md"]
    assert len(result.vectors) == 2


@pytest.mark.parametrize("version", CRASHES)
@pytest.mark.parametrize("n_texts", [1, 3])
def test_a_runner_that_died_once_is_no_fault_of_a_text(
    server: FakeOllama, tmp_path: Path, no_waiting: list[float], version: str, n_texts: int
) -> None:
    """Out of memory, say: the server answers 400 and starts another with the next call."""
    server.version = version
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.crashes = 2
    result = embed_all(embedder, [f"lens {i}" for i in range(n_texts)], tmp_path)
    assert (len(result.vectors), result.failures) == (n_texts, {})
    assert no_waiting == [0.5, 1.0]


def test_a_runner_that_dies_before_the_first_vector_does_not_make_the_model_unfit(
    server: FakeOllama, tmp_path: Path
) -> None:
    server.crashes = 1
    assert embedder_for(server.url, tmp_path).identity.dimension == 256


def test_a_hung_runner_costs_one_time_out(server: FakeOllama, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path, ollama_timeout=1)
    embedder.embed_documents(["a lamp"])
    server.is_hung = True
    began = time.monotonic()
    with pytest.raises(NoEmbedderError, match=r"gives no answer in time \(1 s\)") as caught:
        embedder.embed_documents(["a lens"])
    assert time.monotonic() - began < 3
    assert "raise ollama_timeout" in str(caught.value.remedy)


def test_a_query_waits_for_the_shorter_time(server: FakeOllama, tmp_path: Path) -> None:
    embedder_for(server.url, tmp_path).embed_documents(["a lamp"])
    config = Config(embedder="ollama:toy", query_timeout=1)
    asking = open_embedder(config, None, tmp_path, {"OLLAMA_HOST": server.url}, for_query=True)
    server.is_hung = True
    with pytest.raises(NoEmbedderError, match=r"in time \(1 s\)") as caught:
        asking.embed_query("a lens")
    assert "raise query_timeout" in str(caught.value.remedy)


def test_a_model_is_loaded_once_for_all_calls(server: FakeOllama, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    embedder_for(server.url, tmp_path).embed_query("a wick")
    assert server.n_loads == 1


def test_a_server_that_is_down_is_named(tmp_path: Path) -> None:
    with serving(FakeOllama({})) as server:
        url = server.url
    with pytest.raises(NoEmbedderError, match=f"Ollama at {url} can't be reached") as caught:
        _ = embedder_for(url, tmp_path).identity
    assert "ollama serve" in str(caught.value.remedy)


def test_a_model_that_is_not_pulled_is_named(server: FakeOllama, tmp_path: Path) -> None:
    with pytest.raises(NoEmbedderError, match="has no model 'bge-m3'") as caught:
        _ = embedder_for(server.url, tmp_path, "bge-m3").identity
    assert caught.value.remedy == "ollama pull bge-m3"


def test_another_server_on_the_port_is_recognised(tmp_path: Path) -> None:
    with serving(FakeOllama({})) as server, pytest.raises(NoEmbedderError) as caught:
        _ = embedder_for(f"{server.url}/elsewhere", tmp_path).identity
    assert "OLLAMA_HOST" in str(caught.value.remedy)


def test_a_model_that_does_not_embed_is_named(server: FakeOllama, tmp_path: Path) -> None:
    server.refuse = lambda _text: (400, "this model does not support embeddings")
    with pytest.raises(NoEmbedderError, match="toy can't embed: this model does not") as caught:
        _ = embedder_for(server.url, tmp_path).identity
    assert "ollama:bge-m3" in str(caught.value.remedy)


# Nothing leads a text elsewhere


def test_a_redirect_is_not_followed(server: FakeOllama, tmp_path: Path) -> None:
    with serving(FakeOllama({"toy:latest": hash_model(512)})) as other:
        embedder = embedder_for(server.url, tmp_path)
        embedder.embed_documents(["a lamp"])
        server.redirect = other.url
        with pytest.raises(NoEmbedderError, match="wants to redirect"):
            embedder.embed_documents(["a secret"])
        with pytest.raises(NoEmbedderError, match="wants to redirect"):
            _ = embedder_for(server.url, tmp_path / "new").identity
        assert not other.requests


def test_no_proxy_sees_what_stays_on_this_machine(
    server: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(FakeOllama({})) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        embedder_for(server.url, tmp_path).embed_documents(["a secret"])
        assert not proxy.requests
    assert server.asked[-1] == "a secret"


@pytest.mark.parametrize("is_own", [True, False])
def test_only_a_server_of_the_users_own_gets_the_users_key(
    server: FakeOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    config = Config(embedder="ollama:toy", ollama_host=server.url)
    environment = {"OLLAMA_HOST": server.url} if is_own else {}
    open_embedder(config, None, tmp_path, environment).embed_documents(["a lamp"])
    sent = {headers.get("authorization") for headers in server.headers}
    assert sent == ({"Bearer secret"} if is_own else {None})


# Identity


def test_the_identity_is_of_model_digest_dimension_and_prefixes(
    server: FakeOllama, tmp_path: Path
) -> None:
    identity = embedder_for(server.url, tmp_path).identity
    assert identity.name == "ollama/toy"
    assert identity.digest == f"sha256:{server.models['toy:latest'].weights}"
    assert identity.dimension == 256
    assert embedder_for(server.url, tmp_path, "toy:latest").identity == identity


def test_the_dimension_is_that_of_a_vector_not_of_the_models_inside(
    server: FakeOllama, tmp_path: Path
) -> None:
    server.models["toy:latest"].dimension = 1024  # what /api/show says
    assert embedder_for(server.url, tmp_path).identity.dimension == 256


def test_pulling_another_model_under_the_name_is_another_identity(
    server: FakeOllama, tmp_path: Path
) -> None:
    first = embedder_for(server.url, tmp_path)
    recipe = recipe_of(first)
    server.models["toy:latest"].weights = "00" * 32
    second = embedder_for(server.url, tmp_path, stored=recipe)
    assert second.identity != first.identity
    assert second.identity.digest == f"sha256:{'00' * 32}"


def test_the_same_weights_with_another_parameter_are_the_same_model(
    server: FakeOllama, tmp_path: Path
) -> None:
    """Each `ollama create`, and each release's, gives the manifest another digest."""
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    before = server.models["toy:latest"].digest
    server.models["toy:latest"].extra = "PARAMETER num_thread 2"
    assert server.models["toy:latest"].digest != before
    for folder in (tmp_path, tmp_path / "new clone"):
        assert embedder_for(server.url, folder, stored=recipe).identity == recipe.embedder
        assert embedder_for(server.url, folder).identity == recipe.embedder


def of_manifest(recipe: Recipe, server: FakeOllama) -> Recipe:
    """Return a recipe as it was when the digest was the manifest's."""
    digest = f"sha256:{server.models['toy:latest'].digest}"
    return replace(recipe, embedder=replace(recipe.embedder, digest=digest))


def test_an_index_that_names_the_manifest_stays_as_it_is(
    server: FakeOllama, tmp_path: Path
) -> None:
    recipe = of_manifest(recipe_of(embedder_for(server.url, tmp_path)), server)
    again = embedder_for(server.url, tmp_path / "new clone", stored=recipe)
    assert (again.identity, again.origin) == (recipe.embedder, recipe.origin)


def test_an_index_that_names_the_manifest_needs_no_memory(
    server: FakeOllama, tmp_path: Path
) -> None:
    recipe = of_manifest(recipe_of(embedder_for(server.url, tmp_path)), server)
    (tmp_path / "full").write_text("no folder: nothing can be noted in it")
    again = embedder_for(server.url, tmp_path / "full", stored=recipe)
    assert again.identity == recipe.embedder


def test_a_manifest_whose_weights_a_clone_has_seen_is_known_by_them(
    server: FakeOllama, tmp_path: Path
) -> None:
    recipe = of_manifest(recipe_of(embedder_for(server.url, tmp_path)), server)
    server.models["toy:latest"].extra = "PARAMETER num_thread 2"
    assert embedder_for(server.url, tmp_path, stored=recipe).identity == recipe.embedder
    stranger = embedder_for(server.url, tmp_path / "new clone", stored=recipe)
    assert stranger.identity != recipe.embedder
    server.models["toy:latest"].weights = "00" * 32
    assert embedder_for(server.url, tmp_path, stored=recipe).identity != recipe.embedder


def test_where_no_file_of_weights_is_named_the_manifest_is_the_model(
    server: FakeOllama, tmp_path: Path
) -> None:
    server.tells_weights = False
    identity = embedder_for(server.url, tmp_path).identity
    assert identity.digest == f"sha256:{server.models['toy:latest'].digest}"


@pytest.mark.parametrize(
    "name", ["TOY", "library/toy", "registry.ollama.ai/library/Toy", "toy:latest"]
)
def test_a_model_has_one_identity_under_all_its_names(
    server: FakeOllama, tmp_path: Path, name: str
) -> None:
    identity = embedder_for(server.url, tmp_path).identity
    named = embedder_for(server.url, tmp_path, name)
    assert named.identity == identity
    assert named.embed_documents(["a lamp"]).shape == (1, 256)
    # An index may be of before: then its own spelling stays.
    recipe = recipe_of(named)
    earlier = replace(recipe, embedder=replace(recipe.embedder, model="Library/Toy"))
    assert embedder_for(server.url, tmp_path, stored=earlier).identity == earlier.embedder
    assert embedder_for(server.url, tmp_path, name, earlier).identity == earlier.embedder


@pytest.mark.parametrize(
    ("modelfile", "expected"),
    [
        (f"# FROM toy\n\nFROM /root/.ollama/models/blobs/sha256-{'ab' * 32}\n", "ab" * 32),
        (f"FROM C:\\Users\\Ada\\models\\blobs\\sha256-{'ab' * 32}\r\n", "ab" * 32),
        (f'FROM "/a b/blobs/sha256-{"ab" * 32}"\n', "ab" * 32),
        ("FROM toy:latest\n", None),
        (f'LICENSE """\nFROM ME, about blobs\n"""\nFROM /x/sha256-{"ab" * 32}\n', None),
    ],
)
def test_the_weights_are_those_that_the_modelfile_names(
    modelfile: str, expected: str | None
) -> None:
    assert weights_digest(modelfile) == (expected and f"sha256:{expected}")


def test_an_adapter_is_part_of_the_weights() -> None:
    base = f"FROM /x/blobs/sha256-{'ab' * 32}\n"
    found = weights_digest(f"{base}ADAPTER /x/blobs/sha256-{'cd' * 32}\n")
    assert found not in (None, weights_digest(base))


def test_an_upgrade_that_computes_the_same_changes_nothing(
    server: FakeOllama, tmp_path: Path
) -> None:
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    assert recipe.origin.server == "ollama 0.33.0"
    server.version = "0.99.0"
    noise = 1e-4
    server.change = lambda _text, vector: [x + noise * (-1) ** i for i, x in enumerate(vector)]
    again = embedder_for(server.url, tmp_path, stored=recipe)
    assert (again.identity, again.origin) == (recipe.embedder, recipe.origin)


def test_an_upgrade_that_computes_otherwise_is_another_identity(
    server: FakeOllama, tmp_path: Path
) -> None:
    """As for upper case in ollama/ollama 13942: the same digest, other vectors."""
    old = embedder_for(server.url, tmp_path)
    recipe = recipe_of(old)
    server.version = "0.99.0"
    server.change = lambda text, vector: vector[::-1] if text.isupper() else vector
    new = embedder_for(server.url, tmp_path, stored=recipe)
    assert new.identity != old.identity
    assert new.identity.digest.startswith(f"{old.identity.digest}+")
    assert new.origin.server == "ollama 0.99.0"
    # An index made by the new one is that of the new one, and no longer that of the old one.
    assert embedder_for(server.url, tmp_path, stored=recipe_of(new)).identity == new.identity
    server.version, server.change = "0.33.0", lambda _text, vector: vector
    assert embedder_for(server.url, tmp_path, stored=recipe_of(new)).identity != new.identity


def test_work_of_an_interrupted_build_is_not_taken_for_that_of_another_computation(
    server: FakeOllama, tmp_path: Path
) -> None:
    """There is no index yet to compare with, but vectors are in the cache already."""
    first = embedder_for(server.url, tmp_path)
    first.embed_documents(["a lamp"])
    server.version = "0.13.0"
    assert embedder_for(server.url, tmp_path).identity == first.identity
    server.version = "0.99.0"
    server.change = lambda text, vector: vector[::-1] if text.isupper() else vector
    assert embedder_for(server.url, tmp_path).identity != first.identity
    assert embedder_for(server.url, tmp_path / "new clone").identity == first.identity


def test_canaries_ignore_noise_and_see_another_computation() -> None:
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((4, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    noisy = vectors + rng.standard_normal(vectors.shape).astype(np.float32) * 1e-4
    assert come_out_same(pack_vectors(vectors), pack_vectors(noisy))
    other = vectors.copy()
    other[1] += rng.standard_normal(384).astype(np.float32) * 0.01
    assert not come_out_same(pack_vectors(vectors), pack_vectors(other))
    assert not come_out_same(pack_vectors(vectors), pack_vectors(vectors[:3]))
    assert not come_out_same(["no base64!", "", "", ""], pack_vectors(vectors))


def test_while_the_server_is_down_the_index_says_what_it_is(
    server: FakeOllama, tmp_path: Path
) -> None:
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    down = embedder_for("http://127.0.0.1:9", tmp_path, stored=recipe)
    assert (down.identity, down.origin) == (recipe.embedder, recipe.origin)
    with pytest.raises(NoEmbedderError, match="can't be reached"):
        down.embed_documents(["a lamp"])
    with pytest.raises(NoEmbedderError, match="can't be reached"):
        down.embed_query("a lamp")


@pytest.mark.parametrize("name", ["ollama", "ollama:", "ollama: bge", "ollama:a:b:c", "ollama:-x"])
def test_a_name_without_a_model_is_a_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="names no model"):
        open_embedder(Config(embedder=name), None, tmp_path, {})


# A real server, where there is one


@pytest.mark.model
def test_the_last_sentence_of_a_full_chunk_shows_in_its_vector(
    live: tuple[str, str], tmp_path: Path
) -> None:
    embedder = embedder_for(live[0], tmp_path, live[1])
    body = "The keeper wipes the lenses of the tower each morning before the fog lifts. " * 20
    vectors = embedder.embed_documents([body + "Spare wicks.", body + "A heron nests here."])
    assert embedder.sees_tails  # type: ignore[attr-defined]
    assert float(vectors[0] @ vectors[1]) < 1 - 1e-6


@pytest.mark.model
def test_with_truncation_on_half_a_document_is_all_that_is_seen(
    live: tuple[str, str], tmp_path: Path
) -> None:
    """What kbindex exists to avoid: the vector of the whole is that of its first half."""
    import ollama

    url, model = live
    client = ollama.Client(host=url)
    options = {"num_ctx": 512, "num_batch": 512}
    sentence = "The keeper wipes the lenses of the tower each morning before the fog lifts. "

    def embed(text: str, *, truncate: bool) -> NDArray[np.float32]:
        answer = client.embed(model, f"passage: {text}", truncate=truncate, options=options)
        return np.array(answer.embeddings[0], np.float32)

    n_words = _longest_accepted(
        lambda n: embed(" ".join(words[:n]), truncate=False), words := (sentence * 60).split()
    )
    first, second = words[:n_words], words[n_words : 2 * n_words]
    assert len(second) == n_words
    whole = embed(" ".join(first + second), truncate=True)
    if "KBINDEX_TEST_OLLAMA" not in os.environ:  # a real one may cut inside the next word
        assert np.array_equal(whole, embed(" ".join(first), truncate=False))
    tail = [*second[:5], *["Nine", "grey", "herons", "breed", "behind", "the", "boathouse."] * 9]
    assert np.allclose(whole, embed(" ".join(first + tail), truncate=True), atol=1e-5)
    with pytest.raises(ollama.ResponseError, match="context length"):
        embed(" ".join(first + second), truncate=False)
    embedder = embedder_for(url, tmp_path, model)
    with pytest.raises(TooLongError):
        embedder.embed_documents([" ".join(words * 9)])


def _longest_accepted(embed: object, words: list[str]) -> int:
    """Return how many words the server takes without being allowed to cut."""
    import ollama

    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            embed(middle)  # type: ignore[operator]
            low = middle
        except ollama.ResponseError:
            high = middle - 1
    return low


@pytest.mark.model
def test_meaning_survives_the_way_through_the_server(live: tuple[str, str], tmp_path: Path) -> None:
    embedder = embedder_for(live[0], tmp_path, live[1])
    documents = embedder.embed_documents(
        ["Wipe the lenses of the lamp each morning.", "The invoice was paid in April."]
    )
    query = embedder.embed_query("¿Quién limpia las lentes?")
    assert documents[0] @ query > documents[1] @ query + 0.02
    assert np.allclose(np.linalg.norm(documents, axis=1), 1, atol=1e-5)
    again = embedder.embed_documents(["Wipe the lenses of the lamp each morning."])
    assert again[0] @ documents[0] > 0.999


def test_a_failure_without_a_place_in_the_batch_is_possible() -> None:
    assert EmbeddingError(None, "why").index is None
