from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glit.data.records import Box, Drop, Region, Sample
from glit.stages.propose import DetectRegions, ProposeConfig


def region(x0, y0, x1, y1, score=0.9, source="yolos"):
    return Region(box=Box(x0=x0, y0=y0, x1=x1, y1=y1), score=score, label="thing", source=source)


def kept(detections, *, grid=False, **config):
    """What is left of the detections of an image of 100 x 100 pixels."""
    backend = "yolos+grid" if grid else "yolos"
    stage = DetectRegions(ProposeConfig(backend=backend, **config), Fixed(detections))
    outcome = stage.finished(sample(), detections)
    return [] if isinstance(outcome, Drop) else list(outcome.regions)


def test_small_and_huge_regions_go():
    found = kept(
        [region(0, 0, 9, 10), region(0, 0, 10, 10), region(0, 0, 90, 90), region(5, 5, 85, 90)]
    )
    assert [r.box.xyxy for r in found] == [(0, 0, 10, 10), (5, 5, 85, 90)]


def test_of_near_duplicates_the_best_stays():
    found = kept(
        [region(0, 0, 50, 50, 0.6), region(0, 0, 50, 49, 0.8), region(60, 60, 90, 90, 0.7)]
    )
    assert [r.score for r in found] == [0.8, 0.7]


def test_a_detection_equal_to_a_grid_cell_gives_way_to_it():
    found = kept([region(0, 0, 50, 50, 0.99)], grid=True)
    assert [r.source for r in found] == ["quadrant"] * 4 + ["centre"]


def test_the_cap_takes_the_worst_detections_and_keeps_the_grid():
    detections = [region(i * 9, 0, i * 9 + 12, 60, 0.5 + i / 100) for i in range(9)]
    found = kept(detections, grid=True, max_regions=8)
    assert [r.score for r in found[:3]] == pytest.approx([0.58, 0.57, 0.56])
    assert len(found) == 8 and found[-1].source == "centre"


def test_no_region_at_all():
    assert kept([]) == []


class Fixed:
    def __init__(self, answers):
        self.answers = answers

    def detect(self, images):
        if any(image.sum() == 0 for image in images):
            raise RuntimeError("black image")
        return [self.answers for _ in images]


class Pictures:
    def each(self, samples):
        yield from (np.full((100, 100, 3), s.num_bytes, np.uint8) for s in samples)


def sample(value=1):
    return Sample(sample_id="0" * 64, source_path="x", width=100, height=100, num_bytes=value)


def process(backend, answers, samples):
    return list(
        DetectRegions(ProposeConfig(backend=backend), Fixed(answers)).process(samples, Pictures())
    )


def test_without_a_grid_an_image_with_no_region_is_a_drop():
    (outcome,) = process("yolos", [region(0, 0, 2, 2)], [sample()])
    assert isinstance(outcome, Drop) and outcome.reason == "no_region"


def test_an_image_that_breaks_the_detector_takes_no_other_with_it():
    outcomes = process("yolos+grid", [region(0, 0, 30, 30)], [sample(), sample(0), sample()])
    assert [getattr(o, "reason", "") for o in outcomes] == ["", "model_error", ""]
    assert len(outcomes[0].regions) == 6


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 90),
            st.floats(0, 90),
            st.floats(0.5, 100),
            st.floats(0.5, 100),
            st.floats(0, 1),
        ),
        max_size=40,
    ),
    st.integers(5, 12),
)
def test_selected_regions_always_keep_the_promises(raw, cap):
    detections = [
        region(x, y, min(x + w, 100), min(y + h, 100), score) for x, y, w, h, score in raw
    ]
    found = kept(detections, grid=True, max_regions=cap)
    assert len(found) <= max(cap, 5)
    assert [r.source for r in found[-5:]] == ["quadrant"] * 4 + ["centre"]
    scores = [r.score for r in found[:-5]]
    assert scores == sorted(scores, reverse=True)
    assert all(0.01 <= r.box.area_px / 1e4 <= 0.8 for r in found)


def test_a_region_too_large_does_not_suppress_a_good_one_before_it_goes():
    found = kept([region(0, 0, 90, 90, 0.9), region(0, 0, 89, 89, 0.8)], max_area=0.8)
    assert [r.score for r in found] == [0.8]
