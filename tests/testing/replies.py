"""Replies of the servers that stand for real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any


class JsonReplies(BaseHTTPRequestHandler):
    """Answers with JSON, and says nothing on stderr."""

    def reply(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a text as it is, anything else as JSON; a client that went away is no error."""
        text = content if isinstance(content, str) else json.dumps(content)
        data = text.encode()
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, *_arguments: object) -> None:
        pass
