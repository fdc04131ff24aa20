"""FG-CLIP's four terms by hand, and what it asks of a dataset."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from made_features import SCALE, at, cross_entropy, logits, random_features

from glit.errors import RecipeError
from glit.training.losses import against_negatives
from glit.training.objectives.fg_clip import FgClip


def test_every_term_by_hand() -> None:
    f = random_features(2, 2)
    loss, shown = FgClip()(f, SCALE)
    wanted = {
        "loss_long": cross_entropy(logits(f.image_ND, f.text_ND)),
        "loss_short": cross_entropy(logits(f.image_ND, f.further_text_NSD[:, 0])),
        "loss_region": cross_entropy(  # region_scale is 2, that of logits() 3
            logits(f.pooled_patch_NKD.flatten(0, 1) * 2 / 3, f.local_text_NKD.flatten(0, 1))
        ),
    }
    hard = 0.0
    for i in range(2):
        for k in range(2):
            patch = f.pooled_patch_NKD[i, k]
            own = math.exp(3 * float(patch @ f.local_text_NKD[i, k]))
            false = f.negative_text_NKJD[i, k][f.valid_negative_NKJ[i, k]]
            hard -= math.log(own / (own + sum(math.exp(3 * float(patch @ t)) for t in false))) / 4
    wanted["loss_hard"] = hard
    for name, value in wanted.items():
        assert shown[name].item() == pytest.approx(value, rel=1e-5), name
    weights = {"loss_long": 1, "loss_short": 1, "loss_region": 0.1, "loss_hard": 0.5}
    total = sum(weights[name] * value for name, value in wanted.items())
    assert loss.item() == pytest.approx(total, rel=1e-5)


def test_two_false_sentences_at_right_angles() -> None:
    """Logits 3 and 0, 0: ln(1 + 2 e^-3); the second sample has no false sentence."""
    f = replace(
        random_features(2, 1),
        pooled_patch_NKD=at(0, 0)[:, None],
        local_text_NKD=at(0, 0)[:, None],
        negative_text_NKJD=at(90, 90, 0, 90, 90, 0).view(2, 1, 3, 5),
        valid_negative_NKJ=torch.tensor([[[True, True, False]], [[False, False, False]]]),
    )
    _, shown = FgClip()(f, SCALE)
    assert shown["loss_hard"].item() == pytest.approx(math.log(1 + 2 * math.exp(-3)), rel=1e-6)


def test_against_negatives_of_nothing_is_zero_with_gradients() -> None:
    own = torch.zeros(2, 1, requires_grad=True)
    nothing = torch.zeros(2, 1, 3, dtype=torch.bool)
    loss = against_negatives(own, torch.ones(2, 1, 3), nothing, torch.ones(2, 1))
    loss.backward()
    assert loss.item() == 0 and own.grad is not None and not own.grad.any()


def test_without_short_captions_no_text_is_asked_for() -> None:
    f = random_features(3, 2)
    loss, shown = FgClip(lambda_short=0)(f, SCALE)
    assert "loss_short" not in shown
    with_short, more = FgClip()(f, SCALE)
    assert with_short.item() == pytest.approx((loss + more["loss_short"]).item(), rel=1e-6)
    assert FgClip(lambda_short=0).needs.num_texts == 0 and FgClip().needs.num_texts == 1


@pytest.mark.parametrize(
    "changes",
    [{"lambda_hard": -1.0}, {"lambda_region": math.nan}, {"num_regions": 0}, {"num_negatives": 0}],
)
def test_values_that_cannot_be(changes: dict) -> None:
    with pytest.raises(RecipeError, match=rf"train\W+{next(iter(changes))}\W"):
        FgClip(**changes)
