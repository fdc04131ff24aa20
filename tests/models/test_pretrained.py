"""Models are loaded whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from building import run_build
from safetensors.torch import load_file, save_file

import glit
from glit.errors import WeightsError
from glit.models.clip.kinds import open_model
from glit.recipes.resources import mini_model


def without_a_weight(model: Path, folder: Path) -> str:
    """A copy of a model whose file lacks one of its weights; the weight's name."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    name = min(weights)
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return name


@pytest.mark.parametrize(
    ("model", "key"),
    [("captioner", "caption.model"), ("proposer", "propose.model"), ("matcher", "score.model")],
)
def test_a_build_stops_at_a_model_that_lacks_a_weight(scenes, tmp_path, model, key):
    """Otherwise it would be drawn at random, and what follows would look like results."""
    without_a_weight(mini_model(model), tmp_path / "part")
    with pytest.raises(WeightsError, match="part: 1 weights of a .* are not in its files"):
        run_build(scenes / "images", tmp_path / "out", overrides=[f"{key}={tmp_path}/part"],
                  recipe="mini", limit=1)  # fmt: skip


def test_a_weight_that_the_model_has_no_place_for_is_an_error(tiny_clip, tmp_path):
    shutil.copytree(tiny_clip, tmp_path / "more")
    weights = load_file(tmp_path / "more" / "model.safetensors")
    weights["text_model.adapter.weight"] = torch.ones(2)
    save_file(weights, tmp_path / "more" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="no place for 1 weights .*first: text_model.adapter"):
        open_model(tmp_path / "more")


def test_training_and_evaluation_do_too(tiny_clip, make_dataset, tmp_path):
    name = without_a_weight(tiny_clip, tmp_path / "part")
    with pytest.raises(WeightsError, match=f"1 weights of a CLIPModel .* .first: .*{name}"):
        open_model(tmp_path / "part")
    with pytest.raises(glit.GlitError, match="are not in its files"):
        glit.evaluate("retrieval", str(tmp_path / "part"), make_dataset(2))
