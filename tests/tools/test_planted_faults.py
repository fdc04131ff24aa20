"""The measurement plants faults, and counts those that an audit finds and those that it should not."""

from __future__ import annotations

import pytest

from glit import open_dataset
from tools.measure.planted_faults import measured, plant_empty, plant_repeat


@pytest.mark.parametrize("form", ["glit", "mdetr"])
def test_faults_are_planted_and_counted(built, form):
    dataset = open_dataset(built)
    assert measured(dataset, form, "box-empty", plant_empty, 0.1) == (2, 2, 2, 0)
    assert measured(dataset, form, "caption-repeated", plant_repeat, 0.1) == (4, 4, 4, 0)


def test_a_kind_that_is_not_planted_is_another_claim(built):
    dataset = open_dataset(built)
    assert measured(dataset, "mdetr", "box-outside", plant_empty, 0.1) == (2, 0, 0, 2)
