"""Where things stand on the pages: pictures have their room early, badges leave objects free."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from browser import Page
from PIL import Image
from playwright.sync_api import expect

from glit.dataset.reader import Dataset
from glit.images.thumbnails import data_url
from glit.view.compare import compare_data
from glit.view.explain import explain, explain_page
from glit.view.page_file import report_html
from glit.view.report import report_data

FAR = "http://pictures.test/"
PLACES = """[...document.querySelectorAll('img, section, .card, .dropped-card, .query')].map(
    e => Object.values(e.getBoundingClientRect().toJSON()).map(Math.round))"""
COVERED = """[...document.querySelectorAll('.cards .card button.box')].map(box => {
    const [a, b] = [box, box.querySelector('b')].map(e => e.getBoundingClientRect());
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return Math.max(wide, 0) * Math.max(tall, 0) / (a.width * a.height);
})"""


@pytest.fixture(scope="module")
def photographs(sample) -> Dataset:
    """The sample: pairs made by hand."""
    return Dataset(sample / "dataset")


@pytest.fixture(scope="module")
def pages(photographs, hostile) -> dict[str, dict[str, Any]]:
    """The data of every kind of page with pictures."""
    drops = Dataset(hostile)
    report = report_data(photographs, most=9, seed=0, where="")
    url = report["samples"][0]["image"]
    picture = {"name": "x", "image": url}
    found = {**picture, "score": 0.5, "right": False}
    query = {"query": {"text": "words"}, "rank": 2, "right": picture, "nearest": [found] * 3}
    result = {"task": "retrieval", "model": "m", "checkpoint": "", "dataset": "d", "images": 1,
              "captions": 1, "metrics": {"recall": 1.0}}  # fmt: skip
    neighbours = {"model": "m", "dataset": "d", "ways": {"image": {"right": [], "wrong": [query]}}}
    return {
        "report": report,
        "dropped": report_data(drops, most=9, seed=0, where=""),
        "compare": compare_data(photographs, photographs, most=9, seed=0),
        "shipped": explain_page(photographs, explain(photographs, "rocket.jpg")),
        "a drop": explain_page(drops, explain(drops, "zz-copy.png")),
        "neighbours": {"kind": "learning", "glit": "", "name": "x", "runs": [], "recalls": [],
                       "results": [result], "neighbours": [neighbours]},
    }  # fmt: skip


def far(value: Any, pictures: list[bytes]) -> Any:
    """The page's data with its pictures at addresses, where they can be held back."""
    if isinstance(value, dict):
        return {name: far(each, pictures) for name, each in value.items()}
    if isinstance(value, list):
        return [far(each, pictures) for each in value]
    if isinstance(value, str) and value.startswith("data:image/"):
        pictures.append(base64.b64decode(value.partition(",")[2]))
        return f"{FAR}{len(pictures) - 1}"
    return value


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "kind", ["report", "dropped", "compare", "shipped", "a drop", "neighbours"]
)
def test_nothing_moves_when_a_picture_arrives(browser, pages, tmp_path, kind, width):
    pictures: list[bytes] = []
    path = tmp_path / "page.html"
    path.write_text(report_html(far(pages[kind], pictures)), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, bypass_csp=True, reduced_motion="reduce"
    )
    held: list[Any] = []
    arrive = False

    def answer(route: Any) -> None:
        if arrive:
            route.fulfill(body=pictures[int(route.request.url.removeprefix(FAR))])
        else:
            held.append(route)

    context.route(f"{FAR}**", answer)
    page = context.new_page()
    page.goto(
        path.as_uri() + ("#why=duplicate/exact" if kind == "dropped" else ""),
        wait_until="domcontentloaded",
    )
    page.add_style_tag(content=".cards .card { content-visibility: visible !important }")
    page.wait_for_selector("img", state="attached")
    page.evaluate("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    page.wait_for_timeout(300)
    before = page.evaluate(PLACES)
    assert held and pictures
    arrive = True
    for route in held:
        answer(route)
    page.evaluate("Promise.all([...document.images].map(image => image.decode()))")
    page.wait_for_timeout(50)
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 1)")
    assert page.evaluate(PLACES) == before
    context.close()


