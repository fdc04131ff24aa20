"""Boxes move with the picture that they were made on."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from glit.data.frames import Frame, fit_frame

TAG = 0x0112


def fitted(stated, size, orientation: int = 1) -> Frame:
    return fit_frame(stated, size, lambda: orientation)


@pytest.mark.parametrize(
    ("stated", "size", "change"),
    [
        ((640, 480), (640, 480), ""),
        ((641, 480), (640, 480), ""),
        ((640, 481), (640, 480), ""),
        ((640, 480), (320, 240), "scaled"),
        ((640, 427), (320, 213), "scaled"),
        ((640, 427), (320, 214), "scaled"),
        ((320, 213), (6400, 4270), "scaled"),
        ((300, 300), (600, 600), "scaled"),
    ],
)
def test_a_picture_of_the_same_shape(stated, size, change):
    frame = fitted(stated, size)
    assert frame.change == change
    across, down = (size[0] / stated[0], size[1] / stated[1]) if change else (1, 1)
    assert frame.box((10, 20, 30, 50)) == pytest.approx(
        (10 * across, 20 * down, 30 * across, 50 * down)
    )


@pytest.mark.parametrize(
    ("stated", "size", "orientation", "message"),
    [
        ((640, 480), (640, 400), 1, "made on a picture of 640x480 pixels, the image has 640x400"),
        ((400, 300), (300, 400), 1, "its file has no EXIF orientation that swaps"),
        ((400, 300), (300, 400), 3, "its file has no EXIF orientation that swaps"),
        ((400, 310), (300, 400), 6, "made on a picture of 400x310"),
        ((0, 0), (300, 400), 1, "states a size of"),
        ((float("nan"), 3), (300, 400), 1, "want two positive numbers"),
        ((float("inf"), 3), (300, 400), 1, "want two positive numbers"),
        ((-640, 480), (640, 480), 1, "want two positive numbers"),
        (("640", "480"), (640, 480), 1, "want two positive numbers"),
        ((640, None), (640, 480), 1, "want two positive numbers"),
        ((10**400, 480), (640, 480), 1, "want two positive numbers|Exceeds the limit"),
    ],
)
def test_a_picture_of_another_shape_is_refused(stated, size, orientation, message):
    with pytest.raises(ValueError, match=message):
        fitted(stated, size, orientation)


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("scale", [1, 2])
def test_a_box_is_turned_as_pillow_turns_the_picture(orientation, scale):
    raw = np.zeros((30, 40, 3), np.uint8)
    raw[4:10, 2:8] = 255  # x 2..8, y 4..10
    exif = Image.Exif()
    exif[TAG] = orientation
    picture = Image.fromarray(raw)
    picture.info["exif"] = exif.tobytes()
    upright = np.asarray(ImageOps.exif_transpose(picture))[:, :, 0] > 0
    rows, columns = np.flatnonzero(upright.any(axis=1)), np.flatnonzero(upright.any(axis=0))
    wanted = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    frame = fitted((40, 30), (30 * scale, 40 * scale), orientation)
    assert frame.change == "turned"
    assert frame.box((2, 4, 8, 10)) == tuple(float(edge * scale) for edge in wanted)
    assert (frame.mask(raw[:, :, 0] > 0) == upright).all()


def test_the_upright_size_counts_before_the_one_of_the_file():
    assert fitted((300, 400), (300, 400), 6).change == ""
    assert fitted((300, 300), (300, 300), 6).change == ""  # nobody can tell
    assert fitted((301, 300), (300, 301), 6).change == "turned"
    assert fitted((600, 800), (300, 400), 8).change == "scaled"
