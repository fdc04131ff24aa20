"""The page of ``glit overlap``: both images of every pair, and nothing in a name that runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import Any

import pytest
from browser import Page, violations
from PIL import Image

from glit import api
from glit.errors import UserError
from glit.view.page_file import json_for_html

NAME = "<img src=x onerror=window.hacked=1> & <b>.png"


@pytest.fixture
def listed(scenes, tmp_path):
    """A scene under a name that wants to run, another turned, and one that is in no dataset."""
    folder = tmp_path / "list"
    folder.mkdir()
    shutil.copy(scenes / "images" / "000000.png", folder / NAME)
    Image.open(scenes / "images" / "000001.png").rotate(90).save(folder / "turned.png")
    Image.effect_noise((64, 64), 90).convert("RGB").save(folder / "other.png")
    api.references(folder, tmp_path / "list.parquet")
    return tmp_path / "list.parquet"


def told(page):
    """The data of a page."""
    text = page.read_text().split('<script type="application/json" id="data">')[1]
    return json.loads(text.split("</script>")[0])


def test_pictures_of_the_folder_or_those_of_the_list(built, listed, tmp_path):
    (tmp_path / "list" / "turned.png").write_bytes(b"changed since")
    found = api.overlap(built, listed, page=tmp_path / "page.html", images=tmp_path / "list")
    data = told(tmp_path / "page.html")
    assert data["found"] == len(found) == len(data["pairs"]) == 2
    same, turned = sorted(data["pairs"], key=lambda pair: pair["path"])
    assert (same["kind"], same["name"], same["reference"]["is_file"]) == ("same file", NAME, True)
    assert (turned["kind"], turned["reference"]["is_file"]) == ("same picture, turned", False)
    for pair in (same, turned):
        assert all(each.startswith("data:image/webp") for each in (
            pair["image"], pair["reference"]["image"]
        ))  # fmt: skip


def test_of_a_hash_there_is_no_picture(browser, built, scenes, tmp_path):
    digest = hashlib.sha256((scenes / "images" / "000000.png").read_bytes()).hexdigest()
    (tmp_path / "list.sha256").write_text(f"{digest}  gone.png\n")
    api.overlap(built, tmp_path / "list.sha256", page=tmp_path / "page.html")
    page = Page(browser, (tmp_path / "page.html").as_uri())
    page.wait_for_selector(".pair")
    shown = page.inner_text(".pairs")
    assert "the list has only the hash of this file" in shown and "cannot be read" not in shown
    assert page.locator(".pair img").count() == 1


def test_in_a_browser(browser, built, listed, tmp_path):
    api.overlap(built, listed, page=tmp_path / "page.html")
    assert json_for_html(NAME) in (tmp_path / "page.html").read_text()
    for width in (1280, 390):
        page = Page(
            browser, (tmp_path / "page.html").as_uri(), viewport={"width": width, "height": 800}
        )
        page.wait_for_selector(".pair")
        assert page.locator(".pair").count() == 2 and NAME in page.inner_text(".pairs")
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.faults == [] and page.from_network == [] and violations(page) == []


def test_nothing_found_and_paths_that_cannot_be(built, listed, tmp_path, run_glit):
    (tmp_path / "alone").mkdir()
    shutil.copy(tmp_path / "list" / "other.png", tmp_path / "alone")
    api.references(tmp_path / "alone", tmp_path / "alone.parquet")
    done = run_glit(
        "overlap", str(built), str(tmp_path / "alone.parquet"), "--page", str(tmp_path / "p.html")
    )
    assert done.code == 0 and done.output.endswith((tmp_path / "p.html").as_uri() + "\n")
    assert told(tmp_path / "p.html")["pairs"] == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"images": "x"}, "add --page FILE.html"),
        ({"page": "s3://a/b.html"}, "s3://a/b.html"),
        ({"page": tmp_path}, "is a folder"),
        ({"page": tmp_path / "p.html", "images": tmp_path / "none"}, "no such folder"),
    ]
    for options, said in wrong:
        with pytest.raises(UserError, match=said):
            api.overlap(built, listed, **options)
