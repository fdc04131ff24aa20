"""What a plan tells apart, and what it refuses before the first image is read."""

from __future__ import annotations

import subprocess
import sys

import cpu_only
import pytest
import torch
from building import plan_of, run_build

from glit.errors import RecipeError, UserError, WeightsError
from glit.models.backends import base
from glit.models.backends.captioners import kinds
from glit.models.backends.captioners.kinds import refuse_no_captioner
from glit.models.backends.matchers import clip
from glit.models.backends.proposers import yolos
from glit.models.device import torch_dtype
from glit.models.weights import Resolved, manifest
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes.resources import mini_model
from glit.training.accelerated import open_accelerator
from glit.training.config import TrainConfig
from tools import golden


def folder(recipe: str, *overrides: str, device: str) -> str:
    """Where regions would be kept by workers of this device."""
    settings = ["caption.backend=sidecar", *overrides]
    return plan_of(load_recipe(recipe, overrides=settings), device=device).folder("propose")


@pytest.mark.parametrize(
    ("recipe", "overrides", "apart"),
    [
        ("mini", (), True),  # bfloat16 on a GPU
        ("mini", ("propose.device=cpu",), False),
        ("mini", ("propose.precision=float32",), False),
        ("lism-mini", (), False),  # SAM computes in float32 everywhere
    ],
)
def test_regions_of_two_precisions_do_not_mix(recipe, overrides, apart):
    here, there = (folder(recipe, *overrides, device=device) for device in ("cpu", "cuda"))
    assert (here != there) is apart


def fingerprints(*overrides: str) -> dict[str, str]:
    settings = ["caption.backend=sidecar", *overrides]
    return dict(plan_of(load_recipe("mini", overrides=settings)).fingerprints)


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("score.backend=clip", set()),  # came later, at its default
        ("score.batch_size=3", set()),  # speed
        ("propose.device=cpu", set()),
        ("ingest.chunk_size=5", set()),
        ("pair.rule=lism", {"pair", "pack"}),
        ("pack.min_files=3", {"pack"}),
        ("propose.max_regions=9", {"propose", "score", "pair", "pack"}),
        ("score.precision=float32", {"score", "pair", "pack"}),  # asked for, no longer found out
    ],
)
def test_a_key_changes_the_fingerprints_of_what_depends_on_it(override, changed):
    plain, found = fingerprints(), fingerprints(override)
    assert {step for step in plain if plain[step] != found[step]} == changed


@pytest.mark.parametrize("ignored", ["propose.precision=float16", "propose.compile=true"])
def test_what_exact_masks_would_ignore_is_refused(ignored):
    folder("lism-mini", ignored, device="cpu")
    folder("lism-mini", "propose.exact_masks=true", "propose.precision=float32", device="cpu")
    with pytest.raises(RecipeError, match="leave one of the two out"):
        folder("lism-mini", "propose.exact_masks=true", ignored, device="cpu")


class Planned(LocalExecutor):
    """Its workers are said to have this device, whatever they have."""

    def __init__(self, device: str) -> None:
        self._device = device

    @property
    def device(self) -> str:
        return self._device


@pytest.fixture
def dtypes(monkeypatch) -> list[str]:
    """The precisions that proposer and matcher load their models in."""
    seen = []

    def noted(precision: str):
        seen.append(precision)
        return torch_dtype(precision)

    monkeypatch.setattr(yolos, "torch_dtype", noted)
    monkeypatch.setattr(clip, "torch_dtype", noted)
    return seen


def test_workers_compute_in_the_precision_of_the_plan(scenes, tmp_path, monkeypatch, dtypes):
    """The driver has no GPU; a worker that asked its own machine would take bfloat16."""
    monkeypatch.setattr(base, "best_device", lambda: "cuda")
    executor = Planned("cpu")
    manifest = run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=3,
        executor=executor, recipe="mini",
    )  # fmt: skip
    assert dtypes == ["float32", "float32"]
    assert manifest.precision == {"propose": "float32", "score": "float32"}
    recipe = load_recipe("mini", overrides=["caption.backend=sidecar"])
    assert manifest.fingerprints["propose"] == plan_of(recipe).fingerprints["propose"]


@pytest.mark.parametrize("native", [True, False])
def test_a_precision_that_was_asked_for_is_taken_by_workers_and_written_down(
    scenes, tmp_path, dtypes, native
):
    with cpu_only.processor(bfloat16=native):
        manifest = run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=3,
            overrides=["propose.precision=bfloat16"], recipe="mini",
        )  # fmt: skip
    assert dtypes == ["bfloat16", "float32"]
    assert manifest.precision == {"propose": "bfloat16", "score": "float32"}


def test_a_worker_without_the_planned_device_stops_the_build(scenes, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="device = 'cuda': this machine has none"):
        run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=3,
            executor=Planned("cuda"), recipe="mini",
        )  # fmt: skip
    assert not [*(tmp_path / "out").glob("work/propose-*/*.parquet")]
    assert [*(tmp_path / "out").glob("work/split-*/*.parquet")]


