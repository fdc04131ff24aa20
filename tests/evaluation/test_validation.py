"""Runs that are measured while they learn: what is logged, and which checkpoint is the best."""

from __future__ import annotations

import json
import os
import shutil
import signal
import warnings
from pathlib import Path

import building
import pytest
from PIL import Image

import glit
from glit.errors import InputError, UserError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.evaluation.validation import open_validation
from glit.training.config import TrainConfig
from glit.training.log import VALIDATION
from glit.training.loop import train


def run_of(config: TrainConfig, dataset: Path, run: Path, **options):
    return train(config, str(dataset), run, open_measure=open_validation, **options)


def config(tiny_clip: Path, validation: Path, **changes) -> TrainConfig:
    values = {
        "model": str(tiny_clip), "batch_size": 8, "epochs": 3, "lr": 1e-3, "num_workers": 0,
        "trackers": (), "validation": str(validation), "objective": "clip", **changes,
    }  # fmt: skip
    return TrainConfig(**values)


def measurements(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if VALIDATION in line]


@pytest.fixture
def two_datasets(make_dataset) -> tuple[Path, Path]:
    """16 samples to learn from, and 12 others to measure on."""
    return make_dataset(16, name="learned"), make_dataset(12, name="kept", seed=1)


def test_the_figures_are_those_of_eval_and_choose_the_best(
    tiny_clip, two_datasets, tmp_path
) -> None:
    """An epoch is two steps. One run is stopped where a measurement is due, one between."""
    learned, validation = two_datasets
    whole, classes = tmp_path / "whole", tmp_path / "classes"
    for number, shade in enumerate((0, 90, 250)):
        (classes / f"grey_{number}").mkdir(parents=True)
        Image.new("L", (40, 40), shade).save(classes / f"grey_{number}" / "0.png")
    measured = {"validation_classes": str(classes)}
    run_of(config(tiny_clip, validation, **measured), learned, whole)
    found = measurements(whole)
    assert [(line["step"], line["epoch"]) for line in found] == [(0, 0), (2, 1), (4, 2), (6, 3)]

    scores = {line["step"]: line[VALIDATION] for line in found[1:]}
    best = max(scores, key=lambda step: scores[step])  # the first of equal ones
    assert (whole / "best").resolve().name == f"step-{best:08d}"
    for checkpoint, step in (("best", best), ("last", 6)):
        settings = EvaluateConfig(num_workers=0, recall_at=(1, 5, 10))
        (again,) = evaluate(
            "retrieval", [str(whole)], str(validation), settings, checkpoint=checkpoint
        )
        line = next(line for line in found if line["step"] == step)
        (zero_shot,) = evaluate(
            "classify", [str(whole)], str(classes), settings, checkpoint=checkpoint
        )
        assert zero_shot.metrics["acc1"] == line["validation_acc1"]
        assert {f"validation_{name}": value for name, value in again.metrics.items()} == {
            name: line[name] for name in line if "recall@" in name
        }
        both = again.metrics["image_retrieval_recall@1"] + again.metrics["text_retrieval_recall@1"]
        assert line[VALIDATION] == pytest.approx(both / 2)

    parted = tmp_path / "parted"
    for stop_at in (2, 3):

        def stop(line, stop_at=stop_at) -> None:
            if line["step"] == stop_at and "loss" in line:
                os.kill(os.getpid(), signal.SIGINT)

        options = config(tiny_clip, validation, log_every=1, **measured)
        assert run_of(options, learned, parted, report=stop, resume=stop_at > 2).step == stop_at
        assert len(measurements(parted)) == stop_at - 1  # none when it is stopped
    run_of(options, learned, parted, resume=True)
    assert measurements(parted) == found
    assert (parted / "best").resolve().name == (whole / "best").resolve().name
    for name in ("model.safetensors", "trainer/state.json"):
        assert (parted / "last" / name).read_bytes() == (whole / "last" / name).read_bytes()


def test_what_a_run_cannot_be_measured_on(tiny_clip, two_datasets, tmp_path) -> None:
    learned, validation = two_datasets
    with pytest.raises(InputError, match=r"is the dataset that is trained on"):
        run_of(config(tiny_clip, learned), learned, tmp_path / "run")
    with pytest.raises(UserError, match=r"no dataset here"):
        run_of(config(tiny_clip, tmp_path), learned, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_of(config(tiny_clip, validation, max_steps=1), learned, tmp_path / "run")
    shutil.rmtree(validation)
    shutil.copytree(learned, validation)
    changed = json.loads((validation / "manifest.json").read_text())
    first = next(name for name in changed["files"] if name.startswith("data/"))
    changed["files"][first]["sha256"] = "0" * 64
    (validation / "manifest.json").write_text(json.dumps(changed))
    with pytest.raises(InputError, match="holds other data files than when"):
        run_of(config(tiny_clip, validation, max_steps=1), learned, tmp_path / "run", resume=True)


def test_a_run_that_is_measured_on_its_own_training_set_says_so(built, sample, tmp_path):
    settings = [f"train.model={building.tiny_clip()}", "train.batch_size=4", "train.max_steps=1"]
    glit.train(built, tmp_path / "run", recipe="clip", settings=settings)
    for model in (tmp_path / "run", tmp_path / "run" / "last"):
        with pytest.warns(UserWarning, match="was trained on .*: its figures here say nothing"):
            glit.evaluate("retrieval", str(model), built)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        glit.evaluate("retrieval", str(tmp_path / "run"), sample / "dataset")


def test_a_mini_model_and_photographs_are_told(sample, tmp_path):
    dataset = sample / "dataset"
    with pytest.warns(UserWarning, match="mini-matcher: trained on glit's procedural scenes alone"):
        glit.evaluate("retrieval", "mini-matcher", dataset)
    settings = ["train.model=mini-matcher", "train.batch_size=4", "train.max_steps=1"]
    with pytest.warns(UserWarning, match="what is learned here means little"):
        glit.train(dataset, tmp_path / "run", recipe="clip", settings=settings)
