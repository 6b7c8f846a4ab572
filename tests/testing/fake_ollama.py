"""A loopback server that speaks Ollama's API as its source does, with faults on request.

Written after ``server/routes.go`` of ollama/ollama and its issues: /api/embed (truncation, one
bad input fails the batch), /api/show, /api/tags, /api/version. Vectors are those of one of our own
embedders; an input's length is counted by that embedder.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbindex.embed import load_embedder

TOO_LONG = "the input length exceeds the context length"
E5 = "multilingual-e5-small-q4"
NOT_A_NUMBER = "embedding contains NaN or Inf values"


@dataclass
class Model:
    """A model that is pulled: how it embeds and counts, and what /api/show says of it."""

    embed: Callable[[str], NDArray[np.float32]]
    count: Callable[[str], int]
    dimension: int
    context_length: int
    digest: str = hashlib.sha256(b"weights").hexdigest()

    def cut(self, text: str, limit: int) -> str:
        """Return the longest beginning of whole words within the limit, as truncation does."""
        ends = [i for i in range(len(text)) if text[i].isspace()] + [len(text)]
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high + 1) // 2
            if self.count(text[: ends[middle - 1]]) <= limit:
                low = middle
            else:
                high = middle - 1
        return text[: ends[low - 1]] if low else ""


def hash_model(context_length: int = 8192) -> Model:
    embedder = load_embedder("hash")
    return Model(embedder.embed_query, embedder.count_tokens, 256, context_length)


def builtin_model() -> Model:
    """Return the engine of the built-in embedder, which puts its prefixes itself."""
    embedder = load_embedder("builtin")

    def embed(text: str) -> NDArray[np.float32]:
        if text.startswith("query: "):
            return embedder.embed_query(text.removeprefix("query: "))
        vector: NDArray[np.float32] = embedder.embed_documents([text.removeprefix("passage: ")])[0]
        return vector

    def count(text: str) -> int:
        return embedder.count_tokens(text.removeprefix("query: ").removeprefix("passage: "))

    return Model(embed, count, 384, 512)


@dataclass
class FakeOllama:
    """The server's state; a test sets faults and reads what was asked."""

    models: dict[str, Model]
    version: str = "0.12.3"
    url: str = ""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Every text that was embedded, prefix included."""
    headers: list[dict[str, str]] = field(default_factory=list)

    # Faults
    ignores_truncate: bool = False
    """Cuts whatever it was told (ollama/ollama 14186, 14259)."""
    default_batch: int = 2048
    refuse: Callable[[str], tuple[int, str] | None] = lambda _text: None
    """Status and message for a text that can't be embedded: the batch fails with it."""
    change: Callable[[str, list[float]], list[float]] = lambda _text, vector: vector
    """What comes back for a text instead of its vector."""
    answer: Callable[[dict[str, Any]], Any] = lambda answer: answer
    """What comes back instead of the whole answer of /api/embed."""
    replies: list[tuple[int, str]] = field(default_factory=list)
    """Statuses with bodies for the next calls of /api/embed."""
    drops: int = 0
    """So many calls of /api/embed are dropped without an answer."""
    delay: float = 0.0
    """Seconds before an answer of /api/embed."""
    redirect: str = ""

    def embed_calls(self) -> list[dict[str, Any]]:
        return [body for path, body in self.requests if path == "/api/embed"]

    def forget(self) -> None:
        self.requests.clear()
        self.asked.clear()

    def recover(self, models: dict[str, Model]) -> None:
        """Be as new, at the same place."""
        fresh = FakeOllama(models, url=self.url)
        self.__dict__.update(fresh.__dict__)


