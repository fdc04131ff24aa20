"""Every objective: order of samples, fillers, missing pairs, gradients, and cases worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from made_features import DISTINCT, SCALE, at, changed, objective_of, random_features

from glit.errors import RecipeError
from glit.pipeline.planning.recipe import load_table
from glit.training.config import TrainConfig
from glit.training.objectives.finelip import FineLip
from glit.training.objectives.goal import FastGoal
from glit.training.objectives.hard_negatives import HardNegatives
from glit.training.objectives.long_clip import LongClip
from glit.training.objectives.siglip import Siglip


def slots_of(name: str) -> int:
    return max(1, objective_of(name).needs.num_local)


def test_the_configuration_makes_what_it_names() -> None:
    assert TrainConfig(objective="goal").make_objective() == FastGoal()
    weighed = FastGoal(lambda_local=0.2)
    assert TrainConfig(objective="fast-goal", options=weighed).make_objective() is weighed
    with pytest.raises(RecipeError, match="'clpi': wanted one of clip, local"):
        TrainConfig(objective="clpi").make_objective()
    with pytest.raises(RecipeError, match="its options are those of FastGoal"):
        TrainConfig(objective="clip", options=weighed).make_objective()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (FastGoal, {"lambda_tsl": float("nan")}, "lambda_tsl: found nan, want >= 0"),
        (FastGoal, {"lambda_local": -1.0}, "lambda_local: found -1.0"),
        (LongClip, {"num_components": 0}, "num_components: found 0, want >= 1"),
        (LongClip, {"label_smoothing": 1.0}, "label_smoothing: found 1.0, want >= 0, below 1"),
        (HardNegatives, {"max_local": 1}, "max_local: found 1, want >= 2"),
        (Siglip, {"siglip_lr": 0.0}, "siglip_lr: found 0.0, want above 0"),
        (FineLip, {"margin": math.nan}, "margin: found nan, want above 0"),
        (FineLip, {"aggregation_ratio": 0}, "aggregation_ratio: found 0, want above 0, at most 1"),
        (FineLip, {"negatives": "most"}, "found 'most'; known: hardest, sum"),
        (FineLip, {"refine": "all"}, "found 'all'; known: both, image, text, none"),
    ],
)
def test_values_that_cannot_be(kind, changes, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        kind(**changes)


def test_a_key_of_another_objective_is_ignored_aloud_and_an_unknown_one_is_refused() -> None:
    with pytest.warns(UserWarning, match=r"\[train\] lambda_tsl: ignored, objective = 'clip'"):
        load_table(TrainConfig, "clip", overrides=["train.lambda_tsl=2.0"])
    with pytest.raises(RecipeError, match="unknown key 'lambda_tls'; did you mean 'lambda_tsl'"):
        load_table(TrainConfig, "fast-goal", overrides=["train.lambda_tls=2.0"])
    found = load_table(TrainConfig, "fast-goal", overrides=["train.lambda_tsl=2"])
    assert found.make_objective() == FastGoal(lambda_tsl=2.0)


def test_top_3_of_one_pair_is_fast_goal() -> None:
    one = random_features(3, 1)
    top, _ = objective_of("top3-uniform")(one, SCALE)
    goal, _ = objective_of("fast-goal")(one, SCALE)
    assert top.item() == pytest.approx(goal.item(), rel=1e-6)


def test_siglip_of_a_scale_and_a_bias() -> None:
    """Scale 2 and bias -1 on two orthogonal pairs: logits 1 for the right, -1 for the wrong."""
    f = replace(random_features(2, 0), image_ND=at(0, 90), text_ND=at(0, 90))
    loss, metrics = objective_of("siglip")(f, SCALE)
    assert loss.item() == pytest.approx(4 * math.log(1 + math.exp(-1)) / 2)
    assert metrics["siglip_scale"].item() == 2 and metrics["siglip_bias"].item() == -1


def test_long_clip_with_every_component_is_two_smoothed_losses() -> None:
    f = random_features(4, 0)
    loss, metrics = objective_of("long-clip")(f, SCALE)
    target = torch.arange(4)
    for key, text in (("loss_long", f.text_ND), ("loss_short", f.further_text_NSD[:, 0])):
        scores = SCALE * f.image_ND @ text.T
        both = [F.cross_entropy(s, target, label_smoothing=0.1) for s in (scores, scores.T)]
        assert metrics[key].item() == pytest.approx(sum(both).item() / 2, rel=1e-5)
    assert loss.item() == pytest.approx((metrics["loss_long"] + metrics["loss_short"]).item())


def test_long_clip_s_short_caption_meets_a_coarser_image() -> None:
    f = random_features(6, 0)
    _, fine = LongClip()(f, SCALE)
    _, coarse = LongClip(num_components=2)(f, SCALE)
    assert coarse["loss_long"].item() == fine["loss_long"].item()
    assert coarse["loss_short"].item() != pytest.approx(fine["loss_short"].item())
    picked = LongClip().texts("A dog. It barks.", [(0, 6), (7, 16)], None)
    assert picked == ["A dog."]


def test_hard_negatives_without_any_pair_is_zero() -> None:
    f = random_features(2, 4)
    empty = replace(f, valid_local_NK=torch.zeros(2, 4, dtype=torch.bool))
    loss, _ = objective_of("hard-negatives")(empty, SCALE)
    assert loss.item() == 0


@pytest.mark.parametrize("name", DISTINCT)
def test_the_order_of_samples_does_not_matter(name: str) -> None:
    f = random_features(5, slots_of(name))
    order = torch.tensor([3, 1, 4, 0, 2])
    loss, _ = objective_of(name)(f, SCALE)
    shuffled, _ = objective_of(name)(changed(f, lambda t: t[order]), SCALE)
    assert shuffled.item() == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("name", DISTINCT)
def test_fillers_count_for_nothing(name: str) -> None:
    f = random_features(5, slots_of(name))
    loss, _ = objective_of(name)(changed(f, lambda t: t[:3]), SCALE)
    masked = replace(f, valid_N=torch.tensor([True, True, True, False, False]))
    with_fillers, _ = objective_of(name)(masked, SCALE)
    assert with_fillers.item() == pytest.approx(loss.item(), rel=1e-5)


def test_a_sample_without_a_pair_still_counts_globally() -> None:
    f = random_features(3, 1)
    has_pair = torch.tensor([[True], [False], [True]])
    loss, metrics = objective_of("fast-goal")(replace(f, valid_local_NK=has_pair), SCALE)
    whole, _ = objective_of("clip")(f, SCALE)
    others = changed(f, lambda t: t[[0, 2]])
    rest, of_others = objective_of("fast-goal")(others, SCALE)
    assert metrics["loss_global"].item() == pytest.approx(whole.item(), rel=1e-6)
    for name in ("loss_local", "loss_tsl_patch", "loss_tsl_token"):
        assert metrics[name].item() == pytest.approx(of_others[name].item(), rel=1e-5)
    assert loss.item() != pytest.approx(rest.item())


def test_a_span_outside_the_window_leaves_the_text_term_only() -> None:
    f = random_features(3, 1)
    in_window = torch.tensor([[True], [True], [False]])
    _, metrics = objective_of("fast-goal")(replace(f, valid_token_NK=in_window), SCALE)
    _, all_of_it = objective_of("fast-goal")(f, SCALE)
    _, first_two = objective_of("fast-goal")(changed(f, lambda t: t[:2]), SCALE)
    assert metrics["loss_tsl_patch"].item() == all_of_it["loss_tsl_patch"].item()
    assert metrics["loss_tsl_token"].item() == pytest.approx(first_two["loss_tsl_token"].item())


@pytest.mark.parametrize("name", DISTINCT)
def test_gradients(name: str) -> None:
    f = random_features(3, slots_of(name), dtype=torch.float64)
    embeddings = f.embeddings()
    leaves = [value.requires_grad_() for value in (*embeddings.values(), *f.numbers.values())]
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def loss(*inputs: torch.Tensor) -> torch.Tensor:
        made = f.with_rows(dict(zip(embeddings, inputs, strict=False)))
        numbers = dict(zip(f.numbers, inputs[len(embeddings) :], strict=False))
        return objective_of(name)(replace(made, numbers=numbers), inputs[-1])[0]

    assert torch.autograd.gradcheck(loss, (*leaves, scale), fast_mode=True)


TARGETS = ("glit",)
"""Weights are the pairs' targets there."""
LOCAL = [name for name in DISTINCT if objective_of(name).needs.num_local and name not in TARGETS]


@pytest.mark.parametrize("name", LOCAL)
def test_only_the_proportion_of_weights_matters_and_a_weight_of_nothing_adds_no_error(name):
    objective, features = objective_of(name), random_features(6, slots_of(name))
    scale = torch.tensor(3.0)
    plain, _ = objective(features, scale)
    doubled, _ = objective(replace(features, weight_NK=2 * features.weight_NK), scale)
    torch.testing.assert_close(plain, doubled)
    weights = torch.rand(features.weight_NK.shape, generator=torch.Generator().manual_seed(5))
    weighted, _ = objective(replace(features, weight_NK=weights), scale)
    assert not torch.isclose(plain, weighted)
    nothing, _ = objective(replace(features, weight_NK=torch.zeros_like(weights)), scale)
    assert torch.isfinite(nothing)
