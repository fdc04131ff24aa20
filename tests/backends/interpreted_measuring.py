"""Run by ``test_measuring.py`` with TRITON_INTERPRET=1, which Triton wants from its import on."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
from torch.nn import functional

from glit.backends.sam.automatic import AutomaticMasks
from glit.backends.sam.mask_kernel import measure_masks
from glit.backends.sam.masks import area_px, mask_to_box, upscale
from glit.backends.sam.model import load_sam
from glit.images import decode
from glit.models.weights import resolve

THRESHOLDS = (0.0, 0.4, -0.4)
SIZES = [
    (12, (48, 36), (20, 15)),
    (12, (30, 48), (7, 11)),
    (8, (32, 17), (75, 40)),
    (8, (9, 32), (9, 131)),
]
"""Side of the logits; height and width in the encoder's input, and of the image."""


def logits(num, side):
    """Round blobs, then nothing at all, then everything."""
    coarse = torch.randn(1, num, 4, 4, generator=torch.Generator().manual_seed(0))
    fine = functional.interpolate(coarse, (side, side), mode="bicubic")[0] - 0.5
    fine[-2], fine[-1] = -3, 3
    return fine.contiguous()


def check_against_full_masks(side, input_size, original_size):
    some = logits(5, side)
    sizes = {"factor": 4, "input_size": input_size, "original_size": original_size}
    found = measure_masks(some, thresholds=THRESHOLDS, **sizes)
    full = upscale(some, **sizes)
    areas = torch.stack([area_px(full, each) for each in THRESHOLDS], dim=1)
    assert torch.equal(found.above_K3, areas), (found.above_K3, areas)
    boxes = mask_to_box(full, THRESHOLDS[0])
    assert torch.equal(found.boxes_K4.long(), boxes), (found.boxes_K4, boxes)
    height, width = original_size
    assert found.boxes_K4[-2:].tolist() == [[0, 0, 0, 0], [0, 0, width - 1, height - 1]]
    assert found.above_K3[-1].tolist() == [height * width] * 3


def check_sam(file):
    """The mini segmenter's masks of a picture, each as its logits come."""
    model, _, thresholds = load_sam(resolve("mini-segmenter").path)
    picture = decode(open(file, "rb").read())[::3, ::4].copy()
    masks = AutomaticMasks(model, replace(thresholds, points_per_side=5))
    assert not masks._measures_at_once
    wanted = masks([picture])[0]
    masks._measures_at_once = True
    found = masks([picture])[0]
    assert len(wanted.boxes) > 2
    assert (found.boxes == wanted.boxes).all() and (found.area_px == wanted.area_px).all()
    assert (found.stability_score == wanted.stability_score).all()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in SIZES:
        check_against_full_masks(*case)
    check_sam(sys.argv[1])
    print("all measured alike")
