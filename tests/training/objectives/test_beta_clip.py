"""beta-CLIP: both losses by hand, what is drawn as text."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from made_features import NUMBERS, at, cross_entropy, logits, objective_of, random_features
from made_features import SCALE as CLIPS

from glit.errors import RecipeError
from glit.training.objectives.beta_clip import (
    BetaClip,
    BetaClipModule,
    binary_cross_entropy,
    soft_cross_entropy,
)

VALID = torch.tensor([[True, True, True], [True, False, True], [False, False, False]])
SCALE = torch.tensor(2.0, dtype=torch.float64)
CAPTION = "A red dog sleeps on the left of a tree. It is snowing. The dog is big."
SENTENCES = [(0, 39), (40, 54), (55, 70)]


def embeddings(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(3, 3, 4, generator=generator, dtype=torch.float64), dim=-1)


def test_beta_clip_by_hand() -> None:
    """One valid text an image besides the caption: the global loss and that of 2 x 2 texts."""
    f = random_features(2, 0)
    one_text = torch.tensor([[True, False], [True, False]])
    loss, metrics = objective_of("beta-clip")(replace(f, valid_further_NS=one_text), CLIPS)
    texts = torch.cat([f.text_ND[:, None], f.further_text_NSD[:, :1]], dim=1).flatten(0, 1)
    scores = NUMBERS["scale"] * f.made["pooled"][:, :2].flatten(0, 1) @ texts.T
    target = torch.block_diag(*[torch.tensor([[2 / 3, 1 / 3], [1 / 3, 2 / 3]])] * 2)
    both = [F.cross_entropy(each, target) for each in (scores, scores.T)]
    aligned = sum(both).item() / 2
    assert metrics["loss_aligned"].item() == pytest.approx(aligned, rel=1e-5)
    whole = cross_entropy(logits(f.image_ND, f.text_ND))
    assert loss.item() == pytest.approx(whole + aligned, rel=1e-5)


def pairs(beta: float):
    """Of every two valid texts: whether they are of one sample, the weight, the logit."""
    pooled, text = embeddings(0), embeddings(1)
    places = VALID.nonzero().tolist()
    rows = []
    for n, i in places:
        row = []
        for m, j in places:
            weight = (1.0 if i == j else beta) if n == m else 0.0
            row.append((n == m, weight, 2 * float(pooled[n, i] @ text[m, j])))
        rows.append(row)
    return rows


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_soft_cross_entropy_against_loops(beta: float) -> None:
    rows = pairs(beta)

    def way(rows) -> float:
        error = 0.0
        for row in rows:
            lse = math.log(sum(math.exp(logit) for *_, logit in row))
            total = sum(weight for _, weight, _ in row)
            error -= sum(weight / total * (logit - lse) for _, weight, logit in row)
        return error / len(rows)

    wanted = (way(rows) + way(list(zip(*rows, strict=True)))) / 2
    found = soft_cross_entropy(embeddings(0), embeddings(1), VALID, SCALE, beta)
    assert found.item() == pytest.approx(wanted)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_binary_cross_entropy_against_loops(beta: float) -> None:
    rows = pairs(beta)
    error = 0.0
    for own, weight, logit in (pair for row in rows for pair in row):
        error += weight * math.log1p(math.exp(-logit)) if own else math.log1p(math.exp(logit))
    found = binary_cross_entropy(embeddings(0), embeddings(1), VALID, SCALE, beta)
    assert found.item() == pytest.approx(error / len(rows) ** 2)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_what_beta_weighs(beta: float) -> None:
    """Two orthogonal texts of one image that find themselves: logits (1, 0) and (0, 1).

    Cross-entropy: ln(e + 1) less the target's mean logit, which is 1 / (1 + beta). Binary: a right
    pair of logit 1 costs ln(1 + e^-1), one of logit 0 ln 2, and counts beta; over four pairs.
    """
    one, both, scale = torch.eye(2)[None], torch.ones(1, 2, dtype=torch.bool), torch.tensor(1.0)
    found = soft_cross_entropy(one, one, both, scale, beta)
    assert found.item() == pytest.approx(math.log(math.e + 1) - 1 / (1 + beta))
    found = binary_cross_entropy(one, one, both, scale, beta)
    wanted = (2 * math.log(1 + math.exp(-1)) + 2 * beta * math.log(2)) / 4
    assert found.item() == pytest.approx(wanted)


def test_the_total_by_hand() -> None:
    """Two images of a caption and no other text, all at right angles; CLIP's scale 3, ours 2."""
    f = random_features(2, 0)
    f = replace(
        f,
        image_ND=at(0, 90),
        text_ND=at(0, 90),
        valid_further_NS=torch.zeros(2, 2, dtype=torch.bool),
        made={"pooled": F.pad(at(0, 90)[:, None], (0, 0, 0, 2))},
    )
    whole, aligned = math.log(1 + math.exp(-3)), math.log(1 + math.exp(-2))
    loss, _ = BetaClip(lambda_global=2, lambda_aligned=3)(f, CLIPS)
    assert loss.item() == pytest.approx(2 * whole + 3 * aligned, rel=1e-6)
    # logits 2 twice, right, and 0 twice, wrong
    loss, _ = BetaClip(contrast="binary", lambda_global=0)(f, CLIPS)
    assert loss.item() == pytest.approx((2 * aligned + 2 * math.log(2)) / 4, rel=1e-6)


