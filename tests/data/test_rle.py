"""Run lengths: COCO's own library is the judge of what is whole, and damage never passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycocotools import mask as coco

from glit.data.rle import decode_rle, encode_rle, read_rle, rle_area, rle_box

MASKS = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40))


def compressed(mask):
    return coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()


def test_a_mask_by_hand():
    mask = np.array([[0, 0, 1], [1, 0, 1]], dtype=bool)
    runs = read_rle([1, 1, 2, 2], height=2, width=3)
    assert encode_rle(mask) == runs.tolist() == [1, 1, 2, 2]
    assert compressed(mask) == "1121"  # the fourth run less the second
    assert read_rle("1121", height=2, width=3).tolist() == [1, 1, 2, 2]
    assert (decode_rle([1, 1, 2, 2], height=2, width=3) == mask).all()
    assert rle_area(runs) == 3
    assert rle_box(runs, height=2) == (0, 0, 3, 2)
    assert rle_box(np.array([3, 1, 2]), height=2) == (1, 1, 2, 2)


@given(MASKS)
@example(np.ones((3, 4), dtype=bool))
@example(np.zeros((3, 4), dtype=bool))
def test_both_codes_give_the_mask_its_area_and_its_box(mask):
    height, width = mask.shape
    listed = read_rle(encode_rle(mask), height=height, width=width)
    runs = read_rle(compressed(mask), height=height, width=width)
    assert runs.tolist() == listed.tolist()
    assert (decode_rle(runs, height=height, width=width) == mask).all()
    assert rle_area(runs) == mask.sum()
    if mask.any():
        x, y, w, h = coco.toBbox(coco.encode(np.asfortranarray(mask.astype(np.uint8))))
        assert rle_box(runs, height=height) == (x, y, x + w, y + h)


def test_runs_of_a_large_mask():
    mask = np.zeros((1500, 2250), dtype=bool)
    mask[700:1490, 3:2249] = True
    runs = read_rle(compressed(mask), height=1500, width=2250)
    assert rle_area(runs) == 790 * 2246
    assert rle_box(runs, height=1500) == (3, 700, 2249, 1490)


@pytest.mark.parametrize(
    "counts",
    ["", "1", "112", "112p", "11 2", "1121\n", "é", "oooooooooo0", [], [1, 1], [-1, 7], [6.0],
     ["6"], [[6]], [2**70, 1], None, {"a": 6}, [True]],
)  # fmt: skip
def test_damaged_runs_are_refused(counts):
    with pytest.raises(ValueError, match="run length"):
        read_rle(counts, height=2, width=3)


@given(MASKS, st.data())
def test_no_damage_gives_a_box_outside_the_mask(mask, data):
    text = list(compressed(mask))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.characters(min_codepoint=32, max_codepoint=126))
    height, width = mask.shape
    try:
        runs = read_rle("".join(text), height=height, width=width)
    except ValueError:
        return
    assert runs.min() >= 0 and runs.sum() == mask.size
    if rle_area(runs):
        x0, y0, x1, y1 = rle_box(runs, height=height)
        assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
