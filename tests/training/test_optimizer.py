"""Which parameters learn, and at which rate."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from glit.errors import RecipeError
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.image_processor import CLIP_MEAN, CLIP_STD
from glit.models.clip.kinds import open_model
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.model import TrainedModel
from glit.training.objectives import OBJECTIVES
from glit.training.optim import lock_towers, make_optimizer


def made(tiny_clip, objective="siglip", **changes):
    """A model's parameters by name, and the optimiser's groups by a parameter of theirs."""
    config = TrainConfig(objective=objective, lr=1e-4, **changes)
    clip = open_model(tiny_clip)
    lock_towers(clip, config)
    encoder = ClipEncoder(clip, mean=CLIP_MEAN, std=CLIP_STD)
    chosen = OBJECTIVES[objective]()
    model = TrainedModel(encoder, chosen, chosen.module(encoder))
    optimizer = make_optimizer(model, chosen, config, fused=False)
    group_of = {p: group for group in optimizer.param_groups for p in group["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(group_of)
    return {
        name.removeprefix("encoder.clip."): group_of.get(p) for name, p in model.named_parameters()
    }


def test_every_part_at_its_own_rate(tiny_clip) -> None:
    groups = made(tiny_clip, image_lr=1e-6, text_lr=1e-5, beta1=0.8, beta2=0.98, eps=1e-6)
    rates = {name: group["lr"] for name, group in groups.items()}
    starts = {"vision_model": 1e-6, "visual_projection": 1e-6, "text_model": 1e-5,
              "text_projection": 1e-5, "logit_scale": 1e-4, "module": 1e-3}  # fmt: skip
    assert rates == {name: starts[name.split(".")[0]] for name in rates}
    decays = {name: group["weight_decay"] for name, group in groups.items()}
    assert decays["visual_projection.weight"] == 0.05
    assert decays["vision_model.post_layernorm.bias"] == decays["logit_scale"] == 0.0
    assert all((g["betas"], g["eps"]) == ((0.8, 0.98), 1e-6) for g in groups.values())


def test_a_locked_tower_and_its_last_block(tiny_clip) -> None:
    groups = made(tiny_clip, objective="clip", lock_image=True, unlocked_blocks=1)
    learned = {name for name, group in groups.items() if group is not None}
    image = {name for name in groups if name.startswith(("vision_", "visual_"))}
    last = max(name.split(".")[3] for name in image if ".layers." in name)
    starts = (f"vision_model.encoder.layers.{last}.", "vision_model.post_", "visual_projection")
    assert {name for name in image if name.startswith(starts)} == learned & image != set()
    assert learned >= set(groups) - image
    with pytest.raises(RecipeError, match=r"unlocked_blocks = 99: the text tower has \d+"):
        made(tiny_clip, lock_text=True, unlocked_blocks=99)


def test_a_locked_tower_does_not_move(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, run = str(make_dataset(8)), tmp_path / "run"
    values = {"model": str(tiny_clip), "batch_size": 8, "epochs": 1, "num_workers": 0,
              "trackers": (), "lr": 1e-3, "micro_batch_size": 4}  # fmt: skip
    train(TrainConfig(**values, objective="fast-goal", lock_image=True), dataset, run)
    before, after = (load_file(f / "model.safetensors") for f in (tiny_clip, run / "last"))
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert {name.split("_")[0] for name in moved} == {"text", "logit"}
    for changes, message in (
        ({"objective": "clip", "lock_image": True, "lock_text": True}, "nothing to train but the"),
        ({"objective": "f-cast", "lock_text": True}, "has encoders of its own"),
    ):
        with pytest.raises(RecipeError, match=message):
            train(TrainConfig(**values, **changes), dataset, tmp_path / "other")
