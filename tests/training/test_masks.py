"""Patches by the masks of regions (``train.patches``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from glit.data.rle import decode_rle, mask_text, read_rle
from glit.dataset.local_pairs import local_pairs
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, InputError, RecipeError
from glit.models.clip.pooling import patch_mask
from glit.models.clip.preprocess import fit_boxes, touched_patches
from glit.stages.propose import KeepMasks
from glit.training.augment import Augmentation
from glit.training.config import TrainConfig
from glit.training.model import patches_of_regions
from glit.training.planning import plan_sample
from glit.training.setup import prepare

WIDTH, HEIGHT = 64, 64
"""Of the images; the model's square has a side of 32 pixels and 4 x 4 patches."""
touched = partial(touched_patches, side=32, patch_size=8)


def grid(*rows: str) -> list[bool]:
    """Patches as rows of ``#`` and ``.``, row-major."""
    return [sign == "#" for row in rows for sign in row]


def filled(x0: int, y0: int, x1: int, y1: int, *, width: int = WIDTH, height: int = HEIGHT):
    mask = np.zeros((height, width), dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


def text(mask: np.ndarray) -> str:
    return mask_text(mask, height=mask.shape[0], width=mask.shape[1])


LEFT_HALF = filled(0, 16, 32, 48)
BOX = {"x0": 0.0, "y0": 16.0, "x1": 64.0, "y1": 48.0}


def first_has_the_left_half(index: int, row) -> None:
    """The first pair's region is a band of whole width, and its mask the band's left half."""
    row["regions"][row["pairs"][0]["region"]].update(BOX)
    row["masks"] = [{"region": row["pairs"][0]["region"], "counts": text(LEFT_HALF)}]


@pytest.fixture
def masked(make_dataset) -> str:
    return str(
        make_dataset(
            4, name="masked", width=WIDTH, height=HEIGHT, change=first_has_the_left_half,
            further=KeepMasks.dataset_columns,
        )
    )  # fmt: skip


def config(tiny_clip, **values) -> TrainConfig:
    given = {"objective": "fast-goal", "patches": "mask", "batch_size": 4, "num_workers": 0}
    return TrainConfig(model=str(tiny_clip), **given | values)


def test_touched_patches_by_hand() -> None:
    assert touched(LEFT_HALF, fit="resize").tolist() == grid("....", "##..", "##..", "....")
    one_pixel_more = filled(0, 16, 33, 48)
    assert touched(one_pixel_more, fit="resize").tolist() == grid("....", "###.", "###.", "....")
    assert touched(filled(63, 0, 64, 1), fit="resize").tolist() == grid(
        "...#", "....", "....", "...."
    )
    assert not touched(filled(0, 0, 0, 0), fit="resize").any()
    # an image smaller than the square: a pixel in several patches
    assert touched(filled(0, 0, 1, 1, width=2, height=2), fit="resize").tolist() == grid(
        "##..", "##..", "....", "...."
    )
    # twice as wide as high: the crop keeps the columns 32 to 96
    wide = filled(0, 0, 48, 64, width=128)
    assert touched(wide, fit="resize").tolist() == grid("##..", "##..", "##..", "##..")
    assert touched(wide, fit="centre-crop").tolist() == grid("#...", "#...", "#...", "#...")
    assert not touched(filled(0, 0, 32, 64, width=128), fit="centre-crop").any()


@pytest.mark.parametrize("seed", range(60))
def test_a_mask_that_fills_its_box_touches_the_patches_of_the_box(seed) -> None:
    draw = np.random.default_rng(seed)
    width, height = draw.integers(3, 200, 2).tolist()
    x0, y0 = int(draw.integers(width)), int(draw.integers(height))
    x1, y1 = int(draw.integers(x0, width)) + 1, int(draw.integers(y0, height)) + 1
    mask, box = filled(x0, y0, x1, y1, width=width, height=height), np.array([[x0, y0, x1, y1]])
    for fit in ("resize", "centre-crop"):
        for side, patch_size in ((32, 8), (224, 16), (30, 8)):
            found = touched_patches(mask, side=side, patch_size=patch_size, fit=fit)
            boxes = fit_boxes(box.astype(float), width=width, height=height, side=side, fit=fit)
            wanted = patch_mask(
                torch.from_numpy(boxes)[None], patch_size=patch_size, grid=side // patch_size
            )
            assert found.tolist() == wanted[0, 0].tolist(), (box, width, height, fit, side)


@pytest.mark.parametrize(
    ("augmentation", "fit", "wanted"),
    [
        (None, "resize", ("....", "##..", "##..", "....")),
        (Augmentation(box_xyxy=(0, 0, 64, 64), mirrored=True), "resize",
         ("....", "..##", "..##", "....")),
        (Augmentation(box_xyxy=(16, 16, 48, 48), mirrored=False), "resize",
         ("##..", "##..", "##..", "##..")),
        (Augmentation(box_xyxy=(16, 16, 48, 48), mirrored=True), "resize",
         ("..##", "..##", "..##", "..##")),
        (Augmentation(box_xyxy=(0, 16, 64, 48), mirrored=False), "centre-crop",
         ("##..", "##..", "##..", "##..")),
    ],
)  # fmt: skip
def test_the_mask_goes_the_way_of_the_image(masked, tiny_clip, augmentation, fit, wanted) -> None:
    objective = config(tiny_clip).make_objective()
    sample = plan_sample(
        Dataset(masked).row_group(0), 0, objective, side=32, fit=fit,
        draw=np.random.default_rng(0), augment=augmentation and (lambda *_: augmentation),
    )  # fmt: skip
    out = torch.zeros(1, 16, dtype=torch.bool)
    sample.write_patches(out, side=32, patch_size=8, fit=fit)
    assert out[0].tolist() == grid(*wanted)
    damaged = replace(sample, pairs=(replace(sample.pairs[0], mask="12"),))
    with pytest.raises(DatasetError, match="the mask of a region: run lengths that add up to 3"):
        damaged.write_patches(out, side=32, patch_size=8, fit=fit)


def test_a_region_without_a_mask_keeps_its_box(masked, tiny_clip) -> None:
    made = prepare(config(tiny_clip, objective="top3-uniform", num_workers=2), masked)
    [[batch]] = list(made.loader.epoch(0))
    [[plain]] = list(
        prepare(config(tiny_clip, objective="top3-uniform", patches="box"), masked).loader.epoch(0)
    )
    assert plain.mask_patches_NKP is None and batch.mask_patches_NKP is not None
    assert torch.equal(batch.pixels_V3SS, plain.pixels_V3SS)
    by_mask = patches_of_regions(batch, made.model.encoder)
    by_box = patches_of_regions(plain, made.model.encoder)
    first = by_mask[:, 0].tolist()
    assert first == [grid("....", "##..", "##..", "....")] * 4
    others = [
        (by_mask[b, k], by_box[b, k])
        for b in range(4) for k in (1, 2)
        if batch.boxes_NK4[b, k].tolist() != batch.boxes_NK4[b, 0].tolist()
    ]  # fmt: skip
    assert len(others) >= 4 and all(torch.equal(*both) for both in others)
    # a mask beside the box touches none of its patches
    corner_NKP = (torch.arange(16) == 0).expand(4, 3, 16)
    beside = replace(batch, mask_patches_NKP=corner_NKP)
    assert patches_of_regions(beside, made.model.encoder)[:, 0].tolist() == by_box[:, 0].tolist()
    [parts] = list(prepare(config(tiny_clip, micro_batch_size=2), masked).loader.epoch(0))
    sizes = [part.mask_patches_NKP.shape for part in parts if part.mask_patches_NKP is not None]
    assert sizes == [(2, 1, 16)] * 2


@torch.no_grad()
def test_features_are_pooled_under_the_mask(masked, tiny_clip) -> None:
    made = prepare(config(tiny_clip), masked)
    [[batch]] = list(made.loader.epoch(0))
    features, _ = made.model.eval()(batch)
    half = replace(batch, mask_patches_NKP=None, boxes_NK4=batch.boxes_NK4.clone())
    half.boxes_NK4[:, 0, 2] = 16  # of the band its left half
    wanted, _ = made.model(half)
    torch.testing.assert_close(features.pooled_patch_NKD, wanted.pooled_patch_NKD)
    whole, _ = made.model(replace(batch, mask_patches_NKP=None))
    assert not torch.allclose(features.pooled_patch_NKD, whole.pooled_patch_NKD)


def test_what_has_no_masks_is_refused(make_dataset, masked, tiny_clip) -> None:
    plain = str(make_dataset(4, name="plain"))
    empty = str(
        make_dataset(
            4, name="empty", further=KeepMasks.dataset_columns,
            change=lambda _, row: row.update(masks=[]),
        )
    )  # fmt: skip
    for name in (plain, empty):
        with pytest.raises(InputError, match=r"no region has a mask.* propose.keep_masks=true"):
            prepare(config(tiny_clip), name)
    with pytest.raises(InputError, match="plain: no region has a mask"):
        prepare(config(tiny_clip, also=(plain,)), masked)
    for objective in ("clip", "local", "mulclip"):
        with pytest.raises(RecipeError, match="pools no patches of regions.* fast-goal"):
            prepare(config(tiny_clip, objective=objective), masked)
    with pytest.raises(RecipeError, match="found 'pixel'; known: box, mask"):
        config(tiny_clip, patches="pixel")


def test_the_mask_of_the_dataset_is_the_one_of_the_pair(masked) -> None:
    group = Dataset(masked).row_group(0)
    pairs = local_pairs(group, 0)
    size = {"height": HEIGHT, "width": WIDTH}
    assert np.array_equal(decode_rle(read_rle(pairs[0].mask, **size), **size), LEFT_HALF)
    assert {pair.mask for pair in pairs} == {"", pairs[0].mask}
