"""The page that asks, in a real browser: keys answer, nothing goes wrong, everybody can use it."""

from __future__ import annotations

import threading

import pytest
from browser import Page, violations

from glit.dataset.reader import Dataset
from glit.review.label.server import LabelSite, PairQuestions
from glit.review.label.verdicts import read_verdicts
from glit.runtime.local_server import address_of, loopback_server


@pytest.mark.parametrize("options", [{}, {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}])  # fmt: skip
def test_keys_answer(browser, built, tmp_path, options):
    file = tmp_path / "verdicts.jsonl"
    questions = PairQuestions(Dataset(built), file, num=3, seed=0)
    with loopback_server(LabelSite(questions), port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page = Page(browser, address_of(server), **options)
        where = page.locator("#where")
        where.filter(has_text="Pair 1 of 3").wait_for()
        assert violations(page) == []
        for number, key in enumerate("134", start=1):
            where.filter(has_text=f"Pair {number} of 3").wait_for()
            page.keyboard.press(key)
        where.filter(has_text="All 3 pairs are answered").wait_for()
        page.keyboard.press("ArrowLeft")
        where.filter(has_text="Pair 2 of 3").wait_for()
        pressed = page.locator("[data-verdict][aria-pressed=true]")
        assert pressed.get_attribute("data-verdict") == "none"
        assert page.faults == []
        assert all(url.startswith(address_of(server)) for url in page.asked)
        server.shutdown()
        thread.join()
    said = [labelled.verdict for labelled in read_verdicts(file).values()]
    assert sorted(said) == ["false", "none", "right"]
