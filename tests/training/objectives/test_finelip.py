"""FineLIP's loss by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from made_features import SCALE, objective_of, random_features
from plain_clip import plain_encoder

from glit.models.clip.finelip import FineLipTokens
from glit.training.objectives.finelip import FineLip, triplet


def test_triplet_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.9, 0.85], [0.5, 1.0, 0.2], [0.95, 0.1, 1.0]])
    wrong, everyone = ~torch.eye(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    hardest = triplet(scores, wrong, everyone, 0.2)
    assert hardest.item() == pytest.approx((0.1 + 0 + 0.15) / 3 + (0.15 + 0.1 + 0.05) / 3)
    total = triplet(scores, wrong, everyone, 0.2, "sum")
    assert total.item() == pytest.approx((0.1 + 0.05 + 0.15) / 3 + (0.15 + 0.1 + 0.05) / 3)


def test_two_pairs_by_hand() -> None:
    """Eq. 1 and 2. Images V = (a, b) and (a, c), texts T = (a, b) and (a).

    R is 1 + 1 and 1/2 + 1 in the row of image 0, 1/2 + 1/2 and 1/2 + 1 in that of image 1. No row
    has a wrong one within the margin; in text 1's column both have 1.5, so 0.2 of one query in two.
    """
    a, b, c, garbage = torch.eye(5)[:4]
    f = random_features(2, 0)
    words = torch.tensor([[True, True], [True, False]])
    f = replace(
        f,
        made={
            "image_tokens": torch.stack([torch.stack([a, b]), torch.stack([a, c])]),
            "text_tokens": torch.stack([torch.stack([a, b]), torch.stack([a, garbage])]),
        },
        valid_made={"image_tokens": torch.ones(2, 2, dtype=torch.bool), "text_tokens": words},
    )
    loss, metrics = FineLip()(f, SCALE)
    assert loss.item() == pytest.approx(0.2 / 2)
    assert metrics["score"].item() == pytest.approx((2 + 1.5) / 2)
    loss, _ = FineLip(margin=0.7)(f, SCALE)  # rows 0.2 and 0.2, columns 0 and 0.7
    assert loss.item() == pytest.approx((0.2 + 0.2) / 2 + (0 + 0.7) / 2)


@torch.no_grad()
def test_what_is_compared_by_hand() -> None:
    """Section 3.2: V' and T' of keys of zeros, which make every condensed token the mean of all.

    Patches (2, 0) twice and (0, 2) twice; words (2, 0), (0, 2) and (0, 2), between a start and an
    end token and before padding that all point elsewhere. Half of 4 patches are 2, of 6 words 3.
    """
    encoder = plain_encoder()
    tokens = FineLipTokens(encoder, ratio=0.5, refine="both", global_tokens=True)
    for refinement in (tokens.image, tokens.text):
        refinement.keys.weight.zero_()
        refinement.keys.bias.zero_()
    right, up, other = [1.0, 0, -1], [0.0, 1, -1], [1.0, -1, 0]
    embedding, half = torch.tensor([[0.6, -0.8]]), 0.5**0.5
    patches = torch.tensor([[right, up, right, up]])
    found, valid = tokens.of_images(encoder, patches, embedding)
    torch.testing.assert_close(found, torch.tensor([[[0.6, -0.8], [half, half], [half, half]]]))
    assert valid.tolist() == [[True] * 3]
    slots = torch.tensor([[other, right, up, up, other, other, other]])
    own = torch.arange(7)[None] < 5
    found, valid = tokens.of_texts(encoder, slots, own, embedding)
    mean = [0.2**0.5, 0.8**0.5]  # (2, 4) over its length
    torch.testing.assert_close(found, torch.tensor([[[0.6, -0.8], mean, mean, mean]]))
    assert valid.tolist() == [[True] * 4]


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
