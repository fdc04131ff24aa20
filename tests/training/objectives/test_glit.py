"""The objective ``glit``, worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from loading import loader
from made_features import at, changed, random_features

from glit.errors import RecipeError
from glit.training.losses import sigmoid_loss
from glit.training.objectives import glit
from glit.training.objectives.glit import Glit, dense_loss


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


WHOLE = (2 * softplus(1.5 - 2.5) + 2 * softplus(-1.5)) / 2
"""Images and captions at 0 and 90 degrees, scale 2.5, bias -1.5: logits 1 and -1.5."""
SENTENCES = (2 * softplus(0.75 - 2) + 2 * softplus(-0.75)) / 2
"""Patches and sentences at 0 and 90 degrees, scale 2, bias -0.75: logits 1.25 and -0.75."""
TOKENS = (2 * softplus(0.75) + 2 * softplus(2 - 0.75)) / 2
"""Patches at 0 and 90, tokens at 90 and 0 degrees: the own logit is -0.75, the other's 1.25."""


def two(**changes):
    f = replace(
        random_features(2, 1),
        image_ND=at(0, 90),
        text_ND=at(0, 90),
        pooled_patch_NKD=at(0, 90)[:, None],
        local_text_NKD=at(0, 90)[:, None],
        pooled_token_NKD=at(90, 0)[:, None],
        further_text_NSD=at(90, 0)[:, None],
        valid_further_NS=torch.zeros(2, 1, dtype=torch.bool),
        further_key_NS2=torch.arange(4.0).view(2, 1, 2),
        local_image_NKD=torch.full((2, 1, 5), math.nan),  # no crop is looked at
    )
    return replace(f, **changes)


@pytest.mark.parametrize(
    ("objective", "wanted"),
    [
        (Glit(), WHOLE + 0.5 * (SENTENCES + TOKENS) / 2),
        (Glit(lambda_dense=2), WHOLE + 2 * (SENTENCES + TOKENS) / 2),
        (Glit(encode_sentences=False), WHOLE + 0.5 * TOKENS),
        (Glit(pool_tokens=False), WHOLE + 0.5 * SENTENCES),
        (Glit(lambda_dense=0), WHOLE),
    ],
    ids=repr,
)
def test_two_samples_by_hand(objective, wanted: float) -> None:
    loss, shown = objective(two(), torch.tensor(3.0))
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    assert shown.get("loss_tokens", torch.tensor(TOKENS)).item() == pytest.approx(TOKENS, rel=1e-6)
    assert ("loss_tokens" in shown) == objective.pool_tokens
    assert ("loss_sentences" in shown) == objective.encode_sentences


def test_short_captions_by_hand_and_images_without_one() -> None:
    """Images at 0 and 90, short captions at 90 and 0 degrees: the own logit is -1.5, the other's 1;
    without the second caption only the first own one is left."""
    without, _ = Glit()(two(), torch.tensor(3.0))
    for valid, short in (([1, 1], softplus(1.5) + softplus(1)), ([1, 0], softplus(1.5))):
        f = two(valid_further_NS=torch.tensor(valid, dtype=torch.bool)[:, None])
        loss, shown = Glit(lambda_short=0.25)(f, torch.tensor(3.0))
        assert shown["loss_short"].item() == pytest.approx(short, rel=1e-6)
        assert loss.item() == pytest.approx(without.item() + 0.25 * short, rel=1e-6)
    assert "loss_short" not in Glit(lambda_short=0)(f, torch.tensor(3.0))[1]


def test_equal_sentences_are_no_negatives() -> None:
    """Both images show a red ring: only the pairs themselves are left."""
    same = two(local_key_NK2=torch.ones(2, 1, 2))
    _, shown = Glit()(same, torch.tensor(3.0))
    assert shown["loss_sentences"].item() == pytest.approx(softplus(0.75 - 2), rel=1e-6)


def test_equal_captions_are_no_negatives_and_equal_short_ones_neither() -> None:
    """The own logit is 1 for captions, and -1.5 for short captions; no negative is left."""
    there = torch.ones(2, 1, dtype=torch.bool)
    same = two(caption_key_N2=torch.ones(2, 2), valid_further_NS=there)
    _, shown = Glit()(same, torch.tensor(3.0))
    assert shown["loss_whole"].item() == pytest.approx(softplus(-1), rel=1e-6)
    assert shown["loss_short"].item() == pytest.approx(softplus(1.5) + softplus(1), rel=1e-6)
    short = two(further_key_NS2=torch.ones(2, 1, 2), valid_further_NS=there)
    _, shown = Glit()(short, torch.tensor(3.0))
    assert shown["loss_whole"].item() == pytest.approx(WHOLE, rel=1e-6)
    assert shown["loss_short"].item() == pytest.approx(softplus(1.5), rel=1e-6)