@pytest.mark.parametrize("boxes", ["chosen", "named"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_badge_leaves_its_object_free(browser, pages, tmp_path, boxes, width):
    """A small box has its badge outside, wherever it lies in the picture."""
    first = pages["report"]["samples"][0]
    wide, tall = first["w"], first["h"]
    corners = [(x, y) for x in (0, 0.5, 0.95) for y in (0, 0.5, 0.95)]
    regions = [
        {"box": [x * wide, y * tall, (x + 0.05) * wide, (y + 0.05) * tall], "score": 0.5,
         "label": "a long label", "source": "yolo"} for x, y in corners
    ]  # fmt: skip
    pairs = [{"s": n, "r": n, "sim": 1, "p": None, "t": None, "none": False} for n in range(9)]
    small = first | {
        "regions": regions, "pairs": pairs, "numbers": list(range(9)), "matrix": [[0] * 9] * 9,
        "parts": [["Words. ", n] for n in range(9)], "flags": [first["flags"][0]] * 9,
    }  # fmt: skip
    path = tmp_path / "page.html"
    path.write_text(report_html(pages["report"] | {"samples": [small]}), encoding="utf-8")
    page = Page(browser, f"{path.as_uri()}#boxes={boxes}", viewport={"width": width, "height": 900})
    page.locator(".cards .card").scroll_into_view_if_needed()
    expect(page.locator(".cards .card button.box")).to_have_count(9)
    covered = page.evaluate(COVERED)
    assert max(covered) <= 0.25, covered
    cut = page.evaluate(
        """[...document.querySelectorAll('.cards .card .box b')].filter(b => {
            const [a, c] = [b, b.closest('.stage')].map(e => e.getBoundingClientRect());
            return a.left < c.left - 3 || a.right > c.right + 3 || a.top < c.top - 3 || a.bottom > c.bottom + 3;
        }).map(b => b.textContent)"""
    )
    assert cut == []
    page.close()


def test_over_each_column_of_the_matrix_is_its_region(browser, pages, tmp_path):
    """The left half of the picture is red, the right half blue; the second column is the left."""
    first = pages["report"]["samples"][0]
    picture = Image.new("RGB", (64, 64), "blue")
    picture.paste("red", (0, 0, 32, 64))
    file = io.BytesIO()
    picture.save(file, "WEBP", lossless=True)
    boxes = [[500, 0, 1000, 1000], [0, 0, 500, 1000], [600, 600, 620, 620]]
    regions = [{"box": box, "score": 1, "label": "", "source": "yolo"} for box in boxes]
    pair = {"s": 0, "r": 1, "sim": 1, "p": None, "t": None, "none": False}
    halves = first | {
        "w": 1000, "h": 1000, "image": data_url(file.getvalue()), "regions": regions,
        "numbers": [0, 1, 2], "pairs": [pair], "matrix": [[0.5, 1, 0]], "parts": [["Words.", 0]],
        "flags": [first["flags"][0]],
    }  # fmt: skip
    path = tmp_path / "page.html"
    path.write_text(report_html(pages["report"] | {"samples": [halves]}), encoding="utf-8")
    page = Page(browser, path.as_uri())
    canvas = page.locator(".cards .heat canvas")
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    middle = """canvas => [1, 3, 5].map(at => [...canvas.getContext('2d').getImageData(
        Math.round(at * canvas.width / 6), 14 * canvas.height / canvas.clientHeight, 1, 1).data])"""
    assert canvas.evaluate(middle) == [[0, 0, 255, 255], [255, 0, 0, 255], [0, 0, 255, 255]]
    wide = canvas.bounding_box()["width"]
    for column, lit in ((1, [0]), (0, [])):  # the other regions have no sentence
        canvas.hover(position={"x": (column + 0.5) * wide / 3, "y": 10})
        on = page.locator(".cards .sentence.on").evaluate_all("all => all.map(s => +s.dataset.s)")
        assert on == lit
        assert page.locator(".cards .box.on").count() == 1
    page.mouse.move(0, 0)
    assert page.locator(".cards .box.on").count() == 0
    page.close()


def test_values_of_pairs_from_files_are_not_called_cosines(browser, pages, tmp_path, built):
    for kind, data in pages.items():
        if kind not in ("report", "compare"):
            continue
        path = tmp_path / f"{kind}.html"
        path.write_text(report_html(data), encoding="utf-8")
        page = Page(browser, path.as_uri())
        page.wait_for_selector(".cards .card")
        assert "cosine" not in page.locator(".tools").inner_text() + page.locator(".origin").text_content().replace("no cosine", "")  # fmt: skip
        assert ("Best similarity ≥" if kind == "report" else "Median similarity") in page.locator(
            "main"
        ).text_content()
        if kind == "report":
            assert (
                page.locator(".chart", has_text="Similarity of the pairs")
                .locator(".say")
                .inner_text()
                == "Always 1; 1 for a pair of the file, else 0; no cosine."
            )
        page.close()


def test_a_page_is_named_so_that_it_is_known_among_others(browser, pages, photographs, tmp_path):
    folder = Path(photographs.path).parent.name
    for kind, title in (
        ("report", f"{folder}/dataset, recipe sample"),
        ("compare", f"{folder}/dataset against {folder}/dataset"),
    ):
        (tmp_path / "page.html").write_text(report_html(pages[kind]), encoding="utf-8")
        page = Page(browser, (tmp_path / "page.html").as_uri())
        assert page.title() == f"{title} · glit"
        assert f"{folder}/dataset" in page.locator("h1").inner_text()
        page.close()
