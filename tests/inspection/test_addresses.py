"""Addresses are asked with limits, and never in private networks."""

from __future__ import annotations

import http.server
import json
import socket
import threading

import pytest
from sound_files import caption

from glit import api
from glit.inspection import addresses
from glit.inspection.addresses import AddressSample, address_fault

PRIVATE = "leads to a private network, which is not asked"


@pytest.fixture
def server(monkeypatch):
    """A server on loopback that counts as public, and what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            if self.path.startswith("/again"):
                self.send_response(302)
                self.send_header("Location", self.path)
            elif self.path == "/inside":
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:1/secret")
            else:
                self.send_response(404 if "gone" in self.path else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    plain = addresses._public

    def public(host: str, port: int) -> str:
        return "127.0.0.1" if port == running.server_port else plain(host, port)

    monkeypatch.setattr(addresses, "_public", public)
    yield f"http://example.org:{running.server_port}", asked
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1/", "http://[::1]/", "http://10.0.0.1/a", "http://169.254.169.254/latest",
     "http://0.0.0.0/", "http://2130706433/", "http://[::ffff:127.0.0.1]/"],
)  # fmt: skip
def test_private_networks_are_not_asked(address, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert address_fault(address) == PRIVATE


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "ftp://a/b", "http://", "http://me:key@a/", "x", "http://a:b/"],
)
def test_other_addresses_are_refused(address):
    assert address_fault(address)


def test_answers(server):
    address, asked = server
    assert address_fault(f"{address}/1.jpg") == ""
    assert address_fault(f"{address}/gone") == "answers 404"
    assert address_fault(f"{address}/again") == "more than 3 redirections"
    assert address_fault(f"{address}/inside") == PRIVATE
    assert len(asked) == 7


def test_a_file_with_addresses(server, tmp_path):
    address, asked = server
    entries = [{"id": n, "file_name": f"{n}.png", "coco_url": f"{address}/{'gone' if n == 1 else n}"}
               for n in range(3)]  # fmt: skip
    texts = [{"image_id": n, "caption": caption(n)} for n in range(3)]
    (tmp_path / "a.json").write_text(json.dumps({"images": entries, "annotations": texts}))
    skipped = dict(api.audit(tmp_path / "a.json").skipped)
    assert skipped["address-dead"] == "add --network to ask 3 of 3 addresses" and asked == []
    (found,) = api.audit(tmp_path / "a.json", network=True).findings
    assert (found.code, found.at_fault, found.looked_at) == ("address-dead", 1, 3)
    assert found.examples[0].name == "1.png" and len(asked) == 3


def test_the_sample_is_bounded_and_does_not_depend_on_the_order(monkeypatch):
    monkeypatch.setattr(addresses, "MOST_ADDRESSES", 5)
    forward, backward = AddressSample(), AddressSample()
    for n in range(50):
        forward.add(f"http://a/{n}", str(n))
        backward.add(f"http://a/{49 - n}", str(49 - n))
    assert len(forward) == 5 and forward._kept.values() == backward._kept.values()