def test_a_probability_is_a_soft_target() -> None:
    """Logit 1.25 at target 0.25: -0.25 log s(1.25) - 0.75 log s(-1.25); negatives stay."""
    weights = torch.tensor([[0.25], [1.0]])
    _, shown = Glit()(two(weight_NK=weights), torch.tensor(3.0))
    own = 0.25 * softplus(-1.25) + 0.75 * softplus(1.25) + softplus(-1.25)
    assert shown["loss_sentences"].item() == pytest.approx(
        (own + 2 * softplus(-0.75)) / 2, rel=1e-6
    )


@pytest.mark.parametrize("missing", ["valid_N", "valid_patch_NK", "valid_local_NK"])
def test_what_is_not_there_counts_for_nothing(missing: str) -> None:
    """Neither as a pair nor as a negative; one pair of a logit of 1.25 is left."""
    there = torch.tensor([True, False])
    f = two(**{missing: there if missing == "valid_N" else there[:, None]})
    f.pooled_patch_NKD[1] = 7.0
    _, shown = Glit()(f, torch.tensor(3.0))
    assert shown["loss_sentences"].item() == pytest.approx(softplus(-1.25), rel=1e-6)


def test_no_pair_at_all_is_zero_with_gradients() -> None:
    f = two(valid_patch_NK=torch.zeros(2, 1, dtype=torch.bool))
    f.pooled_patch_NKD.requires_grad_()
    loss, shown = Glit()(f, torch.tensor(3.0))
    loss.backward()
    assert shown["loss_sentences"].item() == shown["loss_tokens"].item() == 0
    assert f.pooled_patch_NKD.grad is not None and not f.pooled_patch_NKD.grad.any()


def test_false_sentences_by_hand() -> None:
    """Sentences at 0 and 90 degrees like patches and images, false ones at 90 and 180 from them;
    scale 3: of the first ln(1 + e^-3 + e^-6), the second has one false sentence."""
    f = two(
        negative_text_NKJD=at(90, 180, 180, 0).view(2, 1, 2, 5),
        valid_negative_NKJ=torch.tensor([[[True, True]], [[True, False]]]),
    )
    error = (math.log(1 + math.exp(-3) + math.exp(-6)) + math.log(1 + math.exp(-3))) / 2
    plain, _ = Glit()(f, torch.tensor(3.0))
    loss, shown = Glit(negative_weight=2)(f, torch.tensor(3.0))
    for name in ("loss_false_of_region", "loss_false_of_image"):
        assert shown[name].item() == pytest.approx(error, rel=1e-5)
    assert loss.item() == pytest.approx(plain.item() + 2 * 2 * error, rel=1e-6)
    turned = replace(f, pooled_patch_NKD=at(90, 0)[:, None], valid_patch_NK=f.valid_N[:, None])
    _, other = Glit(negative_weight=2)(turned, torch.tensor(3.0))
    assert other["loss_false_of_image"].item() == pytest.approx(error, rel=1e-5)
    assert other["loss_false_of_region"].item() > error + 1


def test_only_the_first_regions_are_in_the_dense_term() -> None:
    """Further pairs are there for their false sentences alone."""
    f = random_features(4, 3)
    _, few = Glit(num_regions=1, negative_weight=1)(f, torch.tensor(3.0))
    _, one = Glit(num_regions=1)(
        changed(f, lambda t: t[:, :1] if t.dim() > 1 and t.shape[1] == 3 else t), torch.tensor(3.0)
    )
    assert few["loss_sentences"].item() == pytest.approx(one["loss_sentences"].item(), rel=1e-6)
    assert few["loss_tokens"].item() == pytest.approx(one["loss_tokens"].item(), rel=1e-6)
    needs = Glit(negative_weight=1, negative_pairs=5, encode_sentences=False).needs
    assert (needs.num_local, needs.num_negatives, needs.sentences) == (5, 3, True)
    assert Glit(negative_pairs=5).needs == Glit().needs