@pytest.mark.parametrize("loss", [soft_cross_entropy, binary_cross_entropy])
def test_what_stands_in_padding_and_where_changes_nothing(loss) -> None:
    pooled, text = embeddings(0), embeddings(1)
    wanted = loss(pooled, text, VALID, SCALE, 0.5)
    garbage = torch.where(VALID[..., None], text, -5 * text)
    torch.testing.assert_close(loss(pooled, garbage, VALID, SCALE, 0.5), wanted)
    order = torch.tensor([2, 0, 1])
    found = loss(pooled[:, order], text[:, order], VALID[:, order], SCALE, 0.5)
    torch.testing.assert_close(found, wanted)
    wider = [F.pad(each, (0, 0, 0, 2)) for each in (pooled, text)]
    torch.testing.assert_close(loss(*wider, F.pad(VALID, (0, 2)), SCALE, 0.5), wanted)
    nothing = loss(pooled, text, torch.zeros_like(VALID), SCALE, 0.5)
    assert nothing.item() == 0


@pytest.mark.parametrize("loss", [soft_cross_entropy, binary_cross_entropy])
def test_gradients(loss) -> None:
    inputs = (embeddings(0).requires_grad_(), embeddings(1).requires_grad_())
    scale = SCALE.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda pooled, text, scale: loss(pooled, text, VALID, scale, 0.5), (*inputs, scale)
    )


def test_texts_are_sentences_and_their_phrases() -> None:
    found = BetaClip().texts(CAPTION, SENTENCES, np.random.default_rng(0))
    assert found == [
        "A red dog sleeps on the left of a tree.", "It is snowing.", "The dog is big.",
        "A red dog", "a tree", "sleeps on", "on the left of", "The dog",
    ]  # fmt: skip
    two = BetaClip(num_sentences=1, max_phrases=2)
    drawn = [tuple(two.texts(CAPTION, SENTENCES, np.random.default_rng(s))) for s in range(40)]
    assert set(drawn) >= {("It is snowing.",), (CAPTION[:39], "A red dog", "a tree")}
    assert BetaClip(max_phrases=0).texts("", [], np.random.default_rng(0)) == []


def test_the_scale_keeps_to_its_range() -> None:
    module = BetaClipModule(8)
    assert module.log_scale.item() == pytest.approx(math.log(1 / 0.07))
    with torch.no_grad():
        for start, wanted in ((9.0, math.log(50)), (-1.0, 0.0), (2.0, 2.0)):
            module.log_scale.fill_(start)
            module.after_step(50.0)
            assert module.log_scale.item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": -0.5}, "beta: found -0.5, want >= 0"),
        ({"contrast": "ce"}, "found 'ce'; known: cross-entropy, binary"),
        ({"max_phrases": -1}, "max_phrases: found -1, want >= 0"),
        ({"pool_lr": math.inf}, "pool_lr: found inf, want above 0"),
    ],
)
def test_values_that_cannot_be(changes, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        BetaClip(**changes)
