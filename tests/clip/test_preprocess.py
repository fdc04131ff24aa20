"""The model's square, boxes moved with it, crops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from glit.models.clip.preprocess import crop, fit_boxes, fit_image, fitted_size


def gradient(width: int, height: int) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([x, y, (x + y) / 2], axis=-1).astype(np.uint8)


def test_resize_is_pillows_bicubic_within_one_level() -> None:
    image = gradient(97, 61)
    wanted = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC))
    found = fit_image(image, side=32, fit="resize").permute(1, 2, 0).numpy()
    assert found.shape == (32, 32, 3)
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_centre_crop_keeps_the_middle() -> None:
    image = gradient(96, 32)
    found = fit_image(image, side=32, fit="centre-crop").permute(1, 2, 0).numpy()
    assert np.array_equal(found, image[:, 32:64])


def test_an_image_of_the_right_size_is_untouched() -> None:
    image = gradient(32, 32)
    for fit in ("resize", "centre-crop"):
        found = fit_image(image, side=32, fit=fit)
        assert torch.equal(found, torch.from_numpy(image).permute(2, 0, 1))


@pytest.mark.parametrize(
    ("fit", "wanted"),
    [("resize", [16.0, 8.0, 32.0, 24.0]), ("centre-crop", [16.0, 8.0, 48.0, 24.0])],
)
def test_boxes_move_with_the_image(fit: str, wanted: list[float]) -> None:
    """Width 128, height 64, side 32: halves and quarters."""
    found = fit_boxes(np.array([[64.0, 16.0, 128.0, 48.0]]), width=128, height=64, side=32, fit=fit)
    assert found.tolist() == [wanted]


@given(
    width=st.integers(8, 300),
    height=st.integers(8, 300),
    fit=st.sampled_from(["resize", "centre-crop"]),
)
def test_a_marked_box_is_found_where_the_box_says(width: int, height: int, fit) -> None:
    """Paint a box white, fit image and box: the pixels inside are white, far outside black."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    box = np.array([[width // 4, height // 4, width - width // 4, height - height // 4]], float)
    x0, y0, x1, y1 = box[0].astype(int)
    image[y0:y1, x0:x1] = 255
    side = 64
    fitted = fit_image(image, side=side, fit=fit)[0].numpy()
    bx0, by0, bx1, by1 = fit_boxes(box, width=width, height=height, side=side, fit=fit)[0]
    margin = 2 + 2 * side / min(width, height)
    yy, xx = np.mgrid[0:side, 0:side] + 0.5
    inside = (xx > bx0 + margin) & (xx < bx1 - margin) & (yy > by0 + margin) & (yy < by1 - margin)
    outside = (xx < bx0 - margin) | (xx > bx1 + margin) | (yy < by0 - margin) | (yy > by1 + margin)
    assert (fitted[inside] > 200).all()
    assert (fitted[outside] < 55).all()


def test_crop_covers_what_the_box_touches() -> None:
    image = gradient(20, 10)
    assert np.array_equal(crop(image, np.array([2.5, 3.0, 6.2, 7.0])), image[3:7, 2:7])
    assert crop(image, np.array([19.9, 9.9, 20.0, 10.0])).shape == (1, 1, 3)
    assert crop(image, np.array([-5.0, -5.0, 50.0, 50.0])).shape == (10, 20, 3)


def test_sizes_before_the_crop() -> None:
    assert fitted_size(200, 100, side=50, fit="centre-crop") == (50, 100)
    assert fitted_size(100, 200, side=50, fit="centre-crop") == (100, 50)
    assert fitted_size(333, 100, side=50, fit="resize") == (50, 50)
