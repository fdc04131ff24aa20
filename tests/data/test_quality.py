"""Measures of images, by pictures whose values are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from glit.data.quality import measure
from glit.images import decode


def grey(values) -> np.ndarray:
    return np.repeat(np.asarray(values, dtype=np.uint8)[:, :, None], 3, axis=2)


def test_one_colour():
    found = measure(grey(np.full((40, 80), 51)))
    assert found == {
        "sharpness": 0, "brightness": 0.2, "contrast": 0, "entropy": 0, "aspect": 2, "text": 0,
    }  # fmt: skip


def test_stripes_of_two_values():
    """Two equally frequent values: one bit. Columns 0 and 100: the Laplacian is 200 or -200."""
    found = measure(grey(np.tile([0, 100], (20, 10))))
    assert found["entropy"] == 1
    assert found["contrast"] == round(50 / 255, 6) and found["brightness"] == round(50 / 255, 6)
    assert found["sharpness"] == 200**2


@pytest.mark.parametrize("shape", [(1, 1), (1, 600), (600, 1), (2, 2), (7, 47), (8, 48)])
def test_pictures_of_any_shape(shape):
    found = measure(grey(np.arange(shape[0] * shape[1]).reshape(shape) % 251))
    assert all(map(math.isfinite, found.values()))
    assert found["aspect"] == round(max(shape) / min(shape), 6)


def test_blur_takes_sharpness_from_photographs(photographs):
    for path in sorted(photographs.glob("*.jpg")):
        pixels = decode(path.read_bytes())
        radius = max(pixels.shape) / 150
        blurred = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius))
        sharp, soft = measure(pixels), measure(np.asarray(blurred))
        assert sharp["sharpness"] > 300 and soft["sharpness"] < 30, path.name
        assert sharp["text"] < 0.2, path.name


@pytest.mark.parametrize(("paper", "ink", "size"), [(255, 0, 18), (30, 220, 14), (240, 60, 28)])
def test_a_page_of_text(paper, ink, size):
    page = Image.new("L", (1000, 800), paper)
    line = "The quick brown fox jumps over the lazy dog and runs to the river again and again."
    for top in range(20, 780, int(size * 1.5)):
        ImageDraw.Draw(page).text((20, top), line, font=ImageFont.load_default(size), fill=ink)
    assert measure(np.asarray(page.convert("RGB")))["text"] > 0.4


def test_large_images_are_measured_at_half_a_thousand_pixels():
    """A factor of four: blocks of 4 x 4 equal pixels are one pixel."""
    small = np.random.default_rng(0).integers(0, 256, (300, 400))
    large = np.kron(small, np.ones((4, 4), dtype=int))
    assert measure(grey(large)) == measure(grey(small))
