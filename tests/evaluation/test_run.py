"""Measurements that are refused: broken models and images, settings that cannot be."""

from __future__ import annotations

import inspect
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from evaluating import CONFIG, config
from safetensors.torch import load_file, save_file

from glit.errors import InputError, RecipeError, RunError, UserError, WeightsError
from glit.evaluation import label_maps
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.readers import questions
from glit.evaluation.run import evaluate
from glit.evaluation.tasks import TASKS, Task
from glit.pipeline.planning.recipe import load_table
from glit.runtime import cpu_threads


def test_a_scorer_that_is_not_there(tiny_clip, make_dataset) -> None:
    with pytest.raises(RecipeError, match="'cosin': wanted one of cosine, sentence-average"):
        evaluate("retrieval", [str(tiny_clip)], str(make_dataset(2)), config(scorer="cosin"))
    with pytest.raises(RecipeError, match="did you mean 'cosine'"):
        load_table(EvaluateConfig, "mini", overrides=["evaluate.scorer=cosin"])


@pytest.mark.parametrize(
    ("weight", "task", "named"),
    [
        ("visual_projection.weight", "retrieval", r"image 000000\.jpg is not finite"),
        ("text_projection.weight", "retrieval", r"the text '.* is not finite"),
        ("visual_projection.weight", "joint-map", r"image 000000\.jpg is not finite"),
        ("visual_projection.weight", "localize", r"image 000000\.jpg is not finite"),
        ("text_projection.weight", "robustness", r"the text '.* is not finite"),
        ("visual_projection.weight", "caption-quality", r"image 000000\.jpg is not finite"),
    ],
)
def test_one_nan_weight_is_an_error_in_every_measurement(
    tiny_clip, make_dataset, tmp_path, weight, task, named
) -> None:
    """NaN is below every similarity, so ranks counted from it would all be the first."""
    broken = Path(shutil.copytree(tiny_clip, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    weights[weight][0, 0] = torch.nan
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match=rf"model .*broken: its embedding of {named}"):
        evaluate(task, [str(broken)], str(make_dataset(4)), CONFIG)


def test_an_image_that_does_not_decode(tiny_clip, make_dataset) -> None:
    def damage(index: int, row) -> None:
        row["image"]["bytes"] = b"no image"

    with pytest.raises(InputError, match=r"image 0 cannot be decoded"):
        evaluate("retrieval", [str(tiny_clip)], str(make_dataset(4, change=damage)), CONFIG)


def test_models_and_settings_that_cannot_be(tmp_path: Path, make_dataset) -> None:
    with pytest.raises(WeightsError):
        evaluate("retrieval", [str(tmp_path)], str(make_dataset(3)), CONFIG)
    with pytest.raises(RecipeError, match=r"'stretch'; known"):
        EvaluateConfig(image_fit="stretch")
    with pytest.raises(RecipeError, match="recall_at"):
        EvaluateConfig(recall_at=(0,))


def test_false_sentences_with_another_task_are_refused_and_not_measured_as_robustness():
    given = Path("false.jsonl")
    with pytest.raises(UserError, match="belongs to robustness, not to retrieval"):
        evaluate("retrieval", ["model"], "dataset", EvaluateConfig(), false_sentences=given)


def test_every_task_is_declared_in_full_and_imported_only_when_it_runs():
    """Its line fits a terminal of 80 columns, and its functions have the arguments it says."""
    text = "import sys; from glit.evaluation.tasks import TASKS; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", text], text=True) == "False\n"
    for name, task in TASKS.items():
        assert 0 < len(task.about) <= 61 and task.source, name
        assert {*inspect.signature(task.function()).parameters} >= {*task.takes}, name
        opens = inspect.signature(pkgutil.resolve_name(task.open)).parameters
        assert [*opens] == ["dataset", "config", "kind", "images", "split"], name
    assert TASKS["choose"].formats == (*questions.READERS,)
    assert TASKS["segment"].formats == (*label_maps.READERS,)


def test_a_caption_that_fills_a_window_that_is_no_multiple_of_8(tiny_clip, make_dataset):
    def long_caption(index: int, row) -> None:
        row["caption"] = " ".join(["red"] * 200)

    dataset = str(make_dataset(4, change=long_caption))
    (found,) = evaluate("retrieval", [str(tiny_clip)], dataset, config(context=77))
    assert found.num_captions == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda weights: {**weights, "visual_projection.weight": torch.zeros(3, 5)},
        lambda weights: {**weights, "logit_scale": torch.zeros(2)},
    ],
)
def test_a_weight_of_another_shape_is_one_line(tiny_clip, make_dataset, tmp_path, damage) -> None:
    broken = Path(shutil.copytree(tiny_clip, tmp_path / "broken"))
    weights = damage(load_file(broken / "model.safetensors"))
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        WeightsError, match=r"(has the shape|no CLIPModel can be loaded from it)"
    ) as caught:
        evaluate("retrieval", [str(broken)], str(make_dataset(2)), CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [0, 9, 4000])
def test_weights_that_are_cut_are_one_line(tiny_clip, make_dataset, tmp_path, size) -> None:
    broken = Path(shutil.copytree(tiny_clip, tmp_path / "broken"))
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:size])
    with pytest.raises(WeightsError):
        evaluate("retrieval", [str(broken)], str(make_dataset(2)), CONFIG)


def test_a_measurement_leaves_a_core_to_another_process(
    tiny_clip, make_dataset, monkeypatch
) -> None:
    """Two threads, one of whose cores is taken, are slower than one."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu_threads, "_cores", lambda: [0, 1])
    looks = iter([(0.0, 0.0, 0.0), (10.0, 15.0, 5.0)])  # seconds, work of all, own
    monkeypatch.setattr(cpu_threads, "_look", lambda: next(looks))
    threads = []
    counted = Task(run=lambda *_: {"threads": threads.append(torch.get_num_threads())})
    monkeypatch.setitem(TASKS, "localize", counted)
    torch.set_num_threads(2)
    try:
        evaluate("localize", [str(tiny_clip)] * 2, str(make_dataset(4)), config(device="cpu"))
        assert (threads, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(1)
