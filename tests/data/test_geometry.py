import numpy as np
import pytest

from glit.data.geometry import (
    area_ratio_mask,
    areas,
    clip_boxes,
    grid_boxes,
    iou,
    suppress_duplicates,
)
from glit.data.records import Box

BOXES = np.array([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]])


def test_areas_and_overlap_by_hand():
    assert areas(BOXES).tolist() == [100, 90, 100]
    assert iou(BOXES[:1], BOXES).round(3).tolist() == [[1, 0.9, 0]]


def test_overlap_of_empty_boxes_is_zero():
    empty = np.zeros((1, 4))
    assert iou(empty, empty).tolist() == [[0]]


def test_suppression_keeps_the_better_score_and_the_lower_index_on_ties():
    assert suppress_duplicates(BOXES, np.array([0.5, 0.9, 0.1]), max_iou=0.8).tolist() == [1, 2]
    assert suppress_duplicates(BOXES, np.array([0.5, 0.5, 0.5]), max_iou=0.8).tolist() == [0, 2]
    assert suppress_duplicates(BOXES, np.array([0.5, 0.9, 0.1]), max_iou=0.95).tolist() == [1, 0, 2]


def test_area_filter_includes_its_limits():
    boxes = np.array([[0.0, 0, 10, 10], [0, 0, 80, 100], [0, 0, 81, 100], [0, 0, 9, 10]])
    found = area_ratio_mask(boxes, width=100, height=100, min_ratio=0.01, max_ratio=0.8)
    assert found.tolist() == [True, True, False, False]


def test_grid_covers_the_image_and_the_centre_joins_the_quadrants_midpoints():
    cells = grid_boxes(width=9, height=7)
    quadrants = [np.array([v], dtype=float) for k, v in cells.items() if k != "centre"]
    assert sum(float(areas(q)[0]) for q in quadrants) == 63
    assert grid_boxes(width=8, height=4) == {
        "top left": (0, 0, 4, 2),
        "top right": (4, 0, 8, 2),
        "bottom left": (0, 2, 4, 4),
        "bottom right": (4, 2, 8, 4),
        "centre": (2, 1, 6, 3),
    }


def test_clipping():
    found = clip_boxes(np.array([[-5.0, 2, 50, 60]]), width=40, height=30)
    assert found.tolist() == [[0, 2, 40, 30]]


@pytest.mark.parametrize("xyxy", [(1, 0, 1, 5), (2, 0, 1, 5), (0, 0, float("nan"), 1)])
def test_impossible_boxes_are_refused(xyxy):
    with pytest.raises(ValueError, match="box"):
        Box(**dict(zip(("x0", "y0", "x1", "y1"), xyxy, strict=True)))
