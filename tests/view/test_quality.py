"""Histograms of the measures of the images on the page, and the pictures at the thresholds."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from browser import Page
from building import run_build
from PIL import Image, ImageFilter

from glit.dataset.query import connect
from glit.dataset.reader import Dataset
from glit.view.page_file import report_html
from glit.view.quality import quality
from glit.view.report import report_data
from glit.view.server import DatasetSite


@pytest.fixture(scope="module")
def measured(scenes, tmp_path_factory):
    """Eight scenes, two of them blurred and dropped."""
    folder = tmp_path_factory.mktemp("measured")
    images = folder / "images"
    images.mkdir()
    for number in range(8):
        shutil.copy(scenes / "images" / f"{number:06d}.png", images)
    for number in (1, 2):
        path = images / f"{number:06d}.png"
        Image.open(path).filter(ImageFilter.GaussianBlur(4)).save(path)
    run_build(
        images, folder / "dataset", captions=scenes / "captions.jsonl",
        overrides=("quality.enabled=true", "quality.min_sharpness=30", "quality.max_aspect=4"),
    )  # fmt: skip
    return folder / "dataset"


def told(dataset: Dataset) -> dict:
    with connect(dataset) as connection:
        return {each["name"]: each for each in quality(dataset, connection)}


def test_dropped_images_are_left_of_the_threshold(measured):
    found = told(Dataset(measured))
    assert list(found) == ["sharpness", "brightness", "contrast", "entropy", "aspect", "text"]
    sharp = found["sharpness"]
    assert sharp["total"] == 8 and sharp["lines"] == pytest.approx([1.4771], abs=1e-4)
    below, above = sharp["sides"]
    assert sorted(each["path"] for each in below["images"]) == ["000001.png", "000002.png"]
    assert all("want 30 or more" in each["message"] for each in below["images"])
    assert len(above["images"]) == 5 and not any(each["message"] for each in above["images"])
    values = [each["value"] for each in above["images"]]
    assert values == sorted(values) and values[0] > 30
    assert all(each["image"] for side in sharp["sides"] for each in side["images"])


def test_without_a_threshold_the_lowest_and_the_highest(measured):
    found = told(Dataset(measured))
    entropy = found["entropy"]
    assert entropy["lines"] == [] and [side["title"] for side in entropy["sides"]] == [
        "Lowest", "Highest",
    ]  # fmt: skip
    lowest, highest = (side["images"][0]["value"] for side in entropy["sides"])
    assert lowest < highest and entropy["total"] == 6
    assert found["aspect"]["lines"] == [4] and found["aspect"]["sides"][1]["images"] == []


def set_table(dataset, step, table):
    recipe = dataset.manifest.recipe.with_table(step, table)
    dataset.manifest = replace(dataset.manifest, recipe=recipe)


def test_dropped_files_that_are_gone_and_labels_that_want_to_be_sql(measured, tmp_path):
    copy = shutil.copytree(measured, tmp_path / "copy", ignore=shutil.ignore_patterns("work"))
    dataset = Dataset(copy)
    options = {"backend": "classifier", "model": "m", "reject": ["it's {0}') --=0.5"]}
    set_table(dataset, "quality", {**dataset.manifest.recipe.table("quality"), **options})
    sides = told(dataset)["sharpness"]["sides"]
    assert [each["image"] for each in sides[0]["images"]] == ["", ""]
    set_table(dataset, "quality", {"of": "another glit"})
    assert told(dataset)["sharpness"]["lines"] == []


def test_pages_of_datasets_without_measures_have_nothing_of_it(measured, built, hostile):
    plain = report_data(Dataset(hostile), most=2, seed=0, where="")
    assert "quality" not in plain and "showMeasured" not in report_html(plain)
    site = DatasetSite(Dataset(measured))
    try:
        assert "showMeasured" in site.page() and len(site.numbers()["quality"]) == 6
    finally:
        site.close()


def test_in_a_browser(browser, measured, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(report_html(report_data(Dataset(measured), most=2, seed=0, where="")))
    page = Page(browser, path.as_uri(), viewport={"width": 390, "height": 800})
    page.wait_for_selector("#quality")
    assert page.locator("#quality .measure").count() == 6
    assert page.locator("#quality .limit").count() == 1  # that of aspect is beyond the values
    assert page.locator("#quality b").all_inner_texts() == [" dropped"] * 2
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.faults == [] and page.from_network == []
