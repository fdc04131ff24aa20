"""The map and the nearest samples of ``glit view --serve``."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import Page, serving, violations
from playwright.sync_api import expect

from glit.dataset.reader import Dataset
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.view import embeddings
from glit.view.embeddings import matcher_here, principal_plane


def get(server, path):
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def when_ready(server, path, key):
    """The answer after the images were embedded."""
    for _ in range(600):
        status, body = get(server, path)
        assert status == 200, body
        if key in (found := json.loads(body)):
            return found
        assert set(found) == {"done", "total"}
        time.sleep(0.1)
    raise AssertionError("never embedded")


@pytest.fixture(scope="module")
def vectors(hostile):
    """What the evaluation makes of the images."""
    collection = DatasetCollection(str(hostile), EvaluateConfig())
    embedder = load_embedder("mini-matcher", EvaluateConfig())
    return embedder.images(collection, embedder.wholes(collection)).numpy()


def test_the_map_has_every_image_on_the_principal_plane(server, opened, vectors):
    found = when_ready(server, "/map", "points")
    assert (found["done"], found["total"]) == (7, 7)
    assert [point[:2] for point in found["points"]] == [
        [number, opened[number].sample_id] for number in range(7)
    ]
    places = np.array([point[2:] for point in found["points"]])
    assert places.min() == 0 and places.max() == 1
    np.testing.assert_allclose(places, principal_plane(vectors), atol=2e-3)


def test_the_nearest_are_those_of_the_highest_cosine(server, vectors):
    found = when_ready(server, "/similar/2", "samples")
    cosines = vectors @ vectors[2]
    assert [each["n"] for each in found["samples"]] == np.argsort(-cosines).tolist()
    np.testing.assert_allclose(
        [each["cosine"] for each in found["samples"]], np.sort(cosines)[::-1], atol=1e-4
    )


@pytest.mark.parametrize("path", ["/similar/7", "/similar/-1", "/similar/x", "/similar/",
                                  f"/similar/{'9' * 30}", "/similar/1/2"])  # fmt: skip
def test_rows_that_are_not_there(server, path):
    when_ready(server, "/map", "points")
    status, body = get(server, path)
    assert status == 404 and b"Traceback" not in body


def test_a_condition_and_the_cap_choose_what_is_embedded(hostile, monkeypatch):
    with serving(Dataset(hostile), where="source_path > '000002.png'") as server:
        found = when_ready(server, "/map", "points")
        assert [number for number, *_ in found["points"]] == [3, 4, 5, 6]
        assert get(server, "/similar/2")[0] == 404
    monkeypatch.setattr("glit.view.server.MOST", 3)
    with serving(Dataset(hostile)) as server:
        assert len(when_ready(server, "/map", "points")["points"]) == 3


def test_without_its_matcher_a_dataset_has_no_map(sample, hostile):
    with serving(Dataset(sample / "dataset")) as server:  # its pairs were made by hand
        assert get(server, "/map")[0] == get(server, "/similar/0")[0] == 404
        assert b'"embeddings":0' in get(server, "/")[1]
    other = Dataset(hostile)
    other.manifest = replace(
        manifest := other.manifest,
        models={"matcher": replace(manifest.models["matcher"], sha256="0" * 64)},
    )
    with serving(other) as server:
        deadline = time.monotonic() + 20
        while (answer := get(server, "/map"))[0] == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer[0] == 500 and b"not those that the dataset was built with" in answer[1]


def test_a_dataset_cannot_name_a_file_of_this_machine(tmp_path, monkeypatch):
    folder = embeddings.Path(matcher_here("mini-matcher", "1"))
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/model").symlink_to(folder)
    names = ("", ".", "..", "mine/model", str(folder), f"../{tmp_path.name}/mine/model", "~/model",
             "no-such/model", "a/b/c", "mini-matcher\0", "x" * 5000, f"a/{'x' * 5000}")  # fmt: skip
    assert [name for name in names if matcher_here(name, "main") is not None] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_point_opens_its_sample_and_a_sample_shows_the_nearest(browser, server, opened, width):
    page = Page(
        browser, server.address, viewport={"width": width, "height": 900}, bypass_csp=True,
        reduced_motion="reduce",
    )  # fmt: skip
    page.wait_for_selector(".charts")
    page.get_by_role("button", name="Draw the map").click()
    canvas = page.locator(".points canvas")
    expect(canvas).to_be_visible(timeout=60_000)
    points = when_ready(server, "/map", "points")["points"]
    room = canvas.bounding_box()
    place = {
        "x": 10 + points[4][2] * (room["width"] - 22),
        "y": 10 + (1 - points[4][3]) * (room["height"] - 22),
    }
    canvas.hover(position=place)
    expect(page.locator(".peek")).to_be_visible()
    canvas.focus()
    visited = set()
    for presses in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "PageDown"):
        for _ in points:
            page.keyboard.press(presses)
            visited.add(page.locator(".points [role=status]").inner_text())
        if presses == "ArrowRight":
            assert page.locator(".peek").get_attribute("src") == (
                f"image/{max(points, key=lambda point: point[2])[0]}"
            )
    assert len(visited) == len(points) and violations(page) == []
    page.keyboard.press("Enter")
    expect(page.locator(".cards .card")).to_have_count(1)
    name = page.locator(".cards h3")
    expect(name).to_have_text(opened[int(page.locator(".peek").get_attribute("src")[6:])].source_path)  # fmt: skip
    canvas.click(position=place)
    expect(name).to_have_text(opened[points[4][0]].source_path)
    page.locator(".cards .card a.like").click()
    expect(page.locator(".cards .card")).to_have_count(7)
    assert page.locator(".tally").inner_text().startswith("The 7 samples nearest to ")
    assert page.locator(".cards h3").first.text_content() == opened[points[4][0]].source_path
    page.get_by_role("link", name="Back to all").click()
    expect(page.locator(".tally")).to_have_text("7 of 7 samples")
    assert violations(page) == [] and page.faults == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
