"""The measurement plants faults, and counts those that an audit finds and those that it should not."""

from __future__ import annotations

import pytest

from glit import open_dataset
from tools.measure.planted_faults import measured
from tools.measure.planted_kinds import PLANTS, plant_empty

ALL, PAIRS = (2, 2, 2, 0), (4, 4, 4, 0)
FOUND = (
    ("glit", "box-empty", ALL), ("mdetr", "caption-repeated", PAIRS),
    ("tao", "name-clash", ALL), ("flickr30k-entities", "caption-near", PAIRS),
    ("webdataset", "unreadable", ALL), ("yolo", "box-units", ALL), ("yolo", "box-outside", ALL),
    ("labelme", "in-test-set", ALL), ("cvat", "stated-turned", ALL),
)  # fmt: skip


@pytest.mark.parametrize(("form", "code", "counts"), FOUND)
def test_faults_are_planted_and_counted(built, form, code, counts):
    """In two of 24 images, and in those that have the same text or name."""
    plant = next(plant for kind, _, plant, forms in PLANTS if kind == code and form in forms)
    assert measured(open_dataset(built), form, code, plant, 0.1) == counts


@pytest.mark.parametrize("form", ["yolo", "label-studio", "coco-instances"])
def test_other_corners_are_told_of_images_with_two_boxes(built, form):
    """Of an image with one box, nobody can tell that its corners are other ones; how many boxes the
    scenes have differs from processor to processor."""
    plant = next(plant for kind, _, plant, of in PLANTS if kind == "box-corners" and form in of)
    planted, found, right, other = measured(open_dataset(built), form, "box-corners", plant, 0.25)
    assert planted == 6 and found == right > 0 and found + other <= 6


def test_a_kind_that_is_not_planted_is_another_claim(built):
    dataset = open_dataset(built)
    assert measured(dataset, "mdetr", "box-outside", plant_empty, 0.1) == (2, 0, 0, 2)
