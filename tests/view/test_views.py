"""Views of the gallery: in the address, by label, as a condition; pictures enlarged."""

from __future__ import annotations

import shlex
from urllib.parse import urlencode

import pytest
from browser import Page, names, violations
from playwright.sync_api import expect

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.view.compare import compare_data
from glit.view.page_file import report_html
from glit.view.report import write_report

CARD = ".cards .card"


@pytest.fixture
def page(browser, address):
    opened = Page(browser, address, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    ready(opened)
    yield opened
    assert opened.faults == []
    opened.close()


def ready(page):
    page.wait_for_selector(".charts")
    page.wait_for_selector(CARD)


def frequent(hostile):
    return query(
        str(hostile),
        "SELECT label, count(*) FROM pairs WHERE NOT global_wins AND label <> '' GROUP BY 1 ORDER BY 2 DESC, 1",
    ).fetchall()


def ids(hostile, condition):
    sql = f"SELECT source_path FROM samples WHERE {condition} ORDER BY source_path"
    return [name for (name,) in query(str(hostile), sql).fetchall()]


def test_a_link_opens_the_same_view_and_the_way_back_is_open(page, browser):
    everything = names(page)
    page.get_by_label("Order").select_option("worst")
    worst = names(page)
    page.get_by_label("Search").fill("do")
    page.get_by_label("Search").fill("dog")
    expect(page.locator(CARD)).to_have_count(1)
    page.get_by_label("Boxes").select_option("named")
    expect(page.locator(f"{CARD} .named").first).to_be_attached()
    other = Page(browser, page.url)
    ready(other)
    assert names(other) == ["000000.png"] == names(page)
    assert other.get_by_label("Boxes").input_value() == "named"
    assert other.get_by_label("Order").input_value() == "worst"
    assert other.locator(f"{CARD} .named").count() > 0 and other.faults == []
    other.close()
    page.go_back()
    expect(page.get_by_label("Boxes")).to_have_value("chosen")
    page.go_back()
    assert names(page) == worst and page.get_by_label("Search").input_value() == ""
    page.go_back()
    assert names(page) == everything and "#" not in page.url
    page.go_forward()
    assert names(page) == worst
    page.locator("#nav a", has_text="Statistics").click()
    page.wait_for_timeout(100)
    assert page.url.endswith("#sort=worst") and names(page) == worst
    link = page.locator(f"{CARD} h3 a").nth(2)
    wanted = link.text_content()
    link.click()
    expect(page.locator(CARD)).to_have_count(1)
    assert names(page) == [wanted]
    page.go_back()
    assert names(page) == worst


@pytest.mark.parametrize(
    "view", ["sort=constructor&boxes=x&from=x&kind=__proto__", "why=constructor&source=nobody", "%"]
)
def test_a_view_that_is_none_is_everything(page, address, view):
    everything = names(page)
    other = Page(page.page.context.browser, f"{address}#{view}")
    ready(other)
    assert names(other) == everything and other.faults == []
    other.close()


def test_labels_are_offered_with_counts_and_filter(page, hostile):
    counted = frequent(hostile)
    assert counted
    offered = page.locator("#labels option").evaluate_all("all => all.map(o => o.label)")
    assert offered == [f"{label} ({number})" for label, number in counted][:20]
    label = counted[-1][0]
    page.get_by_label("Label").fill(label[1:].upper())
    some = page.locator("#labels option").evaluate_all("all => all.map(o => o.value)")
    assert some == [name for name, _ in counted if label[1:].upper() in name.upper()]
    page.get_by_label("Label").fill(label)
    page.get_by_label("Label").blur()
    found = "sample_id IN (SELECT sample_id FROM pairs WHERE NOT global_wins AND label = '{}')"
    assert sorted(names(page)) == ids(hostile, found.format(label.replace("'", "''")))
    assert violations(page) == []


@pytest.mark.parametrize(
    "view",
    [{"text": "dog"}, {"text": "0000"}, {"text": '"><img src=x'}, {"source": "yolos"}, {"label": 0},
     {"kind": "alone"}, {"kind": "all"}, {"from": 0.3}, {"upTo": 0.6, "source": "yolos"}],
)  # fmt: skip
def test_the_filters_as_a_condition_choose_what_is_shown(page, address, hostile, view):
    if "label" in view:
        view = {"label": frequent(hostile)[0][0]}
    other = Page(page.page.context.browser, f"{address}#{urlencode(view)}")
    other.wait_for_selector(".charts")
    shown = names(other)
    option, condition = shlex.split(other.get_by_label("The filters as an option").input_value())
    assert option == "--where" and sorted(shown) == ids(hostile, condition)
    other.close()


def test_a_picture_is_enlarged(page):
    picture = page.locator(f"{CARD} .stage img").first
    page.get_by_label("Enlarge 000000.png").last.focus()
    page.keyboard.press("Enter")
    large = page.locator("dialog img")
    expect(large).to_be_visible()
    assert large.bounding_box()["width"] > picture.bounding_box()["width"]
    assert violations(page) == []
    large.click()
    assert large.bounding_box()["width"] == float(picture.get_attribute("width"))
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    picture.evaluate("image => image.click()")
    expect(large).to_be_visible()


def test_labels_of_an_axis_do_not_overlap(browser, hostile, tmp_path):
    data = write_report(Dataset(hostile), tmp_path / "page.html")
    kind = data["charts"][0] | {"start": 0.995, "step": 0.005, "low": 0.995, "high": 0.995}
    charts = [kind | {"counts": [5] * bins} for bins in (1, 2, 3, 4, 9, 28)]
    (tmp_path / "page.html").write_text(report_html(data | {"charts": charts}))
    page = Page(browser, (tmp_path / "page.html").as_uri())
    for at in range(len(charts)):
        texts = page.locator(".charts svg").nth(at).locator("text")
        boxes = [texts.nth(n).bounding_box() for n in range(texts.count())]
        assert len(boxes) == 1 or boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    page.close()


def test_a_sentence_has_one_colour_in_both_datasets(browser, hostile, built, tmp_path):
    data = compare_data(Dataset(hostile), Dataset(built), most=10, seed=0)
    (tmp_path / "page.html").write_text(report_html(data))
    page = Page(browser, (tmp_path / "page.html").as_uri())
    sides = page.evaluate(
        "[...document.querySelectorAll('.duel')].map(duel => [...duel.querySelectorAll('.card')].map(card => "
        "[...card.querySelectorAll('.sentence:not(.alone)')].map(s => [s.childNodes[0].lastChild.data + s.childNodes[1].data, s.style.getPropertyValue('--hue')])))"
    )
    common = 0
    for left, right in sides:
        for words, hue in left:
            common += words in dict(right)
            assert dict(right).get(words, hue) == hue
    assert common and page.faults == []
    page.close()
