"""A loopback server with OpenAI's ``/v1/embeddings``, with habits and faults of several servers.

Its words are those of vLLM, Text Embeddings Inference, llama-server, llama-cpp-python and OpenAI.
Models and vectors are those of ``fake_ollama``.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np

from testing.fake_ollama import Model, QuietServer
from testing.replies import JsonReplies

TOO_LONG = {
    "vllm": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 512 tokens. However, you requested "
            "600 tokens in the input for embedding generation. Please reduce the length.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "tei": (
        413,
        {
            "error": "Input validation error: `inputs` must have less than 512 tokens. Given: 600",
            "error_type": "Validation",
        },
    ),
    "llama-server": (
        500,
        {
            "error": {
                "code": 500,
                "message": "input (602 tokens) is too large to process. increase the physical "
                "batch size (current batch size: 512)",
                "type": "server_error",
            }
        },
    ),
    "llama-cpp-python": (
        400,
        {
            "error": {
                "message": "Requested tokens (600) exceed context window of 512",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
    ),
    "openai": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens, however you "
                "requested 9000 tokens (9000 in your prompt; 0 for the completion).",
                "type": "invalid_request_error",
                "code": None,
            }
        },
    ),
}
"""Status and body for a text over the limit, by server."""


@dataclass
class FakeOpenAI:
    """The server's state; a test sets habits and faults and reads what was asked."""

    models: dict[str, Model]
    kind: str = "vllm"
    url: str = ""
    """The base URL, with /v1."""
    key: str = ""
    """Without it in the header, everything is 401."""
    limit: int | None = None
    """Tokens; the model's context length by default."""
    truncates: bool = False
    """Cuts what is too long, as `--auto-truncate` and `truncate_prompt_tokens` do."""
    encoding: str = "float"
    """What vectors are sent in, whatever was asked for: float or base64."""
    reported: str = ""
    """The model that answers name instead of the one asked for."""
    arrange: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda items: items
    """What becomes of the answer's items."""
    change: Callable[[str, list[float]], list[float]] = lambda _text, vector: vector
    refuse: Callable[[str], tuple[int, Any] | None] = lambda _text: None
    """Status and body for a text: the whole call fails with it."""
    replies: list[tuple[int, Any, dict[str, str]]] = field(default_factory=list)
    """Status, body and headers for the next calls."""
    drops: int = 0
    delay: float = 0.0
    is_hung: bool = False
    redirect: str = ""

    calls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Every text that was embedded, prefix included."""
    n_open: int = 0
    n_at_once: int = 0
    """Most calls that were under way at the same time."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(JsonReplies, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    state: FakeOpenAI

    def do_POST(self) -> None:
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        with state.lock:
            state.calls.append(body)
            state.headers.append({k.lower(): v for k, v in self.headers.items()})
            state.n_open += 1
            state.n_at_once = max(state.n_at_once, state.n_open)
        try:
            self._answer(body)
        finally:
            with state.lock:
                state.n_open -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        state = self.state
        while state.is_hung:
            time.sleep(0.02)
        time.sleep(state.delay)
        if state.drops:
            state.drops -= 1
            self.close_connection = True
            self.connection.shutdown(2)
        elif state.redirect:
            self.reply(307, {}, {"Location": state.redirect + self.path})
        elif state.replies:
            self.reply(*state.replies.pop(0))
        elif state.key and self.headers.get("Authorization") != f"Bearer {state.key}":
            given = (self.headers.get("Authorization") or "none").removeprefix("Bearer ")
            message = f"Incorrect API key provided: {given}. You can find your API key at …"
            self.reply(401, {"error": {"message": message, "code": "invalid_api_key"}})
        elif self.path != "/v1/embeddings":
            self.reply(404, {"detail": "Not Found"})
        elif body["model"] not in state.models:
            message = f"The model `{body['model']}` does not exist."
            self.reply(404, {"object": "error", "message": message, "code": 404})
        else:
            self._embed(state.models[body["model"]], body)

    def _embed(self, model: Model, body: dict[str, Any]) -> None:
        state = self.state
        limit = state.limit or model.context_length
        unknown = body.keys() - {"model", "input", "encoding_format", "dimensions", "user"}
        if unknown:
            message = f"Unrecognized request argument supplied: {', '.join(unknown)}"
            self.reply(400, {"error": {"message": message, "type": "invalid_request_error"}})
            return
        items = []
        for index, text in enumerate(body["input"]):
            refused = state.refuse(text)
            if refused is None and model.count(text) > limit:
                if not state.truncates:
                    refused = TOO_LONG[state.kind]
                text = model.cut(text, limit)
            if refused:
                self.reply(*refused)
                return
            vector = state.change(text, model.embed(text).astype(np.float64).tolist())
            packed = base64.b64encode(np.array(vector, "<f4").tobytes()).decode()
            sent = packed if state.encoding == "base64" else vector
            items.append({"object": "embedding", "index": index, "embedding": sent})
        with state.lock:
            state.asked += body["input"]
        n_tokens = sum(map(model.count, body["input"]))
        answer = {
            "object": "list",
            "data": state.arrange(items),
            "model": state.reported or body["model"],
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }
        self.reply(200, answer)


@contextmanager
def serving_openai(state: FakeOpenAI) -> Iterator[FakeOpenAI]:
    """Serve until the end of the block; ``state.url`` says where."""
    handler = type("Handler", (_Handler,), {"state": state})
    server = QuietServer(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.is_hung = False
        server.shutdown()
        server.server_close()
        thread.join()
