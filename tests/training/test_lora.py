"""Adapters in the place of weights: what learns, what a checkpoint holds, and going on from it."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from evaluating import ran
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import CLIPModel

from glit.errors import InputError, MissingExtraError, RecipeError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.models.clip.kinds import open_model
from glit.models.clip.text_window import stretch_model
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.lora import add_adapters, merged
from glit.training.optim import make_optimizer
from glit.training.setup import prepare
from glit.training.step import run_step

RANK = 2
ADAPTED = {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}


def config(tiny_clip, **changes) -> TrainConfig:
    values = {
        "model": str(tiny_clip), "objective": "siglip", "batch_size": 8, "epochs": 2, "lr": 1e-2,
        "num_workers": 0, "log_every": 1, "trackers": (), "checkpoint_every": 1,
        "lora_rank": RANK,
    }  # fmt: skip
    return TrainConfig(**{**values, **changes})


def test_a_run_resumed_is_the_whole_run_and_its_model_needs_no_peft(
    tiny_clip, make_dataset, tmp_path
) -> None:
    learned = str(make_dataset(16, name="learned"))
    kept = str(make_dataset(9, name="kept", seed=1))
    start = tmp_path / "start"
    shutil.copytree(tiny_clip, start)
    settings = config(start, validation=kept, ema_decay=0.5)
    whole = ran(settings, learned, tmp_path / "whole")
    parted = ran(settings, learned, tmp_path / "parted", most=2)
    parted += ran(settings, learned, tmp_path / "parted")
    assert parted == whole
    for name in ("model.safetensors", "adapter/adapter_model.safetensors",
                 "adapter/adapter_config.json", "objective/model.safetensors",
                 "trainer/weights.safetensors", "trainer/optimizer.pt"):  # fmt: skip
        found, wanted = (tmp_path / run / "last" / name for run in ("parted", "whole"))
        assert found.read_bytes() == wanted.read_bytes(), name

    before = open_model(start)
    stretch_model(before, 248)
    start_weights = before.state_dict()
    after = load_file(tmp_path / "whole" / "last" / "model.safetensors")
    moved = {name for name, value in after.items() if not torch.equal(value, start_weights[name])}
    layers = {n for n in after if n.endswith(".weight") and n.split(".")[-2] in ADAPTED}
    assert moved == layers  # siglip's scale is its own
    for name in layers:
        change = (after[name] - start_weights[name]).double()
        singular = torch.linalg.svdvals(change)
        assert singular[0] > 1e-4 and singular[RANK] < 1e-4 * singular[0], name

    plain = CLIPModel.from_pretrained(tmp_path / "whole" / "last")
    adapted = PeftModel.from_pretrained(before, tmp_path / "whole" / "last" / "adapter")
    inputs = {"input_ids": torch.arange(20).view(2, 10), "pixel_values": torch.randn(2, 3, 32, 32)}
    with torch.no_grad():
        wanted, found = adapted(**inputs), plain(**inputs)
    torch.testing.assert_close(found.image_embeds, wanted.image_embeds)
    torch.testing.assert_close(found.text_embeds, wanted.text_embeds)

    measured = [line for line in whole if line["step"] and "validation_score" in line]
    best = max(measured, key=lambda line: line["validation_score"])
    found = evaluate(
        "retrieval", [str(tmp_path / "whole")], kept,
        EvaluateConfig(recall_at=(1, 5, 10), num_workers=0),
    )[0].metrics  # fmt: skip
    assert found == {name: best[f"validation_{name}"] for name in found}

    weights = load_file(start / "model.safetensors")
    weights["visual_projection.weight"] += 1
    save_file(weights, start / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="holds other files than when .*adapters belong to those"):
        ran(settings, learned, tmp_path / "parted")


def test_adapters_alone_learn_and_merging_changes_no_answer(tiny_clip, make_dataset) -> None:
    from accelerate import Accelerator

    settings = config(tiny_clip, objective="fast-goal", image_lr=1e-3, lora_alpha=3.0)
    made = prepare(settings, str(make_dataset(8)))
    model, clip = made.model, made.model.encoder.clip
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, made.objective, settings, fused=False)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    accelerator = Accelerator(cpu=True)
    parts = next(made.loader.epoch(0))
    for _ in range(2):
        run_step(parts, model=model, objective=made.objective, accelerator=accelerator)
        optimizer.step()
        optimizer.zero_grad()
    learned = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    adapters = {name for name in before if ".lora_" in name}
    assert learned == adapters | {"encoder.clip.logit_scale"}
    assert {n.split(".")[-4] for n in adapters} == ADAPTED
    for name, p in model.named_parameters():
        if name in learned:
            assert rates[id(p)] == (1e-3 if "vision_model" in name else 1e-2), name
    clip.eval()
    plain = merged(clip)
    inputs = {"input_ids": torch.arange(20).view(2, 10), "pixel_values": torch.randn(2, 3, 32, 32)}
    with torch.no_grad():
        torch.testing.assert_close(
            plain(**inputs).logits_per_image, clip(**inputs).logits_per_image
        )
    layer = clip.vision_model.encoder.layers[0].mlp.fc1
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.testing.assert_close(
        plain.vision_model.encoder.layers[0].mlp.fc1.weight,
        before["encoder.clip.vision_model.encoder.layers.0.mlp.fc1.base_layer.weight"]
        + 3.0 / RANK * b @ a,
    )


def test_the_run_says_how_many_parameters_it_learns(tiny_clip, make_dataset, tmp_path) -> None:
    """Towers of two blocks, 32 wide inside and 64 in the MLP: see glit.models.clip.random_clip.TINY."""
    settings = config(tiny_clip, objective="clip", lock_image=True, unlocked_blocks=1, max_steps=1)
    train(settings, str(make_dataset(8)), tmp_path / "run")
    found = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    clip = open_model(tiny_clip)
    blocks = [*clip.text_model.encoder.layers, clip.vision_model.encoder.layers[-1]]
    layers = [m for block in blocks for m in block.modules() if isinstance(m, torch.nn.Linear)]
    assert found["trained"] == 1 + sum(RANK * (m.in_features + m.out_features) for m in layers)
    assert found["trained"] < found["all"] / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "f-cast"}, "lora_rank: train.objective = 'f-cast' has encoders of its own"),
        ({"lora_rank": 0, "lora_alpha": 4.0}, "there are no adapters; set train.lora_rank"),
        ({"lock_image": True, "lock_text": True}, "leave no block to adapt"),
        ({"lora_rank": -1}, "lora_rank: found -1, want >= 0"),
    ],
)
def test_what_cannot_be(tiny_clip, make_dataset, tmp_path, changes, message) -> None:
    with pytest.raises(RecipeError, match=message):
        train(config(tiny_clip, **changes), str(make_dataset(8)), tmp_path / "run")


def test_without_peft_the_extra_is_named(tiny_clip, hide) -> None:
    hide("peft")
    with pytest.raises(MissingExtraError, match=r"lora_rank = 2 needs .*\[lora\]'"):
        add_adapters(open_model(tiny_clip), config(tiny_clip))


def test_damaged_adapters(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, run = str(make_dataset(8)), tmp_path / "run"
    train(config(tiny_clip, objective="clip", max_steps=1), dataset, run)
    path = run / "last" / "adapter" / "adapter_model.safetensors"
    weights = load_file(path)
    one_less = dict(list(weights.items())[1:])
    save_file(one_less, path, metadata={"format": "pt"})
    damages = [lambda: None, lambda: path.write_bytes(path.read_bytes()[:-8]), path.unlink]
    for damage in damages:
        damage()
        with pytest.raises(InputError, match="these adapters cannot be used"):
            train(config(tiny_clip, objective="clip", max_steps=2), dataset, run, resume=True)
