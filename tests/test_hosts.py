"""Which server a setting means, and which stay on this machine."""

from __future__ import annotations

import pytest

from kbindex.core.errors import UsageError
from kbindex.embed.servers.hosts import CLOUD, is_cloud_model, parse_server
from kbindex.embed.servers.prefixes import model_prefixes

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("localhost", "http://localhost:11434"),
        ("LOCALHOST:80", "http://localhost:80"),
        (":1234", "http://127.0.0.1:1234"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("https://127.9.9.9/", "https://127.9.9.9:443"),
        ("[::1]", "http://[::1]:11434"),
        ("http://[0:0::1]:99/ollama/", "http://[::1]:99/ollama"),
        ("[::ffff:127.0.0.1]", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]", "http://[::1]:11434"),
    ],
)
def test_this_machine_has_many_names(text: str, url: str) -> None:
    server = parse_server(text)
    assert (server.url, server.is_loopback) == (url, True)


@pytest.mark.parametrize(
    "text",
    [
        "gpu.example.com",
        "localhost.evil.com",
        "127.0.0.1.evil.com",
        "http://evil.com:80/localhost",
        "localtest.me",
        "10.0.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:10.0.0.1]",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "1.0.0.127",
        "0",
        "xn--localhost-x.com",
    ],
)
def test_whatever_is_not_surely_this_machine_needs_approval(text: str) -> None:
    server = parse_server(text)
    assert not server.is_loopback
    assert server.origin.startswith("http://")


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1@evil.com",
        "http://127.0.0.1:11434@evil.com",
        "localhost:80@evil.com",
        "http://evil.com\\@127.0.0.1",
        "http://127.0.0.1\\.evil.com",
        "http://127.0.0.1#.evil.com",
        "http://127.0.0.1?.evil.com",
        "http://127.0.0.1%2eevil.com",
        "http://127.0.0.1 .evil.com",
        "http://127.0.0.1\n.evil.com",
        "http://127.0.0.1\t",
        "http://[::1]evil.com",
        "http://[::1%25eth0]",
        "http://[evil]",
        "http://１２７.0.0.1",
        "http://localhost。evil.com",
        "http://loc\u00adalhost",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "unix:///run/ollama.sock",
        "//evil.com",
        "http:/evil.com",
        "evil.com/127.0.0.1",
        "http://",
        "127.0.0.1:0",
        "127.0.0.1:99999",
        "127.0.0.1:port",
        "http://127.0.0.1/../x",
        "-evil",
        "",
    ],
)
def test_what_two_parsers_could_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_server(text)
    assert caught.value.remedy


def test_the_client_connects_where_we_judged() -> None:
    ollama = pytest.importorskip("ollama")
    for text in ("0.0.0.0", "[::]:1", "http://[::ffff:127.0.0.1]/x", "https://gpu.example.com"):
        server = parse_server(text)
        base = str(ollama.Client(host=server.url)._client.base_url).rstrip("/")
        usual = {"http": ":80", "https": ":443"}[server.origin.split(":", 1)[0]]
        expected = server.url.replace(f"{usual}/", "/")
        assert base == (expected.removesuffix(usual) if not server.path else expected)


def test_the_cloud_is_approved_as_people_write_it() -> None:
    assert parse_server("https://ollama.com").origin == CLOUD


@pytest.mark.parametrize(
    ("model", "is_cloud"),
    [
        ("bge-m3", False),
        ("bge-m3:latest", False),
        ("cloud", False),
        ("cloud-model:8b", False),
        ("gpt-oss:120b-cloud", True),
        ("qwen3-embedding:cloud", True),
        ("me/model:Cloud", True),
    ],
)
def test_a_model_of_the_cloud_is_recognised(model: str, is_cloud: bool) -> None:
    assert is_cloud_model(model) is is_cloud


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("nomic-embed-text-v2-moe:latest", "search_query: ", "search_document: "),
        ("jeffh/intfloat-multilingual-e5-large:f16", "query: ", "passage: "),
        ("mxbai-embed-large:335m", "Represent this sentence for searching relevant passages: ", ""),
        ("bge-m3", "", ""),
        ("bge-large:335m", "Represent this sentence for searching relevant passages: ", ""),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("all-minilm", "", ""),
        ("granite-embedding:278m", "", ""),
    ],
)
def test_a_model_gets_the_prefixes_of_its_card(model: str, query: str, document: str) -> None:
    assert model_prefixes(model) == (query, document)


def test_an_instruction_goes_before_queries_alone() -> None:
    for model in ("qwen3-embedding:0.6b", "e5-mistral-7b-instruct", "embeddinggemma"):
        query, document = model_prefixes(model)
        assert "query" in query.lower()
        assert "query" not in document