def test_on_a_machine_with_a_gpu_these_tests_still_build_on_the_cpu(monkeypatch, tmp_path):
    """Or what they compare with results of a CPU would be bfloat16's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    device = LocalExecutor().device
    plan = plan_of(load_recipe("mini", overrides=["caption.backend=sidecar"]), device=device)
    decided = [plan.configs[name] for name in ("propose", "score")]
    assert [(c.device, c.precision) for c in decided] == [("cpu", "float32")] * 2
    accelerator, _ = open_accelerator(TrainConfig(trackers=()), tmp_path)
    assert accelerator.device.type == "cpu"
    started = subprocess.run(
        [sys.executable, "-c", "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert started.stdout.strip() == "''"


def test_the_goldens_are_made_on_the_cpu(scenes, monkeypatch):
    with cpu_only.as_it_is():
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        plans = []
        monkeypatch.setattr(
            sys.modules["glit.pipeline.run"],
            "run_stages",
            lambda opened, _: plans.append(opened.work.plan) or 1 / 0,
        )
        with pytest.raises(ZeroDivisionError):
            golden.make_rows(scenes)
    decided = [plans[0].configs[name] for name in ("propose", "score")]
    assert [(c.device, c.precision) for c in decided] == [("cpu", "float32")] * 2


# -- models that are not here, or are not what a backend loads -------------------------------------


def test_all_missing_models_of_a_recipe_are_named_at_once_with_a_command_each():
    with pytest.raises(WeightsError) as caught:
        plan_of(load_recipe("lism"))
    known = manifest()
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("recipe 'lism': 3 of its models are not on this machine")
    assert lines == [
        "  hf download llava-hf/llava-v1.6-mistral-7b-hf --revision "
        f"{known['llava-next-7b'].revision}  # captioner 'llava-next-7b'",
        "  hf download openai/clip-vit-base-patch16 --revision "
        f"{known['clip-vit-b-16'].revision}  # tokenizer and matcher 'clip-vit-b-16'",
        "  hf download facebook/sam-vit-huge  # proposer 'sam-vit-h'",
    ]


def test_one_missing_model_is_one_line():
    with pytest.raises(WeightsError, match="^proposer: model 'yolos-base': [^\n]*hf download") as e:
        plan_of(load_recipe("mini", overrides=["propose.model=yolos-base"]))
    assert len(str(e.value).splitlines()) == 1


def test_a_misspelt_model_among_missing_ones_is_mended_not_fetched():
    recipe = load_recipe("flism", overrides=["score.model=mini-macher"])
    with pytest.raises(WeightsError) as caught:
        plan_of(recipe)
    assert "  # tokenizer and matcher 'mini-macher'" in str(caught.value)
    assert "did you mean 'mini-matcher'?" in str(caught.value)


def mini(name):
    return str(mini_model(name))


FILE = "{file}"  # a checkpoint that is a single file


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"propose.model={mini('matcher')}"], "model_type 'clip', but .* loads YOLOS .'yolos'."),
        (["propose.model=mini-segmenter"], "model_type 'sam', but .* loads YOLOS"),
        ([f"propose.model={FILE}"], "x.pth is a single file, but .* loads YOLOS as a folder"),
        (["propose.backend=sam", "propose.model=mini-proposer"], "model_type 'yolos', but .* SAM"),
        (
            ["propose.backend=sam", f"propose.model={FILE}"],
            "is a single file, but .* loads SAM as a folder .* glit import-model .*x.pth -o FOLDER",
        ),
        (["propose.backend=yolo", "propose.model=mini-proposer"], "is a folder, but .*'yolo'"),
        (["propose.backend=yolo", f"propose.model={FILE}"], "are pickles and can run code"),
        (["score.model=mini-proposer"], "model_type 'yolos', but .* loads a CLIPModel"),
        ([f"score.model={FILE}", "split.tokenizer=mini-matcher"], "is a single file, but"),
        (["split.tokenizer=mini-proposer"], "tokenizer: model 'mini-proposer' has no tokenizer"),
        (["caption.model=mini-matcher"], "model_type 'clip', but .*'transformers'.* into text"),
        (["caption.backend=vllm", "caption.model=mini-matcher"], "model_type 'clip', but .*'vllm'"),
        ([f"caption.model={FILE}"], "is a single file, but .*'transformers'"),
    ],
)
def test_what_a_backend_does_not_load_is_refused_before_the_first_image(
    scenes, tmp_path, overrides, message
):
    file = tmp_path / "x.pth"
    file.write_bytes(b"pickle")
    with pytest.raises(WeightsError, match=message):
        run_build(
            scenes / "images",
            tmp_path / "out",
            overrides=[each.format(file=file) for each in overrides],
            recipe="mini",
        )
    assert not [*(tmp_path / "out").rglob("*.parquet")]


def test_a_captioner_that_vllm_alone_knows_is_left_to_it(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "of_tomorrow"}')
    model = Resolved(name="m", path=tmp_path, revision="", sha256="")
    refuse_no_captioner(model, backend="vllm")
    with pytest.raises(WeightsError, match="'of_tomorrow'"):
        refuse_no_captioner(model, backend="transformers")


def test_every_captioner_that_is_taken_unasked_is_one():
    writing, _ = kinds._of_transformers()
    assert writing >= kinds._USUAL
    assert "florence2" in writing and "clip" not in writing
