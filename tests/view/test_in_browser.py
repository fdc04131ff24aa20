"""The page in a real browser: it opens from disk, answers mouse and keyboard, and runs no caption."""

from __future__ import annotations

import base64

import pytest
from browser import Page, violations
from playwright.sync_api import expect

from glit.dataset.reader import Dataset
from glit.view.compare import compare_data
from glit.view.explain import explain, explain_page
from glit.view.page_file import report_html
from glit.view.report import write_report

HOSTILE_NAME = "<img src=x onerror=window.hacked=1>.png"
READY = ".cards .card"
ON = "[...document.querySelectorAll('.cards .card')].map(card => [[...card.querySelectorAll('.sentence.on')].map(s => +s.dataset.s), [...card.querySelectorAll('.box.on')].map(b => +b.dataset.r)])"


CUT = """[...document.querySelectorAll('main .table td, main .table th')]
    .filter(cell => cell.offsetParent && cell.getBoundingClientRect().right > innerWidth + 1)
    .map(cell => cell.textContent)"""
"""Cells of tables of which a part is beside the page."""


@pytest.fixture(scope="module")
def report(hostile, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    return path, write_report(Dataset(hostile), path)


@pytest.fixture
def page(browser, report):
    opened = Page(browser, report[0].as_uri(), viewport={"width": 1280, "height": 900})
    opened.wait_for_selector(READY)
    yield opened
    assert opened.faults == []
    assert opened.from_network == []
    assert opened.evaluate("window.hacked") is None
    opened.close()


def paired(report):
    """A sample's place and one of its pairs: the first sample in which a region is a sentence's."""
    return next(
        (place, pair)
        for place, sample in enumerate(report[1]["samples"])
        for pair in sample["pairs"]
        if not pair["none"]
    )


def test_what_captions_say_is_shown_and_not_run(page, report):
    words = page.locator(".cards .card").first.locator(".caption").text_content()
    assert "<script>window.hacked=1</script>" in words and "onerror=" in words
    assert page.locator(".caption img, .caption script, .reasons img").count() == 0
    page.locator(".reasons summary").first.click()
    assert "<img src=x onerror=window.hacked=1>.png" in page.locator(".reasons").inner_text()
    page.evaluate("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    page.evaluate("Promise.all([...document.images].map(image => image.decode()))")  # or it raises


def test_the_gallery_shows_what_was_left_out_by_reason(page):
    page.locator(".tools label", has_text="Show").locator("select").select_option("duplicate/exact")
    expect(page.locator(".dropped-card")).to_have_count(1)
    assert page.locator(".dropped-card").inner_text().startswith("zz-copy.png")
    assert page.locator(".dropped-card img").evaluate("image => image.naturalWidth") == 128
    assert page.locator(".cards .card").count() == 0
    page.get_by_label("Search").fill("nothing like it")
    expect(page.locator(".dropped-card")).to_have_count(0)
    page.get_by_label("Search").fill("")
    page.locator(".tools label", has_text="Show").locator("select").select_option("")
    expect(page.locator(".cards .card").first).to_be_visible()


def test_on_paper_everything_is_unfolded_and_drawn_in_black(page):
    inked = "[...document.querySelectorAll('.heat canvas')].every(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].some((v, i) => i % 4 === 3 && v > 200))"
    assert page.locator(".reasons details[open]").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".reasons details:not([open])").count() == 0
    assert page.evaluate(inked)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".reasons details[open]").count() == 0


def test_a_lit_sentence_is_mapped_by_every_model(browser, built, tmp_path):
    """Its brightest patch is opaque, the others are clear; the box is that of its pair."""
    dataset = Dataset(built)

    def maps(numbers):
        found = []
        for number in numbers:
            some = range(len(dataset[number].sentences))
            rows = [bytes(255 * (patch == s) for patch in range(16)) for s in some]
            ends = {"low": [0.0 for _ in some], "high": [0.5 for _ in some]}
            encoded = [base64.b64encode(row).decode() for row in rows]
            found.append([{"model": name, "grid": 4, "maps": encoded, **ends} for name in "ab"])
        return found

    write_report(dataset, tmp_path / "page.html", maps=maps)
    page = Page(browser, (tmp_path / "page.html").as_uri())
    card = page.locator(READY).first
    bright = "c => [...c.getContext('2d').getImageData(0, 0, 4, 4).data].flatMap((v, i) => i % 4 === 3 && v > 0 ? [(i - 3) / 4] : [])"
    for s in (1, 0):
        card.locator(".sentence").nth(s).hover()
        expect(card.locator(".map figcaption").first).to_have_text(
            f"a · sentence {s + 1}, cosine 0.000 to 0.500"
        )
        drawn = [card.locator(".map canvas").nth(model).evaluate(bright) for model in (0, 1)]
        assert drawn == [[s], [s]]
    page.mouse.move(0, 0)
    assert violations(page) == []
    assert [fault for fault in page.faults if "getImageData" not in fault] == []  # this test's own
    page.close()


