"""A small OpenAI-compatible server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """An OpenAI-compatible server whose next answers are given, or made from the request."""

    def __init__(self):
        self.answers: list = []
        self.requests: list[dict] = []
        self.models = 404
        """The status of the list of models."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(outer.models)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                status, headers, answer = outer.answer(body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def answer(self, body: dict) -> tuple[int, dict, dict]:
        """Status, headers and body of an answer."""
        return self.answers.pop(0) if self.answers else ok("A plain wall.")


def ok(text, finish="stop", **message):
    choice = {"message": {"content": text, **message}, "finish_reason": finish}
    return 200, {}, {"choices": [choice]}
