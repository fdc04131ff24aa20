"""The page over all of a dataset."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import select
import socket
import struct
import threading
from urllib.parse import quote, urlsplit

import pytest
from browser import Page, serving, violations
from playwright.sync_api import expect

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.runtime import local_server as loopback
from glit.view.search import SORTS
from glit.view.server import PAGE, PageServer


def get(server, path, *, host=None, method="GET"):
    """Status, headers, body."""
    place = urlsplit(server.address).netloc
    connection = http.client.HTTPConnection(place, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def raw(server):
    """A connection without a client's manners."""
    place = urlsplit(server.address)
    return socket.create_connection((place.hostname, place.port), timeout=20)


def samples(server, **asked):
    words = "&".join(f"{key}={quote(str(value))}" for key, value in asked.items())
    status, _, body = get(server, f"/samples?{words}")
    assert status == 200, body
    return json.loads(body)


def test_what_was_left_out_is_asked_for_by_reason(server):
    status, _, body = get(server, "/dropped?why=ingest/empty_file")
    found = json.loads(body)
    assert status == 200 and found["total"] == 1 and found["samples"] == []
    (row,) = found["dropped"]
    assert (row["path"], row["image"]) == ("<img src=x onerror=window.hacked=1>.png", "")
    (copy,) = json.loads(get(server, "/dropped?why=duplicate/exact&text=zz-")[2])["dropped"]
    assert copy["path"] == "zz-copy.png" and copy["message"].startswith("repeats 00000")
    assert copy["image"].startswith("data:image/webp;base64,")
    for words in (
        "why=ingest/empty_file&text=dog",
        "why=ingest/empty_file&first=1",
        "why=x' OR 1=1",
    ):
        assert json.loads(get(server, f"/dropped?{quote(words, safe='=&')}")[2])["dropped"] == []


def test_the_gallery_shows_what_was_left_out(server, browser):
    page = Page(browser, server.address, viewport={"width": 390, "height": 844})
    page.wait_for_selector(".charts")
    page.locator(".tools label", has_text="Show").locator("select").select_option(
        "ingest/empty_file"
    )
    expect(page.locator(".dropped-card")).to_have_count(1)
    assert "<img src=x" in page.locator(".dropped-card h3").inner_text()
    assert page.locator(".tally").inner_text() == "1 of 1 image dropped: ingest/empty_file"
    assert violations(page) == [] and page.evaluate("window.hacked") is None
    page.locator(".tools label", has_text="Show").locator("select").select_option("")
    expect(page.locator(".cards .card").first).to_be_visible()
    page.close()


def test_pages_of_samples(built):
    dataset = Dataset(built)
    with serving(dataset) as server:
        first, second = samples(server), samples(server, first=PAGE)
        assert first["total"] == second["total"] == 24
        numbers = [sample["n"] for sample in first["samples"] + second["samples"]]
        assert numbers == list(range(24)) and len(first["samples"]) == PAGE
        assert samples(server, first=500) == {"total": 24, "samples": []}
        assert samples(server, first=500, sort="best") == {"total": 24, "samples": []}


@pytest.mark.parametrize(
    ("asked", "sql"),
    [
        ({"text": "dog"}, "s.caption ILIKE '%dog%'"),
        ({"text": "000003"}, "s.source_path = '000003.png'"),
        ({"source": "yolos"}, "p.source = 'yolos' AND NOT p.global_wins"),
        ({"at_least": 0.6}, "p.similarity >= 0.6 AND NOT p.global_wins"),
        ({"kind": "alone"}, "p.global_wins"),
        ({"text": "' OR true --"}, "false"),
        ({"ids": "' OR true --"}, "false"),
    ],
)
def test_what_is_asked_for_is_found(server, hostile, asked, sql):
    wanted = query(
        str(hostile),
        f"SELECT DISTINCT s.sample_id FROM samples s JOIN pairs p USING (sample_id) WHERE {sql}",
    ).fetchall()
    found = samples(server, **asked)
    assert {sample["id"] for sample in found["samples"]} == {name for (name,) in wanted}
    assert found["total"] == len(wanted)


def test_samples_are_found_by_the_beginning_of_their_ids(server, opened):
    wanted = [opened[number].sample_id for number in (2, 5)]
    found = samples(server, ids=",".join(each[:16] for each in wanted))
    assert [sample["id"] for sample in found["samples"]] == wanted and found["total"] == 2
    both = samples(server, ids=wanted[0][:16], text=opened[5].source_path)
    assert both == {"total": 0, "samples": []}


