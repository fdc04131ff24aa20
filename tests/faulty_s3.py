"""A real S3 server on loopback, and in front of it a proxy that fails as networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "very-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
LATE_S = 0.2
Fault = Callable[[str, str], str]
"""Of a method and a path the fault's name; empty for none."""
ERRORS = {
    "broken": (500, "InternalError", "We encountered an internal error. Please try again."),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "denied": (403, "AccessDenied", "Access Denied"),
}


@dataclass
class FaultyS3:
    """The server's address, what happened to it, and what is to happen."""

    address: str = ""
    bucket: str = "bucket"
    fault: Fault = lambda method, path: ""
    faults: list[str] = field(default_factory=list)
    """Those that happened."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request."""

    def url(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    @contextlib.contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: ""


def times(fault: str, number: int, method: str, within: str = "") -> Fault:
    """A fault for the first requests of a method whose path holds a text."""
    left = [number]

    def decide(found: str, path: str) -> str:
        if found == method and within in path and left[0]:
            left[0] -= 1
            return fault
        return ""

    return decide


@contextlib.contextmanager
def faulty_s3() -> Iterator[FaultyS3]:
    """The server behind the proxy; boto and everything on it find the proxy by the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    found = FaultyS3()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Proxy, found, (host, port)))
    proxy.daemon_threads = True
    found.address = f"http://127.0.0.1:{proxy.server_port}"
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    before = {name: os.environ.get(name) for name in (*KEYS, "AWS_ENDPOINT_URL")}
    os.environ.update(KEYS, AWS_ENDPOINT_URL=found.address)
    try:
        client = boto3.client("s3")
        client.create_bucket(Bucket=found.bucket)
        client.close()
        yield found
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        proxy.shutdown()
        proxy.server_close()
        moto.stop()


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, s3: FaultyS3, behind: tuple[str, int], *request: Any) -> None:
        self._s3, self._behind = s3, behind
        super().__init__(*request)  # it answers all that comes over the connection in here

    def _pass_on(self) -> None:
        s3 = self._s3
        s3.requests.append((self.command, self.path))
        length = int(self.headers.get("Content-Length") or 0)
        fault = s3.fault(self.command, self.path)
        if fault:
            s3.faults.append(fault)
        if fault == "cut":  # in the middle of what is sent
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        if fault == "small pages":
            self.path += "&max-keys=2"
        body = self.rfile.read(length)
        if fault in ERRORS:
            self._refuse(*ERRORS[fault])
            return
        behind = http.client.HTTPConnection(*self._behind, timeout=30)
        try:
            behind.request(self.command, self.path, body, dict(self.headers))
            answer = behind.getresponse()
            data = answer.read()
        finally:
            behind.close()
        if fault in ("late", "silent") and self._hung_up_within(LATE_S if fault == "late" else 60):
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

    def _hung_up_within(self, seconds: float) -> bool:
        """Waits; the other side has nothing to say until it is answered."""
        return bool(select.select([self.connection], [], [], seconds)[0])

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""
