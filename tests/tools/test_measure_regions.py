"""How many boxes of photographs described by hand a proposer finds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tools.measure.regions import Found, as_dict


def test_recall_of_a_proposer(sample, run_tool):
    words = ("regions", sample / "dataset", "-r", "mini")
    found = json.loads(run_tool(*words, "--set", "propose.backend=grid", "--json")[1])
    assert (found["boxes"], found["regions_per_image"]) == (65, 5.0)
    assert found["recall@0.5"] == pytest.approx(10 / 65)
    said = run_tool(*words, "--set", "propose.backend=grid")[1]
    assert "recall of 65 boxes: 15 % at IoU 0.5" in " ".join(said.split())
    code, _, errors = run_tool(*words, "--set", "propose.backend=file")
    assert code == 2 and "reads files beside the images" in errors


def test_figures_of_recall():
    found = [
        Found(path="a", best_iou=(0.5, 0.4), num_regions=2, seconds=1.0),
        Found(path="b", best_iou=(0.8,), num_regions=4, seconds=3.0),
    ]
    figures = as_dict(found)
    assert figures["recall@0.5"] == pytest.approx(2 / 3)
    assert figures["recall@0.75"] == pytest.approx(1 / 3)
    assert np.isclose(figures["mean_best_iou"], 1.7 / 3)
    assert (figures["regions_per_image"], figures["seconds_per_image"]) == (3.0, 2.0)