def test_orders(server):
    best = {}
    for sort in SORTS:
        found = samples(server, sort=sort)["samples"]
        assert len(found) == 7
        best[sort] = [
            max((p["sim"] for p in s["pairs"] if not p["none"]), default=-2) for s in found
        ]
    assert best["best"] == sorted(best["best"], reverse=True)
    assert [b for b in best["worst"] if b > -2] == sorted(b for b in best["best"] if b > -2)


def test_a_picture_comes_in_full(server, opened):
    status, headers, body = get(server, "/image/2")
    assert status == 200 and headers["Content-Type"] == "image/png"
    assert hashlib.sha256(body).hexdigest() == opened[2].sample_id


@pytest.mark.parametrize(
    "path",
    ["/image/7", "/image/-1", "/image/x", "/nothing", "/../manifest.json", "/samples?sort=DROP",
     "/samples?at_least=nan", "/samples?first=x", "/samples?unknown=1",
     f"/image/{'9' * 5000}", f"/dropped?first={'9' * 30}", f"/samples?first={'9' * 30}",
     "/samples?first=-1", f"/samples?ids={'0,' * 2000}", f"/{'x' * 5000}"],
)  # fmt: skip
def test_what_is_not_there(server, path, capfd):
    status, _, body = get(server, path)
    assert status == 404 and b"Traceback" not in body and len(body) <= 300
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("length", "body"), [("-1", b"[]"), ("1e3", b"[]"), ("4000", b"[" * 4000), ("9" * 5000, b"")]
)
def test_what_cannot_be_taken(server, length, body, capfd):
    with raw(server) as connection:
        head = f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + head.encode() + body)
        assert connection.recv(99).startswith(b"HTTP/1.1 404 ")
    assert capfd.readouterr() == ("", "")


def test_a_client_that_goes_away_leaves_no_word(server, capfd):
    for _ in range(5):
        with raw(server) as connection:
            no_farewell = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_farewell)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert get(server, "/image/2")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_idle_connections_take_no_thread_each_and_are_closed(server, monkeypatch):
    monkeypatch.setattr(loopback._Handler, "timeout", 1.0)
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(raw(server)) for _ in range(100)]
        answers = [connection.recv(99) for connection in idle]  # which waits until it is closed
        assert threading.active_count() - before <= loopback._MOST_THREADS
    assert any(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
    assert get(server, "/image/2")[0] == 200


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nHost: localhost\r\n"
                                  b"Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n"])  # fmt: skip
def test_a_request_that_comes_byte_by_byte_is_cut_off(server, monkeypatch, head, capfd):
    monkeypatch.setattr(loopback, "_REQUEST_S", 0.3)
    with raw(server) as connection:
        connection.sendall(head)
        connection.settimeout(5)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 400 and not select.select([connection], [], [], 0.01)[0]:
                connection.sendall(b"1")
                sent += 1
        assert sent < 400
    assert get(server, "/image/2")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_an_icon(server):
    status, headers, body = get(server, "/favicon.ico")
    assert (status, headers["Content-Type"], body[1:4]) == (200, "image/png", b"PNG")


def test_only_this_machine_is_answered(server):
    address = urlsplit(server.address)
    assert address.hostname == "127.0.0.1"
    assert get(server, "/", host=f"localhost:{address.port}")[0] == 200
    assert get(server, "/", host=f"evil.example:{address.port}")[0] == 421
    assert get(server, "/", method="POST")[0] == 404
    _, headers, body = get(server, "/")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert b"default-src 'none'; img-src 'self' data:; connect-src 'self'" in body


def test_a_condition(hostile):
    with serving(Dataset(hostile), where="caption ILIKE '%dog%'") as server:
        assert samples(server)["total"] == 1
    with pytest.raises(UserError, match=r"--where: no column 'nothing'; columns: sample_id, .*"):
        PageServer(Dataset(hostile), port=0, where="nothing = 1")


def test_a_port_that_is_taken(hostile):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another"):
            PageServer(Dataset(hostile), port=taken.getsockname()[1])


def test_in_a_browser(browser, server):
    page = Page(browser, server.address, viewport={"width": 1200, "height": 900})
    page.wait_for_selector(".cards .card")
    page.wait_for_selector(".charts")
    assert page.locator(".figures").inner_text().startswith("images\n7\nsentences\n")
    page.get_by_label("Search").fill("dog")
    expect(page.locator(".cards .card")).to_have_count(1)
    assert "hacked=1</script>" in page.locator(".cards .caption").text_content()
    assert page.evaluate("window.hacked") is None
    assert page.faults == []
    page.close()
    page = Page(browser, server.address, bypass_csp=True)
    page.wait_for_selector(".charts")
    assert violations(page) == []
    page.close()