class _Refused(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: two would wait for each other
    state: FakeOllama

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self._serve(json.loads(self.rfile.read(length) or b"{}"))

    def _serve(self, body: dict[str, Any]) -> None:
        state = self.state
        state.requests.append((self.path, body))
        state.headers.append({k.lower(): v for k, v in self.headers.items()})
        if state.redirect:
            self._reply(307, {}, location=state.redirect + self.path)
            return
        match self.path:
            case "/api/version":
                self._reply(200, {"version": state.version})
            case "/api/tags":
                self._reply(200, {"models": [self._tag(name) for name in state.models]})
            case "/api/show":
                self._show(body)
            case "/api/embed":
                self._embed(body)
            case _:
                self._reply(404, "404 page not found")

    def _tag(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "model": name,
            "modified_at": "2026-01-02T03:04:05.678901234+01:00",
            "size": 1,
            "digest": self.state.models[name].digest,
            "details": {"format": "gguf", "family": "bert", "families": ["bert"]},
        }

    def _model(self, name: str) -> Model | None:
        name = name if ":" in name else f"{name}:latest"
        found = self.state.models.get(name)
        if found is None:
            self._reply(404, {"error": f'model "{name}" not found, try pulling it first'})
        return found

    def _show(self, body: dict[str, Any]) -> None:
        model = self._model(body["model"])
        if model:
            info = {
                "general.architecture": "bert",
                "bert.context_length": model.context_length,
                "bert.embedding_length": model.dimension,
            }
            self._reply(200, {"model_info": info, "capabilities": ["embedding"], "details": {}})

    def _embed(self, body: dict[str, Any]) -> None:
        state = self.state
        if state.drops:
            state.drops -= 1
            self.close_connection = True
            self.connection.shutdown(2)
            return
        if state.replies:
            status, text = state.replies.pop(0)
            self._reply(status, {"error": text})
            return
        model = self._model(body["model"])
        if model is None:
            return
        texts = body["input"]
        if isinstance(texts, str):
            texts = [texts] if texts else []
        time.sleep(state.delay)
        try:
            vectors = [self._vector(model, text, body) for text in texts]
        except _Refused as refused:
            status, message = refused.args
            self._reply(status, {"error": message})
            return
        state.asked += texts
        answer = {
            "model": body["model"],
            "embeddings": vectors,
            "total_duration": 1,
            "load_duration": 1,
            "prompt_eval_count": sum(map(model.count, texts)),
        }
        self._reply(200, state.answer(answer))

    def _vector(self, model: Model, text: str, body: dict[str, Any]) -> list[float]:
        state = self.state
        options = body.get("options") or {}
        n_ctx = min(options.get("num_ctx", 4096), model.context_length)
        limit = min(n_ctx, options.get("num_batch", state.default_batch))
        refused = state.refuse(text)
        if refused:
            raise _Refused(*refused)
        if model.count(text) > limit:
            if body.get("truncate") is False and not state.ignores_truncate:
                raise _Refused(400, TOO_LONG)
            text = model.cut(text, limit)
        vector: NDArray[np.float64] = model.embed(text).astype(np.float64)
        dimensions = body.get("dimensions") or 0
        if 0 < dimensions < len(vector):
            vector = vector[:dimensions]
        vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return state.change(text, vector.tolist())

    def _reply(self, status: int, content: Any, location: str = "") -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        data = text.encode()
        try:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the client went away

    def log_message(self, *_arguments: object) -> None:
        pass


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: object) -> None:
        pass


@contextmanager
def serving(state: FakeOllama, port: int = 0) -> Iterator[FakeOllama]:
    """Serve until the end of the block; ``state.url`` says where."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = _QuietServer(("127.0.0.1", port), handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def model_server() -> Iterator[tuple[str, str]]:
    """Give the URL of a server and the name of a model there that knows meanings.

    The server is the real one that ``KBINDEX_TEST_OLLAMA`` names, or one of ours.
    """
    url = os.environ.get("KBINDEX_TEST_OLLAMA")
    if url:
        yield url, os.environ.get("KBINDEX_TEST_OLLAMA_MODEL", "bge-m3")
        return
    with serving(FakeOllama({f"{E5}:latest": builtin_model()})) as state:
        yield state.url, E5