def test_the_policy_stops_what_would_get_in(browser, report):
    opened = Page(browser, report[0].as_uri())
    opened.wait_for_selector(READY)
    opened.evaluate(
        "() => { const d = document.createElement('div'); d.innerHTML = "
        '\'<img src="data:,x" onerror="window.hacked=1">\'; document.body.append(d); '
        "const s = document.createElement('script'); s.textContent = 'window.hacked=2'; document.body.append(s); }"
    )
    opened.wait_for_timeout(50)
    assert opened.evaluate("window.hacked") is None
    assert any("Content Security Policy" in fault for fault in opened.faults)
    opened.close()


def test_a_sentence_lights_its_region_and_the_reverse(page, report):
    place, pair = paired(report)
    card = page.locator(READY).nth(place)
    card.locator(f".sentence[data-s='{pair['s']}']").hover()
    lit = page.evaluate(ON)
    assert lit[place] == [[pair["s"]], [pair["r"]]]
    assert all(each == [[], []] for at, each in enumerate(lit) if at != place)
    assert f"{pair['sim']:.3f}" in card.locator(".readout").inner_text()
    page.mouse.move(0, 0)
    assert page.evaluate(ON)[place] == [[], []]
    sample = report[1]["samples"][place]
    both = sorted(p["s"] for p in sample["pairs"] if not p["none"] and p["r"] == pair["r"])
    card.locator(f".box[data-r='{pair['r']}']").focus()
    assert page.evaluate(ON)[place] == [both, [pair["r"]]]


def test_a_sentence_without_a_region_looks_and_says_so(page):
    alone = page.locator(f"{READY} .sentence.alone").first
    alone.hover()
    assert "no region of its own" in page.locator(f"{READY} .readout.on").inner_text()
    assert page.locator(f"{READY} .box.on").count() == 0


def test_the_page_opens_on_the_sample_with_the_most_probable_regions(browser, report, tmp_path):
    def opens_on(*probabilities):
        """Numbers of samples whose sentences have these probabilities, each of its own region."""
        samples = []
        for number, values in enumerate(probabilities):
            regions = [
                {"box": [0, 0, 9, 9], "score": 1, "label": "", "source": "yolos"} for _ in values
            ]
            pairs = [
                {"s": at, "r": at, "sim": 0.2, "p": p, "t": None, "none": False}
                for at, p in enumerate(values)
            ]
            samples.append(report[1]["samples"][0] | {
                "n": number, "pairs": pairs, "regions": regions, "numbers": list(range(len(values))),
                "parts": [["Words. ", at] for at in range(len(values))],
                "flags": [{"in_window": True, "truncated": False, "tokens": [0, 1]} for _ in values],
                "matrix": [[0.2] * len(values) for _ in values],
            })  # fmt: skip
        path = tmp_path / "page.html"
        path.write_text(report_html(report[1] | {"samples": samples}))
        page = Page(browser, path.as_uri())
        page.wait_for_selector(READY)
        assert page.faults == []
        found = page.locator(".featured").get_attribute("data-n")
        page.close()
        return int(found)

    assert opens_on([0.9, 0.9, 0.1], [0.6, 0.7, 0.6], [0.99]) == 1
    assert opens_on([0.9, 0.8, 0.1], [0.6, 0.7], [0.6, 0.8]) == 2  # shares, then means
    assert opens_on([None], [None, None], [None]) == 1


def test_by_keyboard_alone(page, report):
    place, pair = paired(report)
    for _ in range(place + 1):
        page.keyboard.press("j")
    sentences = page.locator(READY).nth(place).locator(".sentence")
    focused = "document.activeElement.dataset.s"
    assert page.evaluate(focused) == "0"
    for _ in range(pair["s"]):
        page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == str(pair["s"])
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    assert page.evaluate(ON)[place] == [[pair["s"]], [pair["r"]]]  # held, although focus went on
    sentences.first.focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "1"


