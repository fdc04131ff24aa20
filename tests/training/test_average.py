"""The average of the weights: its numbers, and runs whose checkpoints hold it."""

from __future__ import annotations

import pytest
import torch
from evaluating import ran
from safetensors.torch import load_file
from torch import nn

from glit.errors import InputError
from glit.training.average import RAW, Average
from glit.training.config import TrainConfig


def test_two_steps_by_hand() -> None:
    model = nn.Linear(1, 1)
    model.bias.requires_grad_(False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = Average(model, 0.75)
    for weight in (3.0, 5.0):
        with torch.no_grad():
            model.weight.fill_(weight)
        average.update()
    with average.in_place() as raw:  # 1 -> 1.5 -> 2.375
        assert model.weight.item() == pytest.approx(2.375)
        assert {name: value.item() for name, value in raw.items()} == {"weight": 5.0}
    assert model.weight.item() == 5.0


def test_a_resumed_run_has_the_average_of_the_whole_run(tiny_clip, make_dataset, tmp_path) -> None:
    learned = str(make_dataset(16, name="learned"))
    kept = str(make_dataset(9, name="kept", seed=1))
    values = {
        "model": str(tiny_clip), "objective": "siglip", "batch_size": 8, "epochs": 2, "lr": 1e-3,
        "num_workers": 0, "log_every": 1, "trackers": (), "checkpoint_every": 1,
    }  # fmt: skip
    lines: dict[str, list[dict]] = {}

    def run(name: str, most: int = 0, **changes) -> None:
        config = TrainConfig(**{**values, "validation": kept, **changes})
        lines.setdefault(name, []).extend(ran(config, learned, tmp_path / name, most=most))

    run("plain")
    run("whole", ema_decay=0.5)
    run("parted", most=2, ema_decay=0.5)
    run("parted", ema_decay=0.5)
    for name in ("model.safetensors", "objective/model.safetensors", RAW, "trainer/optimizer.pt"):
        found, wanted = (tmp_path / run / "last" / name for run in ("parted", "whole"))
        assert found.read_bytes() == wanted.read_bytes(), name
    assert lines["parted"] == lines["whole"]

    def losses(name):
        return [line["loss"] for line in lines[name] if "loss" in line]

    assert losses("whole") == losses("plain")  # it learns with its own weights
    plain = load_file(tmp_path / "plain" / "last" / "model.safetensors")
    raw = load_file(tmp_path / "whole" / "last" / RAW)
    mean = load_file(tmp_path / "whole" / "last" / "model.safetensors")
    name = "visual_projection.weight"
    assert torch.equal(raw[f"encoder.clip.{name}"], plain[name])
    assert not torch.equal(mean[name], plain[name])
    assert not (tmp_path / "plain" / "last" / RAW).exists()

    (tmp_path / "whole" / "last" / RAW).unlink()
    with pytest.raises(InputError, match="weights beside the average cannot be used"):
        run("whole", ema_decay=0.5, epochs=3)