def test_only_the_first_pairs_are_held_against_false_sentences() -> None:
    f = random_features(4, 3)
    _, few = Glit(negative_pairs=1, negative_weight=1)(f, torch.tensor(3.0))
    first = changed(f, lambda t: t[:, :1] if t.dim() > 1 and t.shape[1] == 3 else t)
    first = replace(first, negative_text_NKJD=f.negative_text_NKJD[:, :1],
                    valid_negative_NKJ=f.valid_negative_NKJ[:, :1])  # fmt: skip
    _, one = Glit(negative_weight=1)(first, torch.tensor(3.0))
    for name in ("loss_false_of_region", "loss_false_of_image"):
        assert few[name].item() == pytest.approx(one[name].item(), rel=1e-6)


def test_regions_that_are_no_negatives_of_each_other_are_told_apart() -> None:
    """Two sentences of one region would be each other's negatives."""
    assert Glit(num_regions=2, negative_weight=1).needs.distinct_regions
    assert not Glit(num_regions=1, negative_weight=1).needs.distinct_regions


def test_gradients_of_the_term_of_false_sentences() -> None:
    f = random_features(3, 2, dtype=torch.float64)
    names = ["image_ND", "pooled_patch_NKD", "local_text_NKD", "negative_text_NKJD"]

    def loss(scale: torch.Tensor, *rows: torch.Tensor) -> torch.Tensor:
        made = f.with_rows(dict(zip(names, rows, strict=True)))
        return Glit(negative_weight=0.5, lambda_dense=0)(made, scale)[0]

    leaves = [f.embeddings()[name].requires_grad_() for name in names]
    assert torch.autograd.gradcheck(loss, (torch.tensor(2.0).double().requires_grad_(), *leaves))


def arguments(num: int, *, seed: int = 0) -> list[torch.Tensor]:
    f = random_features(num, 1, seed=seed, dtype=torch.float64)
    key_M2 = torch.arange(num).remainder(5)[:, None].expand(-1, 2).double()
    scale, bias = torch.tensor(4.0).double(), torch.tensor(-2.0).double()
    return [
        f.pooled_patch_NKD[:, 0], f.local_text_NKD[:, 0], f.similarity_NK[:, 0], key_M2,
        torch.arange(num) % 4 != 1, scale, bias,
    ]  # fmt: skip


def test_blocks_are_the_whole(monkeypatch) -> None:
    """Value and gradients, with a last block that is shorter."""

    def measured() -> list[torch.Tensor]:
        inputs = arguments(11)
        learned = [inputs[i].requires_grad_() for i in (0, 1, 5, 6)]
        loss = dense_loss(*inputs)
        return [loss, *torch.autograd.grad(loss, learned)]

    whole = measured()
    monkeypatch.setattr(glit, "_BLOCK", 4)
    for a, b in zip(whole, measured(), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients() -> None:
    inputs = arguments(5)
    for index in (0, 1, 5, 6):
        inputs[index].requires_grad_()
    assert torch.autograd.gradcheck(dense_loss, inputs)


def test_without_the_dense_term_it_is_siglip() -> None:
    f = random_features(6, 2)
    loss, _ = Glit(lambda_dense=0, lambda_short=0)(f, torch.tensor(3.0))
    numbers = f.numbers["whole_scale"], f.numbers["whole_bias"]
    torch.testing.assert_close(loss, sigmoid_loss(f.image_ND, f.text_ND, *numbers, f.valid_N))


@pytest.mark.parametrize("encode_sentences", [True, False])
def test_no_crop_is_decoded_and_no_sentence_unasked(
    make_dataset, tokenizer, encode_sentences: bool
) -> None:
    objective = Glit(num_regions=2, encode_sentences=encode_sentences)
    [[batch]] = list(loader(make_dataset(6), tokenizer, objective, batch_size=6).epoch(0))
    assert len(batch.pixels_V3SS) == batch.num_global == 6
    pairs = len(batch.slot_M)
    assert pairs > 6
    assert len(batch.texts.length_T) == 6 + (pairs if encode_sentences else 0)
    keys = batch.local_key_NK2.flatten(0, 1)[batch.slot_M]
    assert (keys > 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"lambda_dense": -1.0},
        {"lambda_short": -1.0},
        {"num_regions": 0},
        {"sigmoid_lr": math.nan},
        {"negative_weight": -1.0},
        {"num_negatives": 0},
        {"encode_sentences": False, "pool_tokens": False},
    ],
)
def test_values_that_cannot_be(changes: dict) -> None:
    with pytest.raises(RecipeError, match=rf"train\W+{next(iter(changes))}\W"):
        Glit(**changes)