def test_search_sort_and_filters(page, report):
    def names():
        page.wait_for_timeout(50)
        return page.locator(f"{READY} h3").all_text_contents()

    everything = names()
    assert everything == [sample["path"] for sample in report[1]["samples"]]
    page.get_by_label("Search").fill("DOG")
    assert names() == ["000000.png"]
    assert page.locator("mark").text_content() == "dog"
    page.get_by_label("Search").fill("no such words")
    assert names() == [] and "0 of 7" in page.locator(".tally").inner_text()
    page.get_by_label("Search").fill("")
    page.get_by_label("Order").select_option("worst")
    worst = names()
    page.get_by_label("Order").select_option("best")
    assert sorted(worst) == sorted(everything) == sorted(names())
    best = [
        max((p["sim"] for p in s["pairs"] if not p["none"]), default=-2)
        for s in report[1]["samples"]
    ]
    by_name = dict(zip(everything, best, strict=True))
    assert [by_name[name] for name in names()] == sorted(best, reverse=True)
    page.get_by_label("Best cosine ≥").fill("0.5")
    page.get_by_label("Best cosine ≥").blur()
    assert sorted(names()) == sorted(name for name in everything if by_name[name] >= 0.5)
    page.get_by_label("Best cosine ≥").fill("")
    page.get_by_label("Best cosine ≥").blur()
    page.get_by_label("Regions from").select_option("yolos")
    assert 0 < len(names()) <= 7


def test_the_address_of_a_sample(browser, report):
    sample = report[1]["samples"][3]
    opened = Page(browser, f"{report[0].as_uri()}#{sample['id'][:16]}")
    expect(opened.locator(READY)).to_have_count(1)
    assert opened.locator(f"{READY} h3").text_content() == sample["path"]
    assert opened.faults == []
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_readable_by_everybody_at_every_width(browser, report, scheme, width):
    opened = Page(
        browser, report[0].as_uri(), viewport={"width": width, "height": 800},
        color_scheme=scheme, bypass_csp=True,
    )  # fmt: skip
    opened.wait_for_selector(READY)
    assert violations(opened) == []
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    assert opened.faults == [] and opened.from_network == []
    opened.close()


def test_on_paper_it_holds_every_sample(browser, built, tmp_path):
    """More than the screen's first page holds."""
    write_report(Dataset(built), tmp_path / "report.html")
    opened = Page(browser, (tmp_path / "report.html").as_uri())
    opened.wait_for_selector(READY)
    assert opened.locator(READY).count() == 20
    opened.emulate_media(media="print")
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.locator(READY).count() == 24
    assert opened.locator(".tools").is_hidden() and opened.locator(".bar").is_hidden()
    assert (
        opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    opened.close()


@pytest.mark.parametrize("width", [1280, 360])
def test_the_pages_of_two_datasets_and_of_one_image(browser, hostile, built, tmp_path, width):
    a, b = Dataset(hostile), Dataset(built)
    pages = {
        "compare": compare_data(a, b, most=10, seed=0),
        "shipped": explain_page(a, explain(a, "000000.png")),
        "dropped": explain_page(a, explain(a, HOSTILE_NAME)),
    }
    for name, data in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(report_html(data), encoding="utf-8")
        opened = Page(
            browser, path.as_uri(), viewport={"width": width, "height": 800}, bypass_csp=True
        )
        opened.wait_for_selector("main section")
        assert violations(opened) == [], name
        assert opened.evaluate("document.documentElement.scrollWidth") == width
        assert opened.evaluate("window.hacked") is None
        assert opened.faults == [] and opened.from_network == []
        assert opened.evaluate(CUT) == [], name
        words = opened.locator("main").text_content()
        assert {"compare": "Δ", "shipped": "Why these pairs", "dropped": "empty_file"}[
            name
        ] in words
        opened.close()


def test_two_datasets_of_different_steps_are_compared_by_title(browser, built, tmp_path):
    data = compare_data(Dataset(built), Dataset(built), most=3, seed=0)
    left, right = (side["story"] for side in data["sides"])
    titles = [step["title"] for step in left["steps"]]
    right["steps"] = [{**left["steps"][0], "title": "Another step"}, *left["steps"][2:]]
    path = tmp_path / "page.html"
    path.write_text(report_html(data), encoding="utf-8")
    opened = Page(browser, path.as_uri())
    opened.wait_for_selector("main section")
    assert opened.faults == []
    rows = opened.locator("#origin tr").all_inner_texts()
    found = {row.split("\t")[0]: row.split("\t")[1:] for row in rows[1:]}
    assert [*found][1 : len(titles) + 2] == [*titles, "Another step"]
    assert found[titles[0]][1] == "–" and found["Another step"][0] == "–"
    assert found[titles[2]][0] == found[titles[2]][1] != "–"
    opened.close()
