"""A server of Google's storage on loopback, and in front of it a proxy that fails.

The server does not know ``ifGenerationMatch=0``, "only where there is none". The proxy does, one
such request after the other, unless it is told not to.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from faulty_proxy import Answer, FaultyStore
from fsspec.config import conf
from fsspec.registry import _registry as registry
from gcp_storage_emulator.server import create_server


def _error(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"code": status, "message": message}}).encode()


ERRORS = {
    "broken": _error(503, "Backend Error"),
    "expired": _error(401, "Request had expired authentication credentials."),
    "denied": _error(403, "somebody does not have storage.objects.get access to the object."),
}


@dataclass
class FaultyGoogle(FaultyStore):
    """A store of Google's kind."""

    knows_create: bool = True
    _one: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def in_turn(self, method: str, path: str, body: bytes) -> Iterator[Answer | None]:
        if not (self.knows_create and method == "POST" and "ifGenerationMatch=0" in path):
            yield None
            return
        found = re.search(rb'\{"name": "[^\n]*\}', body)
        assert found, "an upload in one piece"
        name = quote(json.loads(found.group())["name"], safe="")
        with self._one:
            there, _ = self.ask("GET", f"/storage/v1/b/{self.bucket}/o/{name}", b"", {})
            yield _error(412, "conditionNotMet") if there.status == 200 else None


@contextlib.contextmanager
def faulty_google() -> Iterator[FaultyGoogle]:
    """The server behind the proxy; gcsfs finds the proxy by fsspec's configuration."""
    import fsspec
    from gcsfs.core import GCSFileSystem

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    found = FaultyGoogle(kind="gs", errors=ERRORS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found.behind = free.getsockname()
    before = registry.get("gs")
    # what gcsfs registers asks over gRPC what kind of bucket it is, which no emulator here answers
    fsspec.register_implementation("gs", GCSFileSystem, clobber=True)
    with create_server(*found.behind, in_memory=True, default_bucket=found.bucket), found.running():
        conf["gs"] = {"endpoint_url": found.address, "token": "anon"}
        try:
            yield found
        finally:
            del conf["gs"]
            registry.pop("gs", None) if before is None else registry.update(gs=before)
