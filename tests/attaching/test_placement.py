"""Boxes go where the pixels go; Pillow and NumPy are the judges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from glit.curate.attaching.moved_row import moved_row, wrong_side
from glit.curate.attaching.placement import Placement, undone
from glit.data.records import Drop
from glit.data.rle import compress_rle, decode_rle, encode_rle, read_rle

WIDE, TALL = 60, 40
TURNS = {
    0: None,
    90: Image.Transpose.ROTATE_270,  # Pillow counts the other way
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}


def changed(mask: np.ndarray, *, mirrored: bool, turned: int, cut: tuple[int, int, int, int]):
    """A mask of the published picture as a changed picture shows it."""
    image = Image.fromarray(mask.astype(np.uint8) * 255).crop(cut)
    if mirrored:
        image = ImageOps.mirror(image)
    if (how := TURNS[turned]) is not None:
        image = image.transpose(how)
    return np.asarray(image) > 0


def corners(mask: np.ndarray) -> list[int]:
    rows, columns = np.nonzero(mask)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@given(
    st.booleans(), st.sampled_from([0, 90, 180, 270]),
    st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 20), st.integers(0, 10)),
)  # fmt: skip
def test_boxes_and_masks_go_where_the_pixels_go(mirrored, turned, margins):
    left, top, right, bottom = margins
    cut = (left, top, WIDE - right, TALL - bottom)
    box = [24, 12, 38, 27]
    mask = np.zeros((TALL, WIDE), bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    mask[14, 25] = False
    seen = changed(mask, mirrored=mirrored, turned=turned, cut=cut)
    tall, wide = seen.shape
    placement = Placement(
        mirrored=mirrored, turned=turned, left=cut[0], top=cut[1], right=cut[2], bottom=cut[3]
    )
    region = dict(zip(("x0", "y0", "x1", "y1"), map(float, box), strict=True))
    row = {
        "width": WIDE, "height": TALL, "caption": "A cup.", "pairs": [], "sentences": [],
        "regions": [{**region, "score": 1.0, "label": "cup", "source": "person"}],
        "masks": [{"region": 0, "counts": compress_rle(encode_rle(mask))}],
    }  # fmt: skip
    made = moved_row(row, placement, wide, tall, [])
    assert not isinstance(made, Drop)
    assert [made["regions"][0][k] for k in ("x0", "y0", "x1", "y1")] == corners(seen)
    runs = read_rle(made["masks"][0]["counts"], height=tall, width=wide)
    assert np.array_equal(decode_rle(runs, height=tall, width=wide), seen)
    upright = mask[cut[1] : cut[3], cut[0] : cut[2]]
    assert np.array_equal(undone(seen, mirrored=mirrored, turned=turned), upright)


def test_a_placement_that_is_nearly_whole_or_unscaled_is_exact():
    near = Placement(left=-0.3, top=0.2, right=100.4, bottom=49.8)
    whole = near.snapped((100, 50), (300, 150), 1.0)
    assert (whole.left, whole.top, whole.right, whole.bottom) == (0, 0, 100, 50)
    cut = Placement(left=10.2, top=4.9, right=50.3, bottom=35.1).snapped((100, 50), (40, 30), 1.0)
    assert (cut.left, cut.top, cut.right, cut.bottom) == (10, 5, 50, 35)
    scaled = Placement(left=10.2, top=4.9, right=50.3, bottom=35.1)
    assert scaled.snapped((100, 50), (80, 60), 1.0) == scaled


@pytest.mark.parametrize(
    ("caption", "mirrored", "turned", "word"),
    [
        ("A cup stands left of a jug.", True, 0, "left"),
        ("A cup stands above a jug.", True, 0, ""),
        ("A cup stands above a jug.", False, 90, "above"),
        ("A cup stands left of a jug.", False, 0, ""),
        ("Leftovers are bright.", True, 180, ""),
    ],
)
def test_words_that_are_false_of_a_mirrored_or_turned_picture(caption, mirrored, turned, word):
    placement = Placement(mirrored=mirrored, turned=turned, left=0, top=0, right=9, bottom=9)
    assert wrong_side(caption, placement) == word


def test_all_captions_of_a_mirrored_picture_are_looked_at():
    row = {
        "caption": "A cup.", "width": 9, "height": 9, "regions": [], "sentences": [],
        "captions": [{"kind": "short", "text": "A cup left of a jug.", "source": "m"}],
        "negatives": [
            {"sentence": 0, "kind": "position", "text": "A cup right of a jug."},
            {"sentence": 0, "kind": "object", "text": "A dog."},
        ],
    }  # fmt: skip
    mirrored = Placement(mirrored=True, left=0, top=0, right=9, bottom=9)
    upright = Placement(left=0, top=0, right=9, bottom=9)
    dropped = moved_row(row, mirrored, 9, 9, [])
    assert isinstance(dropped, Drop) and dropped.reason == "wrong_side"
    assert moved_row(row, upright, 9, 9, [])["negatives"] == row["negatives"]
    own = {**row, "captions": "of somebody's own stage"}
    assert [n["kind"] for n in moved_row(own, mirrored, 9, 9, [])["negatives"]] == ["object"]
