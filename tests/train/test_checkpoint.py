"""Model folders: what they say of images, and which one a path means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glit.errors import InputError
from glit.train.checkpoint import (
    CLIP_MEAN,
    Preprocessing,
    model_folder,
    read_position,
    read_preprocessing,
)
from glit.train.config import TrainConfig
from glit.train.loop import train
from glit.train.setup import find_model

THIRD = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "do_center_crop": False}


def test_preprocessing_of_a_folder(tmp_path: Path) -> None:
    assert read_preprocessing(tmp_path) == Preprocessing()
    wanted = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), fit="resize")
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": THIRD}))
    assert read_preprocessing(tmp_path) == wanted
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"do_center_crop": True}))
    assert read_preprocessing(tmp_path) == Preprocessing(mean=CLIP_MEAN, fit="centre-crop")


def test_a_second_stage_starts_from_a_run(tiny_clip, make_dataset, tmp_path) -> None:
    values = {"batch_size": 8, "epochs": 1, "num_workers": 0, "trackers": ()}
    first, second = tmp_path / "first", tmp_path / "second"
    dataset = str(make_dataset(16))
    train(TrainConfig(model=str(tiny_clip), **values), dataset, first)
    assert find_model(str(first)) == model_folder(first) == (first / "best").resolve()
    stage = TrainConfig(model=str(first), objective="hard-negatives", **values)
    assert train(stage, dataset, second).step == 2


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no usable trainer/state.json"):
        read_position(tmp_path)
