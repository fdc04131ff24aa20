"""GOAL's and FAST-GOAL's losses, Eq. 11 to 14 of both, and what varies them, worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from made_features import SCALE, at, random_features

from glit.training.objectives.goal import (
    Clip,
    FastGoal,
    GlobalLocal,
    Local,
    Top3Uniform,
    Top3Weighted,
)
from glit.training.objectives.hard_negatives import HardNegatives

NEAR, FAR = math.log(1 + math.exp(-3)), math.log(1 + math.exp(3))
"""Cross-entropy of two logits 3 and 0 where the first is right, and where the second is."""
GLOBAL = NEAR
"""Images and captions at 0 and 90 degrees: every row and column is (3, 0)."""
LOCAL = (math.log(2) + (NEAR + FAR) / 2) / 2
"""Regions at 0 and 90 degrees, both sentences at 0: rows (3, 3) and (0, 0), columns (3, 0)."""
DIAGONAL = (0.25 + 0) / 2 + (1 + 0) / 2
"""Patches at 60 and 90 degrees, cosines 1/2 and 1 with their regions; words at 90 and 0, cosines 0
and 1 with their sentences."""
FULL = (0.25 + 0.75 + 0 + 0) / 4 + (1 + 0 + 1 + 0) / 4
"""All cosines less the identity: of patches (-1/2, cos 30) and (0, 0), of words (-1, 0) and
(1, 0)."""


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        (Clip(), GLOBAL),
        (Local(), LOCAL),
        (GlobalLocal(lambda_global=2, lambda_local=3), 2 * GLOBAL + 3 * LOCAL),
        (FastGoal(), GLOBAL + 0.5 * LOCAL + DIAGONAL),
        (
            FastGoal(lambda_global=2, lambda_local=3, lambda_tsl=5),
            2 * GLOBAL + 3 * LOCAL + 5 * DIAGONAL,
        ),
        (FastGoal(tsl_matrix="full"), GLOBAL + 0.5 * LOCAL + FULL),
    ],
    ids=repr,
)
def test_two_samples_by_hand(objective, wanted: float) -> None:
    f = replace(
        random_features(2, 1),
        image_ND=at(0, 90),
        text_ND=at(0, 90),
        local_image_NKD=at(0, 90)[:, None],
        local_text_NKD=at(0, 0)[:, None],
        pooled_patch_NKD=at(60, 90)[:, None],
        pooled_token_NKD=at(90, 0)[:, None],
    )
    loss, shown = objective(f, SCALE)
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    cosines = {name: value.item() for name, value in shown.items() if name.startswith("cosine")}
    tsl = {"cosine_patch": 0.75, "cosine_token": 0.5} if isinstance(objective, FastGoal) else {}
    assert cosines == pytest.approx(tsl)


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        (Top3Uniform(lambda_tsl=2), 2 * ((0.25 + 0 + 1) / 3 + (1 + 0.25) / 2)),
        (Top3Weighted(lambda_tsl=2), 2 * ((0.25 * 0.5 + 0) / 0.75 + (1 * 0.5 + 0.25**2) / 0.75)),
    ],
)
def test_three_pairs_of_one_sample_by_hand(objective, wanted: float) -> None:
    """Table VIII. One image and one caption have no wrong one, so both contrasts are zero.

    Cosines of patches 1/2, 1 and 0; of words 0 and 1/2, the third sentence leaves the window.
    Similarities 1/2, 1/4 and below zero, which counts as zero.
    """
    f = replace(
        random_features(1, 3),
        local_image_NKD=at(0, 0, 0)[None],
        local_text_NKD=at(0, 0, 0)[None],
        pooled_patch_NKD=at(60, 0, 90)[None],
        pooled_token_NKD=at(90, 60, 0)[None],
        valid_token_NK=torch.tensor([[True, True, False]]),
        similarity_NK=torch.tensor([[0.5, 0.25, -0.5]]),
    )
    assert objective(f, SCALE)[0].item() == pytest.approx(wanted, rel=1e-6)


def test_hard_negatives_of_three_images_by_hand() -> None:
    """Table XIV: two images of two pairs as in ``GLOBAL`` and ``LOCAL``, one of a single pair."""
    f = replace(
        random_features(3, 2),
        local_image_NKD=at(0, 90)[None].expand(3, -1, -1),
        local_text_NKD=torch.stack([at(0, 90), at(0, 0), at(0, 0)]),
        valid_local_NK=torch.tensor([[True, True], [True, True], [True, False]]),
    )
    loss, shown = HardNegatives()(f, SCALE)
    assert loss.item() == pytest.approx((GLOBAL + LOCAL) / 2, rel=1e-6)
    assert shown["images_compared"].item() == 2
