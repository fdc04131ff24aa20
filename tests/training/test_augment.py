"""Boxes go where their pixels go, and pairs that are cut away are not trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glit.dataset.local_pairs import LocalPair
from glit.models.clip.preprocess import crop
from glit.training.augment import Augmentation, draw_augmentation
from glit.training.config import TrainConfig
from glit.training.setup import prepare


def pair(*box: float) -> LocalPair:
    return LocalPair(sentence="a box.", token_span=(1, 2), box_xyxy=box, similarity=0.1)


def test_boxes_by_hand() -> None:
    changed = Augmentation(box_xyxy=(10, 20, 70, 60), mirrored=False)
    pairs = (pair(20, 30, 40, 50), pair(60, 20, 80, 40), pair(61, 20, 80, 40), pair(0, 0, 10, 20))
    found = [each.box_xyxy for each in changed.pairs(pairs)]
    assert found == [(10, 10, 30, 30), (50, 0, 60, 20)]  # half is left of the second, no more
    mirrored = Augmentation(box_xyxy=(10, 20, 70, 60), mirrored=True)
    assert [each.box_xyxy for each in mirrored.pairs(pairs)] == [(30, 10, 50, 30), (0, 0, 10, 20)]


@pytest.mark.parametrize("seed", range(40))
def test_a_box_holds_the_same_pixels_as_before(seed) -> None:
    draw = np.random.default_rng(seed)
    width, height = draw.integers(5, 90, 2).tolist()
    x0, y0 = int(draw.integers(width)), int(draw.integers(height))
    x1, y1 = int(draw.integers(x0, width)) + 1, int(draw.integers(y0, height)) + 1
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[y0:y1, x0:x1] = 255
    changed = draw_augmentation(width, height, "A box.", min_crop=0.4, flip=0.5, draw=draw)
    kept = changed.image(image)
    assert kept.shape[:2] == changed.size[::-1]
    assert changed.size[0] * changed.size[1] >= 0.4 * width * height - width - height
    left = int((kept == 255).all(axis=2).sum())
    pairs = changed.pairs((pair(x0, y0, x1, y1),))
    assert bool(pairs) == (left >= 0.5 * (x1 - x0) * (y1 - y0))
    if pairs:
        found = crop(kept, np.array(pairs[0].box_xyxy, dtype=np.float64))
        assert found.min() == 255 and found.shape[0] * found.shape[1] == left


@pytest.mark.parametrize(
    ("caption", "may"),
    [
        ("A cup to the left of a plate.", False),
        ("Its rightmost window is open.", False),
        ("A left-handed cup.", False),
        ("The wheel turns Counter-clockwise.", False),
        ('A sign that reads "STOP".', False),
        ("A sign that says 'STOP'.", False),
        ("A door with ‘Open’ on it.", False),
        ("Links steht ein Hund.", False),
        ("Un perro a la izquierda.", False),
        ("画面左侧有一只狗。", False),
        ("Собака слева.", False),
        ("The dog's ball lies on the boys' lawn.", True),
        ("A bright leftover on an upright plate.", True),
    ],
)
def test_what_a_mirror_would_make_wrong_is_not_mirrored(caption, may) -> None:
    draw = np.random.default_rng(0)
    found = [
        draw_augmentation(40, 30, caption, min_crop=1.0, flip=1.0, draw=draw) for _ in range(9)
    ]
    assert {each.mirrored for each in found} == {may}
    assert {each.box_xyxy for each in found} == {(0, 0, 40, 30)}


def test_batches_are_augmented_anew_every_epoch_and_the_same_again(tiny_clip, make_dataset) -> None:
    def one_small_region(index: int, row) -> None:
        row["pairs"] = row["pairs"][:1]
        row["regions"][row["pairs"][0]["region"]].update(x0=0.0, y0=0.0, x1=8.0, y1=8.0)

    dataset = str(make_dataset(8, width=64, height=48, change=one_small_region))
    values = {"model": str(tiny_clip), "batch_size": 8, "num_workers": 0}

    def batch(epoch: int, **changes):
        made = prepare(TrainConfig(**values, **changes), dataset)
        ((found,),) = list(made.loader.epoch(epoch))
        return found

    plain, first = batch(0), batch(0, min_crop=0.05, flip=0.5)
    again, later = batch(0, min_crop=0.05, flip=0.5), batch(1, min_crop=0.5, flip=0.5)
    assert torch.equal(first.pixels_V3SS, again.pixels_V3SS)
    assert not torch.equal(first.pixels_V3SS[:8], plain.pixels_V3SS[:8])
    assert later.num_valid == first.num_valid == 8
    assert first.valid_local_NK.sum() < plain.valid_local_NK.sum()  # some regions were cut away
