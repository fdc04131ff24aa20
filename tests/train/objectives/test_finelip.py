"""FineLIP's loss by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from made_features import SCALE, objective_of, random_features

from glit.train.objectives.finelip import triplet


def test_triplet_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.9, 0.85], [0.5, 1.0, 0.2], [0.95, 0.1, 1.0]])
    wrong, everyone = ~torch.eye(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    hardest = triplet(scores, wrong, everyone, 0.2)
    assert hardest.item() == pytest.approx((0.1 + 0 + 0.15) / 3 + (0.15 + 0.1 + 0.05) / 3)
    total = triplet(scores, wrong, everyone, 0.2, "sum")
    assert total.item() == pytest.approx((0.1 + 0.05 + 0.15) / 3 + (0.15 + 0.1 + 0.05) / 3)


def test_finelip_by_hand() -> None:
    """Against a loop over images and texts; text 1 has a word less, and 0 and 2 are equal."""
    f = random_features(3, 0)
    f = replace(f, caption_key_N2=torch.tensor([[1.0, 2], [3, 4], [1, 2]]))
    loss, metrics = objective_of("finelip")(f, SCALE)
    words = f.valid_made["text_tokens"].sum(dim=1).tolist()
    score = [[0.0] * 3 for _ in range(3)]
    for i in range(3):
        for j in range(3):
            cosine = f.made["image_tokens"][i] @ f.made["text_tokens"][j, : words[j]].T
            score[i][j] = float(cosine.amax(dim=1).mean() + cosine.amax(dim=0).mean())
    error = 0.0
    for i in range(3):
        others = [j for j in range(3) if j != i and {i, j} != {0, 2}]
        error += max(max(0.0, 0.2 + score[i][j] - score[i][i]) for j in others)
        error += max(max(0.0, 0.2 + score[j][i] - score[i][i]) for j in others)
    assert words == [4, 3, 4] and error > 0
    assert loss.item() == pytest.approx(error / 3, rel=1e-5)
    assert metrics["score"].item() == pytest.approx(sum(score[i][i] for i in range(3)) / 3)


def test_finelip_of_equal_captions_alone_is_zero() -> None:
    f = random_features(3, 0)
    loss, _ = objective_of("finelip")(replace(f, caption_key_N2=torch.ones(3, 2)), SCALE)
    assert loss.item() == 0
