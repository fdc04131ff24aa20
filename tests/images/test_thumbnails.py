"""Small pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from building import png
from PIL import Image

from glit.images import ImageError
from glit.images.thumbnails import MAX_BYTES, MAX_SIDE, thumbnail


def test_small_images_keep_their_size():
    assert Image.open(io.BytesIO(thumbnail(png(size=(48, 40))))).size == (48, 40)


def test_noise_is_brought_under_the_limit():
    noise = np.random.default_rng(0).integers(0, 255, (900, 1200, 3), np.uint8)
    data = thumbnail(png(noise))
    small = Image.open(io.BytesIO(data))
    assert len(data) <= MAX_BYTES and small.format == "WEBP"
    assert max(small.size) <= MAX_SIDE and small.width / small.height == pytest.approx(4 / 3, 0.02)


def test_damage_is_named():
    with pytest.raises(ImageError):
        thumbnail(png()[:60])
