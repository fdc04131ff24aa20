"""A small web server on loopback, for ``glit view --serve`` and ``glit pairs``.

A server listens on the loopback address and refuses requests that were sent to another name than
this machine's, as pages of others would send them.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from PIL import Image

from glit.errors import GlitError, UserError
from glit.images import encode_png, upright_file

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_LONGEST_NUMBER = 15
"""Digits: no dataset has more rows, and databases take them."""
_LONGEST_FAULT = 300
_MOST_THREADS = 32
_SILENT_S = 5.0
"""A connection that says nothing for so long is closed; browsers open another."""
_REQUEST_S = 10.0
"""A request that is not read after so long is cut off, however much of it comes."""
_BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_SHOWN = {".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".gif": "image/gif"}

Answer = tuple[bytes, str]
"""A body and its kind."""


class Site(ABC):
    """The pages of a server; several threads use it."""

    policy: ClassVar[str] = "frame-ancestors 'none'"
    """Content-Security-Policy of every answer."""
    longest_body: ClassVar[int] = 4096
    """Bytes that can be posted."""

    @abstractmethod
    def answer(self, address: str) -> Answer:
        """Answer a GET of this path and query.

        Raises:
            UserError, ValueError: there is no such thing.
        """

    def take(self, address: str, said: Any) -> Answer:
        """Handle a POST of JSON; refuses it unless overridden.

        Raises:
            UserError: it cannot be taken.
        """
        raise UserError("nothing can be said here")


def loopback_server(site: Site, *, port: int) -> ThreadingHTTPServer:
    """Start a loopback server for the site; its threads end with the process.

    Args:
        site: what it answers.
        port: of the loopback address; 0 takes a free one.

    Raises:
        UserError: the port is taken.
    """
    try:
        return _Server((HOST, port), partial(_Handler, site))
    except OSError as error:
        raise UserError(
            f"--port {port}: cannot listen there ({error.strerror or error}); choose another"
        ) from error


def address_of(server: ThreadingHTTPServer) -> str:
    """The URL of the server's page."""
    return f"http://{HOST}:{server.server_port}/"


def as_json(value: Any) -> Answer:
    """A JSON response of a value."""
    return json.dumps(value, allow_nan=False).encode(), "application/json"


def shown(encoded: bytes) -> Answer:
    """An upright image in a format that browsers show; PNG if its own is not one.

    Raises:
        ImageError: the file is damaged.
    """
    data, suffix = upright_file(encoded)
    if suffix in _SHOWN:
        return data, _SHOWN[suffix]
    return encode_png(encoded), "image/png"


def whole_number(text: str) -> int:
    """Parse a number of a request.

    Raises:
        UserError: it is none, or no row can have it.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise UserError(f"want a number of at most {_LONGEST_NUMBER} digits")
    return int(text)


@cache
def _icon() -> bytes:
    """The icon of all pages: a region in an image."""
    picture, buffer = Image.new("RGB", (32, 32), "#c2410c"), io.BytesIO()
    picture.paste("#fff", (7, 7, 25, 25))
    picture.paste("#c2410c", (10, 10, 22, 22))
    picture.save(buffer, "PNG")
    return buffer.getvalue()


class _Server(ThreadingHTTPServer):
    """A server with a limit on connections; it answers further ones with "try again"."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *given: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_THREADS)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):  # gone already
            request.send(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that goes away is no fault
            super().handle_error(request, client_address)


class _Incoming(io.RawIOBase):
    """What comes over a connection until a deadline; the limit of a socket is for each wait."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._silent_s = connection, connection.gettimeout()
        self.deadline = 0.0
        """On the monotonic clock."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request takes too long")
        self._connection.settimeout(min(left, self._silent_s or left))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._silent_s)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SILENT_S

    def setup(self) -> None:
        super().setup()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Read a request within :data:`_REQUEST_S`, and answer it."""
        self._incoming.deadline = time.monotonic() + _REQUEST_S
        super().handle_one_request()

    def __init__(self, site: Site, *connection: Any) -> None:
        self._site = site
        super().__init__(*connection)  # answers

    def do_GET(self) -> None:
        if self.path == "/favicon.ico":
            self._respond(lambda: (_icon(), "image/png"))
        else:
            self._respond(lambda: self._site.answer(self.path))

    def do_POST(self) -> None:
        self.close_connection = True  # whatever was sent and is not read
        self._respond(self._taken)

    def _taken(self) -> Answer:
        # a form on another's page can send no JSON without asking first
        if self.headers.get_content_type() != "application/json":
            raise UserError("want JSON")
        length = whole_number(self.headers.get("Content-Length", "0"))
        if length > self._site.longest_body:
            raise UserError(f"want {self._site.longest_body} bytes at most")
        return self._site.take(self.path, json.loads(self.rfile.read(length)))

    def _respond(self, work: Any) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in _NAMES:
            self._answer(421, b"this server answers on 127.0.0.1 alone", "text/plain")
            return
        try:
            self._answer(200, *work())
        except RecursionError:
            self._fault(404, "nested too deeply")
        except (UserError, ValueError) as error:
            self._fault(404, str(error))
        except GlitError as error:
            self._fault(500, str(error))

    def _fault(self, code: int, said: str) -> None:
        body = said[:_LONGEST_FAULT].encode("utf-8", "backslashreplace")
        self._answer(code, body, "text/plain; charset=utf-8")

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", self._site.policy)
        if self.close_connection:
            self.send_header("Connection", "close")
        keep = "private, max-age=600" if kind.startswith("image/") else "no-store"
        self.send_header("Cache-Control", keep)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the user's."""
