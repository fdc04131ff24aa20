"""Tags and saved views, which the browser keeps."""

from __future__ import annotations

import shlex

import pytest
from browser import Page, names, violations
from playwright.sync_api import expect

from glit.dataset.query import query
from glit.dataset.reader import Dataset
from glit.view.report import write_report

CARD = ".cards .card"


@pytest.fixture
def context(browser):
    """What one browser keeps."""
    with browser.new_context(bypass_csp=True) as made:
        yield made


def opened(context, address):
    page = Page(context, address)
    page.wait_for_selector(".charts")
    page.wait_for_selector(CARD)
    return page


def marks(page):
    return page.locator(f"{CARD} .tag").all_text_contents()


def test_tags_are_kept_filter_and_become_a_condition(context, address, hostile, tmp_path):
    page = opened(context, address)
    everything = names(page)
    page.locator(f"{CARD} .tag").nth(2).click()
    page.locator(f"{CARD}").nth(4).hover()
    page.keyboard.press("t")
    page.get_by_label("The key t gives the tag").fill('<b>"odd')
    page.keyboard.press("Tab")
    page.locator(f"{CARD} .sentence").first.focus()
    page.keyboard.press("t")
    wanted = ["☆ tag"] * 7
    wanted[0], wanted[2], wanted[4] = '★ <b>"odd', "★ marked", "★ marked"
    assert marks(page) == wanted
    page.reload()
    page.wait_for_selector(CARD)
    expect(page.locator(f"{CARD} .tag").nth(4)).to_have_text("★ marked")
    assert marks(page) == wanted
    page.get_by_label("Tagged").select_option("marked")
    assert names(page) == [everything[2], everything[4]]
    option, condition = shlex.split(page.get_by_label("The filters as an option").input_value())
    sql = f"SELECT source_path, sample_id FROM samples WHERE {condition} ORDER BY 1"
    found = query(str(hostile), sql).fetchall()
    assert option == "--where" and sorted(names(page)) == [name for name, _ in found]
    with page.expect_download() as file:
        page.get_by_role("button", name="Download the ids").click()
    file.value.save_as(tmp_path / "ids.txt")
    ids = (tmp_path / "ids.txt").read_text().split()
    assert sorted(ids) == sorted(sample_id for _, sample_id in found)
    other = opened(context, page.url)  # the address names the tag
    assert names(other) == names(page)
    assert violations(page) == [] and page.faults == other.faults == []


def test_a_tag_is_taken_off_again_and_is_that_of_one_dataset(context, address, built, tmp_path):
    page = opened(context, address)
    for _ in range(3):
        page.locator(f"{CARD} .tag").first.click()
    expect(page.locator(f"{CARD} .tag").first).to_have_text("★ marked")
    write_report(Dataset(built), tmp_path / "other.html")
    other = opened(context, (tmp_path / "other.html").as_uri())
    assert set(marks(other)) == {"☆ tag"} and page.faults == []


def test_views_are_saved_opened_and_removed(context, address):
    page = opened(context, address)
    everything = names(page)
    page.get_by_label("Order").select_option("worst")
    worst = names(page)
    page.locator(".shelf summary").click()
    page.get_by_label("Save this view as").fill("__proto__")
    page.keyboard.press("Enter")
    page.get_by_label("Order").select_option("order")
    assert names(page) == everything
    page.reload()
    page.wait_for_selector(CARD)
    page.get_by_label("Saved views").select_option("__proto__")
    assert names(page) == worst and page.get_by_label("Order").input_value() == "worst"
    page.get_by_role("button", name="Remove").click()
    assert page.get_by_label("Saved views").locator("option").all_text_contents() == ["none yet"]
    assert page.faults == []


@pytest.mark.parametrize("kept", ["{", "7", '{"tags": {"a": 1}, "views": [["x", "javascript:1"], 3]}',
                                  '{"tags": [["x", ["1\') OR true --"]]]}'])  # fmt: skip
def test_what_others_wrote_there_does_no_harm(context, address, kept):
    page = opened(context, address)
    page.locator(f"{CARD} .tag").first.click()
    key = page.evaluate("Object.keys(localStorage).find(key => key.startsWith('glit '))")
    page.evaluate("([key, kept]) => localStorage.setItem(key, kept)", [key, kept])
    page.reload()
    page.wait_for_selector(CARD)
    assert set(marks(page)) == {"☆ tag"}
    page.locator(f"{CARD} .tag").first.click()
    expect(page.locator(f"{CARD} .tag").first).to_have_text("★ marked")
    assert page.faults == []


def test_without_storage_tags_last_as_long_as_the_page(context, address):
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('forbidden'); }})"
    )
    page = opened(context, address)
    page.locator(f"{CARD} .tag").first.click()
    expect(page.locator(f"{CARD} .tag").first).to_have_text("★ marked")
    expect(page.locator(".shelf [role=status]")).to_be_visible()
    assert page.faults == []
