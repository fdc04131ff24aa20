"""Samples corrected over HTTP and in a real browser, by one person and by two."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from browser import Page, violations

from glit.dataset.reader import Dataset
from glit.errors import InputError, UserError
from glit.review.corrections.journal import read_corrections
from glit.review.corrections.server import CorrectSite, Samples
from glit.runtime.local_server import address_of, loopback_server


@contextlib.contextmanager
def served(dataset, file, *, by="anna", where=""):
    samples = Samples(Dataset(dataset), file, by=by, where=where)
    with loopback_server(CorrectSite(samples), port=0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        try:
            yield address_of(running)
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def client(built, tmp_path):
    with (
        served(built, tmp_path / "c.jsonl") as address,
        httpx.Client(base_url=address, timeout=60) as opened,
    ):
        yield opened


def say(client, number, did, **state):
    seen = client.get(f"/sample/{number}").json()["seen"]
    said = {"number": number, "seen": seen, "did": did, "state": state}
    return client.post("/say", json=said)


def last_states(built, file):
    found, _, _ = read_corrections(file, Samples(Dataset(built), file, by="x").journal._dataset)
    return {line.sample_id: line.state for line in found}


def test_a_person_corrects_undoes_and_goes_on_another_day(client, built, tmp_path):
    assert "correct by hand" in client.get("/").text and client.get("/next").json() == 0
    sample = client.get("/sample/0").json()
    assert sample["total"] == 24 and sample["sentences"][0]["text"] and sample["regions"]
    answer = say(client, 0, "strike", struck=[1])
    assert answer.json()["state"]["struck"] == [1] and answer.json()["seen"] == 1
    assert say(client, 0, "right", struck=[1], right=True).json()["right"] == 1
    say(client, 2, "pair", pairs={"0": None})
    assert client.post("/undo", json={}).json()["number"] == 2
    assert client.get("/sample/2").json()["state"]["pairs"] == {}
    picture = client.get(f"/image/{sample['id']}")
    assert picture.headers["content-type"] == "image/png"
    with (
        served(built, tmp_path / "c.jsonl") as address,
        httpx.Client(base_url=address, timeout=60) as again,
    ):
        assert again.get("/next").json() == 1  # the first is right, the third was undone
        assert again.get("/sample/0").json()["state"]["struck"] == [1]


def test_images_are_found_by_path_and_the_command_applies_what_was_said(client, built, tmp_path):
    say(client, 3, "right", right=True)
    found = client.get("/find/").json()
    assert len(found["found"]) == 24 and found["more"] == 0
    assert found["found"][3] == [3, client.get("/sample/3").json()["path"], True]
    one = client.get("/find/000003.PNG").json()["found"]
    assert one == [found["found"][3]] and client.get("/find/no%20such").json()["found"] == []
    assert found["command"] == (
        f"glit pairs apply {built} --corrections {tmp_path}/c.jsonl -o {built}-corrected"
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"struck": [99]}, "sentence 99"),
        ({"boxes": {"0": [1, 1, 1, 9]}}, "smaller than a pixel"),
        ({"boxes": {"0": [1, 1, 9, 900]}}, "leaves the 128x128 image"),
        ({"pairs": {"0": 99}}, "region 99"),
        ({"note": 3}, "want a text"),
    ],
)
def test_what_is_impossible_is_not_kept(client, tmp_path, said, words):
    answer = say(client, 0, "note", **said)
    assert answer.status_code == 404 and words in answer.text
    assert not (tmp_path / "c.jsonl").exists()


def test_nobody_else_can_ask_or_correct(client, tmp_path):
    assert client.get("/sample/0", headers={"Host": "evil.example"}).status_code == 421
    evil = {"Host": "evil.example"}
    assert client.post("/undo", json={}, headers=evil).status_code == 421
    assert client.post("/say", data={"number": "0"}).status_code == 404
    for body in ([], {}, {"number": 0}, {"number": 0, "did": "undo", "seen": 0, "state": {}}):
        assert client.post("/say", json=body).status_code == 404
    assert client.post("/undo", json={}).status_code == 404
    for path in ("/sample/24", "/sample/-1", "/image/x", "/../../etc/passwd"):
        assert client.get(path).status_code == 404
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]
    too_long = client.post("/say", json={"number": 0, "note": "x" * (1 << 18)})
    assert too_long.status_code == 404 and not (tmp_path / "c.jsonl").exists()


def test_two_servers_on_one_file_keep_the_lines_of_both(client, built, tmp_path):
    file = tmp_path / "c.jsonl"
    with (
        served(built, file, by="ben") as address,
        httpx.Client(base_url=address, timeout=60) as ben,
    ):
        say(client, 0, "strike", struck=[1])
        stale = {"number": 0, "seen": 0, "did": "strike", "state": {"struck": [2]}}
        answer = ben.post("/say", json=stale)
        assert answer.status_code == 404 and "anna changed this image meanwhile" in answer.text
        assert ben.get("/sample/0").json()["state"]["struck"] == [1]
        say(ben, 0, "strike", struck=[1, 2])
        say(ben, 1, "right", right=True)
        assert client.post("/say", json=stale).status_code == 404
        assert client.get("/sample/0").json()["state"]["struck"] == [1, 2]
    assert [json.loads(line)["by"] for line in file.read_text().splitlines()] == [
        "anna", "ben", "ben",
    ]  # fmt: skip


def test_a_condition_chooses_samples_and_what_fits_nothing_is_refused(built, tmp_path):
    with served(built, tmp_path / "c.jsonl", where="source_path < '000003'") as address:
        assert httpx.get(f"{address}sample/2").json()["total"] == 3
    with pytest.raises(UserError, match="none of 24 samples"):
        Samples(Dataset(built), tmp_path / "c.jsonl", by="anna", where="width = 1")


def test_a_file_of_another_dataset_is_refused(client, built_copy, tmp_path):
    say(client, 0, "strike", struck=[1])
    manifest = built_copy / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(InputError, match="line 1: corrections of another dataset"):
        Samples(Dataset(built_copy), tmp_path / "c.jsonl", by="anna")


@pytest.mark.slow
def test_a_server_that_is_killed_has_kept_what_it_answered(built, tmp_path):
    words = ["pairs", "correct", built, "--corrections", tmp_path / "c.jsonl", "--by", "anna"]
    command = [sys.executable, "-m", "glit", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        told = running.stderr.readline()
        address = next(word for word in told.split() if word.startswith("http"))
        with httpx.Client(base_url=address, timeout=60) as client:
            say(client, 3, "strike", struck=[0])
        os.kill(running.pid, signal.SIGKILL)
    with Path(tmp_path / "c.jsonl").open("a") as file:
        file.write('{"format": "glit-corr')
    samples = Samples(Dataset(built), tmp_path / "c.jsonl", by="anna")
    assert samples.journal.cut and samples.first_open() == 3
    assert samples.sample(3)["state"]["struck"] == (0,)


@pytest.mark.parametrize("options", [{}, {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}])  # fmt: skip
def test_keys_correct(browser, built, tmp_path, options):
    file = tmp_path / "c.jsonl"
    with served(built, file) as address:
        page = Page(browser, address, **options)
        where = page.locator("#where")
        where.filter(has_text="Image 1 of 24").wait_for()
        regions = page.locator("#boxes button").count()
        assert violations(page) == []

        def press(*keys: str, lines: int) -> None:
            """The keys; waits until so many lines are kept, and shown."""
            for key in keys:
                page.keyboard.press(key)
            page.wait_for_function("(n) => q.seen === n", arg=lines)

        press("b", "m", "Shift+ArrowLeft", "Shift+ArrowUp", "Enter", lines=1)
        press("d", "ArrowLeft", "r", "ArrowUp", "Enter", lines=2)
        press("p", lines=3)
        press("ArrowDown", "x", lines=4)
        press("ArrowDown", "o", lines=5)
        press("z", lines=6)
        press("e", "End", lines=6)
        page.keyboard.type(" Indeed.")
        press("Enter", lines=7)
        press("t", lines=7)
        page.keyboard.type("odd, dark")
        press("Enter", lines=8)
        assert violations(page) == []
        press("Enter", lines=0)  # the next image
        where.filter(has_text="Image 2 of 24, 1 called right").wait_for()
        assert "glit pairs apply" in page.locator("#command").inner_text()
        page.locator("#all summary").click()
        page.locator("#find").fill("000007")
        page.locator("#paths button", has_text="000007").click()
        where.filter(has_text="Image 8 of 24").wait_for()
        assert violations(page) == []
        assert page.faults == []
        assert all(url.startswith(address) for url in page.asked)
    ((sample_id, state),) = last_states(built, file).items()
    row = next(row for row in Dataset(built) if row.sample_id == sample_id)
    moved = next(number for number in state.boxes if number < regions)
    before, after = row.regions[moved].box.xyxy, state.boxes[moved]
    assert after == pytest.approx([value - 1 for value in before], abs=0.02)
    assert state.pairs == {0: regions} and state.struck == (1,)
    assert state.texts == {2: f"{row.sentences[2].text} Indeed."}
    assert state.tags == ("odd", "dark") and state.right


def test_a_mouse_moves_a_corner_draws_and_chooses(browser, built, tmp_path):
    file = tmp_path / "c.jsonl"
    with served(built, file) as address:
        page = Page(browser, address)
        page.locator("#where").filter(has_text="Image 1 of 24").wait_for()
        regions = page.locator("#boxes button").count()
        page.keyboard.press("d")
        page.keyboard.press("Enter")
        page.wait_for_function("() => q.seen === 1")
        knob = page.locator(".knob[data-corner=d]").bounding_box()
        scale = page.locator("#shapes").evaluate("(svg) => svg.getScreenCTM().a")
        x, y = knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 5 * scale, y + 5 * scale, steps=3)
        page.mouse.move(x + 10 * scale, y + 10 * scale)
        page.mouse.up()
        page.wait_for_function("() => q.seen === 2")
        page.keyboard.press("l")
        page.keyboard.type("a kite")
        page.keyboard.press("Enter")
        page.wait_for_function("() => q.seen === 3")
        assert page.locator("#boxes").get_by_text("a kite").count() == 1
        assert page.faults == []
    (state,) = last_states(built, file).values()
    assert state.boxes[regions] == pytest.approx((38.4, 38.4, 99.6, 99.6), abs=0.6)
