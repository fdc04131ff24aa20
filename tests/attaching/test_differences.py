"""A part that differs is seen; what an encoder does is within the limits."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")
import cv2

from glit.curate.attaching.differences import LUMA, difference, toned

SIDE = 200
PART = slice(80, 120), slice(80, 120)


def noise(seed: int, blur: float, deviation: float) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((SIDE, SIDE)).astype(np.float32)
    values = cv2.GaussianBlur(values, (0, 0), blur)
    return values / values.std() * deviation


@pytest.fixture
def whole() -> np.ndarray:
    """A picture with slow changes and some grain, in colour."""
    grey = 120 + noise(0, 8, 14) + noise(1, 1.5, 8)
    return np.stack([grey + noise(2, 12, 6), grey, grey + noise(3, 12, 6)], -1).astype(np.float32)


def apart(published: np.ndarray, found: np.ndarray) -> float:
    return difference(published, found, np.zeros(found.shape[:2], np.float32), unit=1)


def test_what_an_encoder_does_is_within_the_limits(whole):
    quality = [cv2.IMWRITE_JPEG_QUALITY, 60]
    file = cv2.imencode(".jpg", whole.clip(0, 255).astype(np.uint8), quality)[1]
    assert apart(whole, cv2.imdecode(file, cv2.IMREAD_COLOR).astype(np.float32)) < 0.9


@pytest.mark.parametrize("by", [5, -5])
def test_a_part_that_is_lighter_or_darker_is_seen(whole, by):
    found = whole.copy()
    found[PART] += by
    assert apart(whole, found) > 1


def test_a_part_of_another_colour_is_seen(whole):
    found, by = whole.copy(), np.array([12, 0, 0], np.float32)
    found[PART] += by - by @ LUMA
    assert apart(whole, found) > 1


def test_a_part_of_other_grain_is_seen(whole):
    found = whole.copy()
    whole[PART], found[PART] = (120 + noise(n, 1.5, 4)[PART][..., None] for n in (4, 5))
    assert apart(whole, found) > 1


@pytest.mark.parametrize(
    ("change", "colours"),
    [
        (lambda x: x + 1, "same"),
        (lambda x: 0.7 * x, "changed"),
        (lambda x: np.repeat((x @ LUMA)[..., None], 3, axis=2), "grey"),
        (lambda x: 0.6 * x + 0.4 * (x @ LUMA)[..., None], "changed"),
        (lambda x: (2 * x - 130).clip(0, 255), "changed"),
    ],
)
def test_one_change_of_tones_is_taken_out(whole, change, colours):
    whole[..., 0] += 25
    made = toned(whole, change(whole))
    assert made is not None and made[2] == colours
    assert np.abs(made[0] - change(whole)).mean() < 1.01


@pytest.mark.parametrize("change", [lambda x: 255 - x, lambda x: 0.2 * x, lambda x: x[..., ::-1]])
def test_other_changes_of_tones_are_not(whole, change):
    whole[..., 0] += 40
    made = toned(whole, change(whole))
    assert made is None or apart(made[0], change(whole)) > 1


def test_a_grey_picture_that_is_darker_is_found(whole):
    grey = np.repeat(whole[..., 1:2].round(), 3, axis=2)
    for gain in (1.0, 0.7):
        made = toned(grey, (gain * grey).round())
        assert made is not None and np.abs(made[0] - gain * grey).mean() < 1
