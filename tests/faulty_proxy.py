"""A proxy before an object store on loopback that fails as networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LATE_S = 0.2
SILENT_S = 60.0
Fault = Callable[[str, str], str]
"""Of a method and a path the fault's name; empty for none."""
Answer = tuple[int, bytes]
"""Status and body."""


@dataclass
class FaultyStore:
    """The proxy's address, what happened to it, and what is to happen."""

    kind: str
    """Of its addresses."""
    errors: Mapping[str, Answer]
    """What the store says of a fault."""
    behind: tuple[str, int] = ("", 0)
    address: str = ""
    bucket: str = "bucket"
    fault: Fault = lambda method, path: ""
    faults: list[str] = field(default_factory=list)
    """Those that happened."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request."""

    def url(self, path: str) -> str:
        return f"{self.kind}://{self.bucket}/{path}"

    @contextlib.contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: ""

    @contextlib.contextmanager
    def in_turn(self, method: str, path: str, body: bytes) -> Iterator[Answer | None]:
        """Around every request; what is answered instead of passing it on."""
        yield None

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
        """The answer of the server behind, and its body."""
        behind = http.client.HTTPConnection(*self.behind, timeout=30)
        try:
            behind.request(method, path, body, headers)
            answer = behind.getresponse()
            return answer, answer.read()
        finally:
            behind.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        proxy = _Server(("127.0.0.1", 0), partial(_Proxy, self))
        self.address = f"http://127.0.0.1:{proxy.server_port}"
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            proxy.shutdown()
            proxy.server_close()


def times(fault: str, number: int, method: str, within: str = "") -> Fault:
    """A fault for the first requests of a method whose path holds a text."""
    left = [number]

    def decide(found: str, path: str) -> str:
        if found == method and within in path and left[0]:
            left[0] -= 1
            return fault
        return ""

    return decide


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up: gcsfs asks two things at once and takes the first answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, store: FaultyStore, *request: Any) -> None:
        self._store = store
        super().__init__(*request)  # it answers all that comes over the connection in here

    def _pass_on(self) -> None:
        store = self._store
        store.requests.append((self.command, self.path))
        length = int(self.headers.get("Content-Length") or 0)
        fault = store.fault(self.command, self.path)
        if fault:
            store.faults.append(fault)
        if fault == "cut":  # in the middle of what is sent
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        if fault == "small pages":
            self.path += "&max-keys=2"
        body = self.rfile.read(length)
        if fault == "reset":  # a packet that says so, where "cut" merely ends
            how = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
            self.connection.close()
            self.close_connection = True
            return
        if fault in store.errors:
            self._answer(*store.errors[fault])
            return
        with store.in_turn(self.command, self.path, body) as instead:
            if instead is not None:
                self._answer(*instead)
                return
            answer, data = store.ask(self.command, self.path, body, dict(self.headers))
        if fault in ("late", "silent") and self._hung_up(LATE_S if fault == "late" else SILENT_S):
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "cut answer":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def _hung_up(self, within_s: float) -> bool:
        """Waits; the other side has nothing to say until it is answered."""
        return bool(select.select([self.connection], [], [], within_s)[0])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""
