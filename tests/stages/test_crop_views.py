"""Other ways of showing a region: where the context ends, what stays sharp."""

from __future__ import annotations

import numpy as np
import pytest

from glit.pipeline.planning.recipe import load_recipe
from glit.stages.crop_views import grown, spotlights
from glit.stages.score import ScoreConfig


def test_context_is_a_quarter_on_every_side_inside_the_image():
    boxes = np.array([[10.0, 20.0, 50.0, 40.0], [0.0, 0.0, 100.0, 60.0]])
    found = grown(boxes, width=100, height=60)
    assert found.tolist() == [[0.0, 15.0, 60.0, 45.0], [0.0, 0.0, 100.0, 60.0]]


def test_a_spotlight_is_sharp_inside_its_box_and_blurred_outside():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (60, 100, 3), dtype=np.uint8)
    [first, second] = spotlights(image, np.array([[10.0, 20, 50, 40], [0, 0, 100, 60]]))
    np.testing.assert_array_equal(first[20:40, 10:50], image[20:40, 10:50])
    outside = np.ones((60, 100), dtype=bool)
    outside[20:40, 10:50] = False
    assert first[outside].std() < image[outside].std() / 3
    np.testing.assert_array_equal(second, image)


def test_large_images_are_shrunk_first():
    image = np.zeros((1000, 2000, 3), dtype=np.uint8)
    image[:, 1000:] = 255
    [shown] = spotlights(image, np.array([[1000.0, 0, 2000, 1000]]))
    assert shown.shape == (256, 512, 3)
    assert shown[:, 258:].min() == 255 and shown[:, :200].max() == 0


@pytest.mark.parametrize("word", ["crop=wide", "crop=1"])
def test_another_view_is_refused(word):
    with pytest.raises(Exception, match="crop"):
        load_recipe("mini", overrides=[f"score.{word}"]).of(ScoreConfig)
