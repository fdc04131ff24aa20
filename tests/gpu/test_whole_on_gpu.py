"""Whole builds and trainings on a GPU, beside those of the CPU; skipped where there is none."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from building import run_build

from glit.data.geometry import iou
from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.models import device as devices
from glit.models.weights import resolve
from glit.training import loop
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.objectives import OBJECTIVES

GPU = os.environ.get("GLIT_TEST_DEVICE", "cuda")
pytestmark = pytest.mark.skipif(
    GPU == "cuda" and not torch.cuda.is_available(), reason="no GPU here"
)


def built_on(device, scenes, output, recipe, precision):
    stages = ["caption", "propose", "score"] + (["ground"] if "grounded" in recipe else [])
    changes = [
        f"{stage}.{key}={value}"
        for stage in stages
        for key, value in (("device", device), ("precision", precision))
    ]
    run_build(scenes / "images", output, recipe=recipe, overrides=changes)
    assert list(verify(str(output))) == []
    return Dataset(str(output))


def likeness(there: Dataset, here: Dataset) -> dict[str, float]:
    """Shares of what is the same: captions, regions (IoU of .95), paired sentences (IoU of .9)."""
    assert len(there) == len(here)
    captions, regions, pairs = [], [], []
    for a, b in zip(there.rows(images=False), here.rows(images=False), strict=True):
        assert a.sample_id == b.sample_id
        captions.append(a.caption.text == b.caption.text)
        boxes = [np.array([r.box.xyxy for r in each.regions]).reshape(-1, 4) for each in (a, b)]
        regions += list(iou(*boxes).max(axis=1, initial=0) >= 0.95)
        chosen = [
            {
                (p.sentence, each.sentences[p.sentence].text): each.regions[p.region].box.xyxy
                for p in each.pairs
            }
            for each in (a, b)
        ]
        pairs += [
            key in chosen[1] and iou(np.array([box]), np.array([chosen[1][key]]))[0, 0] >= 0.9
            for key, box in chosen[0].items()
        ]
    means = {"captions": captions, "regions": regions, "pairs": pairs}
    return {name: round(float(np.mean(each)), 4) for name, each in means.items()}


@pytest.mark.parametrize("recipe", ["mini", "lism-mini", "glit-mini", "grounded-mini"])
def test_a_build(scenes, tmp_path, recipe) -> None:
    there = built_on("cpu", scenes, tmp_path / "cpu", recipe, "float32")
    for precision in ("float32", "auto"):
        here = built_on(GPU, scenes, tmp_path / precision, recipe, precision)
        found = likeness(there, here)
        print("LIKENESS", json.dumps({"recipe": recipe, "precision": precision, **found}))
        assert min(found.values()) >= (0.97 if precision == "float32" else 0.8), found


@pytest.fixture
def afresh(monkeypatch):
    """The trainer takes the best device anew."""

    def on(device):
        AcceleratorState._reset_state(reset_partial_state=True)
        monkeypatch.setattr(devices, "accelerators", lambda: [device] if device != "cpu" else [])

    yield on
    AcceleratorState._reset_state(reset_partial_state=True)


# those of false sentences take a step in test_simulated_elsewhere.py
WITHOUT_NEGATIVES = [name for name, kind in OBJECTIVES.items() if not kind().needs.num_negatives]


@pytest.mark.parametrize("objective", WITHOUT_NEGATIVES)
def test_a_training(built_by_mini, tmp_path, afresh, objective) -> None:
    config = TrainConfig(
        model=str(resolve("mini-matcher").path), objective=objective, batch_size=8, max_steps=6, num_workers=0, lr=1e-3,
        precision="no", trackers=(), log_every=1, checkpoint_every=3,
    )  # fmt: skip
    losses = {}
    for device in ("cpu", GPU):
        afresh(device)
        done = train(config, str(built_by_mini), tmp_path / f"run-{len(losses)}")
        losses[device] = done.loss
    assert losses[GPU] == pytest.approx(losses["cpu"], rel=2e-2)
    afresh(GPU)
    half = train(replace(config, precision="auto"), str(built_by_mini), tmp_path / "half")
    print("LOSS", json.dumps({"objective": objective, **losses, "auto": half.loss}))
    assert half.loss == pytest.approx(losses["cpu"], rel=0.1)


def test_killed_and_resumed(built_by_mini, tmp_path, afresh, monkeypatch):
    config = TrainConfig(
        model=str(resolve("mini-matcher").path), objective="glit", batch_size=8, max_steps=6, num_workers=0, lr=1e-3,
        trackers=(), checkpoint_every=3,
    )  # fmt: skip
    afresh(GPU)
    whole = train(config, str(built_by_mini), tmp_path / "whole")
    afresh(GPU)
    plain, calls = loop.run_step, []

    def fails_at_five(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("the power went")
        return plain(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power"):
        patch.setattr(loop, "run_step", fails_at_five)
        train(config, str(built_by_mini), tmp_path / "run")
    afresh(GPU)
    resumed = train(config, str(built_by_mini), tmp_path / "run", resume=True)
    print("RESUMED", whole.loss, resumed.loss)
    assert resumed.loss == pytest.approx(whole.loss, rel=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compile", [False, True])
def test_a_compiled_training(built_by_mini, tmp_path, afresh, compile) -> None:
    afresh(GPU)
    config = TrainConfig(
        model=str(resolve("mini-matcher").path), objective="fast-goal", batch_size=8, max_steps=4, num_workers=2,
        trackers=(), compile=compile, gradient_checkpointing=compile,
    )  # fmt: skip
    done = train(config, str(built_by_mini), tmp_path / "run")
    print("COMPILED", compile, done.loss)
    config = EvaluateConfig(device=GPU, num_workers=0)
    (found,) = evaluate("retrieval", [str(tmp_path / "run")], str(built_by_mini), config)
    assert np.isfinite(list(found.metrics.values())).all()
