"""The pages of a dataset of captions alone, in a browser: no figure of regions, and no fault."""

from __future__ import annotations

from browser import Page
from building import run_build

from glit.dataset.reader import Dataset
from glit.view.explain import explain, explain_page
from glit.view.page_file import report_html
from glit.view.report import write_report


def test_pages_speak_of_captions_and_not_of_regions(browser, scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", recipe="captions-only", limit=3,
        captions=scenes / "captions.jsonl",
    )  # fmt: skip
    dataset = Dataset(tmp_path / "out")
    write_report(dataset, tmp_path / "page.html")
    opened = Page(
        browser, (tmp_path / "page.html").as_uri(), viewport={"width": 1280, "height": 900}
    )
    opened.wait_for_selector(".cards .card")
    figures = opened.evaluate(
        "[...document.querySelectorAll('.figures dt')].map(e => e.textContent)"
    )
    assert figures[:2] == ["images", "sentences"] and "regions" not in figures
    lead = opened.evaluate("document.querySelector('.intro .lead').textContent")
    assert lead.startswith("3 images, each with a caption of about") and "no regions" in lead
    assert opened.faults == []
    found = explain_page(dataset, explain(dataset, dataset[0].source_path))
    (tmp_path / "one.html").write_text(report_html(found))
    one = Page(browser, (tmp_path / "one.html").as_uri(), viewport={"width": 1280, "height": 900})
    one.wait_for_selector(".cards .card")
    assert not one.evaluate("document.body.innerText.includes('Why these pairs')")
    assert one.faults == []
