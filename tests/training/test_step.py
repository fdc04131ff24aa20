"""Gradient caching gives the plain gradients, and a step the loss of the published way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from published_step import padded_batch, published_loss

from glit.models.tokenizer import TextTokenizer
from glit.training.batch import Batch, collate
from glit.training.config import TrainConfig
from glit.training.planning import plan_sample
from glit.training.setup import Ingredients, prepare
from glit.training.step import run_step


def ingredients(tiny_clip, dataset, **changes) -> Ingredients:
    values = {"model": str(tiny_clip), "batch_size": 8, "num_workers": 0, **changes}
    return prepare(TrainConfig(**values), str(dataset))


def gradients(made: Ingredients, parts: list[Batch], **options) -> dict[str, torch.Tensor]:
    made.model.zero_grad()
    torch.manual_seed(7)
    run_step(
        parts,
        model=made.model,
        objective=made.objective,
        accelerator=Accelerator(cpu=True),
        **options,
    )
    return {
        name: parameter.grad.clone()
        for name, parameter in made.model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize(
    "objective", ["fast-goal", "top3-weighted", "hard-negatives", "siglip", "finelip"]
)
def test_cached_gradients_are_the_plain_ones(tiny_clip, make_dataset, objective: str) -> None:
    def some_without_pairs(index: int, row) -> None:
        if index % 3 == 0:
            row["pairs"] = []

    dataset = make_dataset(8, change=some_without_pairs)
    plain = ingredients(tiny_clip, dataset, objective=objective)
    cached = ingredients(tiny_clip, dataset, objective=objective, micro_batch_size=3)
    whole, parts = next(plain.loader.epoch(0)), next(cached.loader.epoch(0))
    assert (len(whole), len(parts)) == (1, 3)
    wanted, found = gradients(plain, whole), gradients(plain, parts)
    assert set(found) == set(wanted) and len(wanted) > 60
    assert ("module.bias" in wanted) is (objective == "siglip")
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    learns_scale = objective not in ("siglip", "finelip")  # which have one of their own, or none
    assert (float(wanted["encoder.clip.logit_scale"]) != 0) is learns_scale


def test_dropout_falls_the_same_way_in_both_passes(tiny_clip, make_dataset) -> None:
    """With dropout the cached features must be those the second pass differentiates."""
    made = ingredients(tiny_clip, make_dataset(8), micro_batch_size=4)
    for module in made.model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.5
    made.model.train()
    parts = next(made.loader.epoch(0))
    seen: list[torch.Tensor] = []
    handle = made.model.register_forward_hook(
        lambda module, inputs, output: seen.append(output[0].image_ND.detach())
    )
    gradients(made, parts)
    handle.remove()
    assert len(seen) == 4
    assert torch.equal(seen[0], seen[2]) and torch.equal(seen[1], seen[3])
    assert not torch.equal(seen[0], seen[1])


def test_scaled_steps_add_up(tiny_clip, make_dataset) -> None:
    made = ingredients(tiny_clip, make_dataset(16))
    batches = list(made.loader.epoch(0))
    first, second = gradients(made, batches[0]), gradients(made, batches[1])
    made.model.zero_grad()
    for index, parts in enumerate(batches):
        run_step(
            parts,
            model=made.model,
            objective=made.objective,
            accelerator=Accelerator(cpu=True),
            scale=0.5,
            last=index == 1,
        )
    for name, parameter in made.model.named_parameters():
        mean = (first[name] + second[name]) / 2
        torch.testing.assert_close(parameter.grad, mean, rtol=1e-3, atol=1e-5)


def test_a_step_has_the_loss_of_the_published_way(tiny_clip, make_dataset) -> None:
    made = ingredients(tiny_clip, make_dataset(6), batch_size=6, objective="goal")
    loader = made.loader
    groups = map(loader.dataset.row_group, range(len(loader.dataset.places)))
    sizes = {"side": loader.side, "fit": loader.config.image_fit}
    samples = [
        plan_sample(group, row, loader.objective, **sizes, draw=np.random.default_rng(0))
        for group in groups
        for row in range(len(group))
    ]
    batch, places = collate(
        samples, loader.tokenize, made.objective.needs, side=loader.side, pad_id=loader.pad_id,
        context=loader.config.context,
    )  # fmt: skip
    for sample, place in zip(samples, places, strict=True):
        image = sample.encoded(crops=True)
        image.write_pixels(place.whole, place.crops, fit=loader.config.image_fit)
    encoder, tokenizer = made.model.encoder, TextTokenizer(made.start)
    scales = {"mean": encoder.mean_3, "std": encoder.std_3}
    theirs = published_loss(
        encoder.clip, padded_batch(batch, samples, tokenizer, **scales), tokenizer
    )
    ours = run_step(
        [batch], model=made.model, objective=made.objective, accelerator=Accelerator(cpu=True)
    )
    assert float(ours["loss"]) == pytest.approx(float(theirs.detach()), abs=1e-4)
