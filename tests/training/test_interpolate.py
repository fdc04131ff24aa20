"""Models between the start and the end of a fine-tuning."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from random_dataset import WORDS
from safetensors.torch import load_file, save_file

from glit.errors import InputError, UserError, WeightsError
from glit.models.clip.folder import TOKENIZER_FILES
from glit.models.clip.kinds import open_model
from glit.models.clip.random_clip import TINY, write_random_clip
from glit.models.clip.text_window import stretch_model
from glit.training.config import TrainConfig
from glit.training.interpolate import interpolate
from glit.training.loop import train


@pytest.fixture
def run(tiny_clip, make_dataset, tmp_path):
    config = TrainConfig(
        model=str(tiny_clip), batch_size=8, epochs=1, lr=1e-2, num_workers=0, trackers=()
    )
    train(config, str(make_dataset(8)), tmp_path / "run")
    return tmp_path / "run"


def test_from_the_start_to_the_end(run, tiny_clip, tmp_path, run_glit) -> None:
    """The start has 77 text positions, the end 248."""
    start = open_model(tiny_clip)
    stretch_model(start, 248)
    before, after = start.state_dict(), load_file(run / "best" / "model.safetensors")
    for alpha in (0.0, 0.25, 1.0):
        out = tmp_path / f"at-{alpha}"
        done = run_glit("interpolate", tiny_clip, run, "-o", out, "--alpha", alpha)
        assert done.code == 0 and "best, step 1" in done.output
        assert "models   2/2" in done.errors
        found = open_model(out).state_dict()
        assert set(found) == set(after)
        for name, weight in found.items():
            wanted = before[name] + alpha * (after[name] - before[name])
            torch.testing.assert_close(weight, wanted, rtol=0, atol=1e-6)
    assert json.loads((out / "interpolated.json").read_text())["alpha"] == 1.0
    done = run_glit("interpolate", tiny_clip, run, "-o", tmp_path / "quiet", "--quiet")
    assert done.code == 0 and "models" not in done.errors and "best, step 1" in done.output
    with pytest.raises(InputError, match="exists already"):
        interpolate(str(tiny_clip), str(run), out, alpha=0.5)


def test_models_that_do_not_fit_together(run, tiny_clip, tmp_path) -> None:
    out = tmp_path / "out"
    corpus = [" ".join(WORDS)] * 3
    shape = {**TINY, "vision_config": {**TINY["vision_config"], "num_hidden_layers": 3}}
    write_random_clip(tmp_path / "deep", shape, seed=0, corpus=corpus, vocabulary=700)
    with pytest.raises(WeightsError, match="they have other tokenizers"):
        interpolate("mini-matcher", str(run), out, alpha=0.5)
    for name in TOKENIZER_FILES:
        if (tiny_clip / name).is_file():
            shutil.copy(tiny_clip / name, tmp_path / "deep" / name)
    with pytest.raises(
        WeightsError, match=r"the weight vision_model.* is \(.*\) in one and missing"
    ):
        interpolate(str(tmp_path / "deep"), str(run), out, alpha=0.5)
    config = json.loads((run / "best" / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "gelu"
    (run / "best" / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="vision_config.hidden_act is 'quick_gelu' in one and"):
        interpolate(str(tiny_clip), str(run), out, alpha=0.5)
    config["vision_config"]["hidden_act"] = "quick_gelu"
    (run / "best" / "config.json").write_text(json.dumps(config))
    weights = load_file(run / "best" / "model.safetensors")
    weights["logit_scale"] = torch.tensor(float("nan"))
    save_file(weights, (run / "best" / "model.safetensors").resolve(), metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="the weight logit_scale is not finite"):
        interpolate(str(tiny_clip), str(run), out, alpha=0.5)
    with pytest.raises(UserError, match="--alpha nan"):
        interpolate(str(tiny_clip), str(run), out, alpha=float("nan"))
    assert not out.exists()
