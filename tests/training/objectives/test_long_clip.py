"""Long-CLIP's two losses, worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from made_features import random_features

from glit.training.objectives.long_clip import LongClip

ONE = torch.tensor(1.0)


def test_long_clip_by_hand() -> None:
    """Four images (+-0.6, +-0.8): of mean 0, and 0.8 along the second axis is their main component.

    Long captions at right angles to all: every logit 0, ln 4, which smoothing leaves. Short ones
    are the images themselves: with one component all logits are +-0.64, two of each in a row,
    whose sum is 0: ln(2 e^0.64 + 2 e^-0.64) - 0.9 x 0.64. With two they are those of the images,
    1, -0.28, 0.28 and -1.
    """
    image = F.pad(torch.tensor([[0.6, 0.8], [0.6, -0.8], [-0.6, 0.8], [-0.6, -0.8]]), (0, 3))
    aside = F.pad(torch.ones(4, 1), (4, 0))
    f = replace(
        random_features(4, 0),
        image_ND=image,
        text_ND=aside,
        further_text_NSD=torch.stack([image, aside], dim=1),
    )
    coarse = math.log(2 * math.exp(0.64) + 2 * math.exp(-0.64)) - 0.9 * 0.64
    loss, _ = LongClip(num_components=1, lambda_short=0.5)(f, ONE)
    assert loss.item() == pytest.approx(math.log(4) + 0.5 * coarse, rel=1e-6)
    fine = math.log(sum(math.exp(logit) for logit in (1, -0.28, 0.28, -1))) - 0.9
    loss, _ = LongClip(num_components=2)(f, ONE)
    assert loss.item() == pytest.approx(math.log(4) + fine, rel=1e-6)
