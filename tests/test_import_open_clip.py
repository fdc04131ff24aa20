"""OpenCLIP's checkpoints against what the package itself answered (tests/files/open_clip_reference.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPModel

from glit.errors import GlitError, InputError, WeightsError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.run import evaluate
from glit.models.clip.image_processor import read_preprocessing
from glit.models.clip.kinds import open_model
from glit.models.clip.runs import find_model
from glit.models.importers.model import import_model
from glit.models.importers.open_clip import CONFIG, WEIGHTS
from glit.training.config import TrainConfig
from glit.training.loop import train

REFERENCE = Path(__file__).parent / "files" / "open-clip"


@pytest.fixture
def folder(tmp_path, tiny_clip) -> Path:
    """A checkpoint of OpenCLIP's with a tokenizer, to damage."""
    made = tmp_path / "open-clip"
    made.mkdir()
    for name in (CONFIG, WEIGHTS):
        shutil.copyfile(REFERENCE / name, made / name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tiny_clip / name, made / name)
    return made


def change(folder: Path, where: str, **values) -> None:
    found = json.loads((folder / CONFIG).read_text())
    part = found[where] if where in found else found["model_cfg"][where]
    part.update(values)
    (folder / CONFIG).write_text(json.dumps(found))


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
@pytest.mark.parametrize("apart", [False, True])
@torch.no_grad()
def test_embeddings_are_those_of_the_package(folder, tmp_path, activation, apart) -> None:
    answers = load_file(REFERENCE / "answers.safetensors")
    change(folder, "model_cfg", quick_gelu=activation == "quick_gelu", custom_text=apart)
    weights = load_file(folder / WEIGHTS)
    if apart:  # its CustomTextCLIP
        weights = {
            k if k.startswith(("visual.", "logit_")) else f"text.{k}": v for k, v in weights.items()
        }
        save_file(weights, folder / WEIGHTS)
    made = import_model(folder, tmp_path / "new")
    assert (made.activation, made.context) == (activation, 77)
    model = open_model(tmp_path / "new")
    image = model.get_image_features(pixel_values=answers["pixel_values"]).pooler_output
    text = model.get_text_features(input_ids=answers["input_ids"]).pooler_output
    torch.testing.assert_close(image, answers[f"{activation}.image"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(text, answers[f"{activation}.text"], rtol=1e-5, atol=1e-5)
    assert model.logit_scale == weights["logit_scale"]


def test_a_run_starts_from_it_and_leaves_a_clip_of_transformers(
    folder, make_dataset, tmp_path
) -> None:
    import_model(folder, tmp_path / "new")
    folder, dataset, run = tmp_path / "new", str(make_dataset(8)), tmp_path / "run"
    settings = EvaluateConfig(num_workers=0, recall_at=(1, 5))
    before = evaluate("retrieval", [str(folder)], dataset, settings)[0]
    assert before.settings["fit"] == "resize"
    train(
        TrainConfig(model=str(folder), objective="fast-goal", batch_size=8, epochs=1, lr=1e-12,
                    num_workers=0, trackers=()), dataset, run,
    )  # fmt: skip
    assert evaluate("retrieval", [str(run)], dataset, settings)[0].metrics == before.metrics
    model = CLIPModel.from_pretrained(run / "last")
    assert model.config.text_config.eos_token_id == 646
    assert read_preprocessing(run / "last") == read_preprocessing(folder)
    assert read_preprocessing(folder).mean == (0.5, 0.4, 0.3)


@pytest.mark.parametrize(
    ("where", "values", "message"),
    [
        ("vision_cfg", {"timm_model_name": "convnext_base"}, "vision_cfg.timm_model_name = 'conv"),
        ("vision_cfg", {"layers": [3, 4, 6, 3]}, "ResNets and oblong images cannot"),
        ("vision_cfg", {"width": "768"}, "vision_cfg.width = '768': wanted a whole number above 0"),
        ("vision_cfg", {"head_width": 0}, "vision_cfg.head_width = 0: wanted a whole number"),
        ("vision_cfg", {"mlp_ratio": float("nan")}, "vision_cfg.mlp_ratio = nan: wanted a ratio"),
        ("model_cfg", {"embed_dim": None}, "model_cfg.embed_dim = None: wanted a whole number"),
        ("vision_cfg", {"no_ln_pre": True}, "vision_cfg.no_ln_pre = True is not CLIP's arch"),
        ("text_cfg", {"hf_model_name": "roberta-base"}, "text_cfg.hf_model_name = 'roberta-base'"),
        ("text_cfg", {"pool_type": "last"}, "text_cfg.pool_type = 'last'"),
        ("model_cfg", {"multimodal_cfg": {"layers": 2}}, "model_cfg.multimodal_cfg"),
        ("model_cfg", {"embed_dim": 8}, r"text_projection.weight is of shape \(16, 16\), but"),
        ("vision_cfg", {"layers": 3}, r"layers.2.*is missing, but open_clip_config.json says"),
        ("text_cfg", {"layers": 1}, r"layers.1.*, but open_clip_config.json says missing"),
        ("preprocess_cfg", {"resize_mode": "longest"}, "resize_mode = 'longest': wanted shortest"),
    ],
)
def test_what_is_not_clip_is_refused_by_name(folder, tmp_path, where, values, message) -> None:
    change(folder, where, **values)
    with pytest.raises(WeightsError, match=message):
        import_model(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_it_is_taken_by_its_import_alone(folder) -> None:
    for shown in ("in OpenCLIP's format.*glit import-model .*open-clip -o NEW",):
        with pytest.raises(WeightsError, match=shown):
            find_model(str(folder))
        (folder / "config.json").write_text('{"model_type": "clip"}')
        with pytest.raises(WeightsError, match=shown):
            find_model(str(folder))


def test_a_tokenizer_that_is_missing_is_that_of_another_clip(folder, tmp_path, tiny_clip) -> None:
    (folder / "tokenizer.json").unlink()
    import_model(folder, tmp_path / "new", like=str(tiny_clip))
    same = (tmp_path / "new" / "tokenizer.json").read_bytes()
    assert same == (tiny_clip / "tokenizer.json").read_bytes()
    assert read_preprocessing(tmp_path / "new").mean == (0.5, 0.4, 0.3)  # not the other's
    with pytest.raises(
        WeightsError, match="mini.* ends a text with token.*trained with 646.*--like"
    ):
        import_model(folder, tmp_path / "other", like="mini-matcher")


def test_its_own_weights_are_taken_where_those_of_transformers_lie_beside(
    folder, tmp_path, tiny_clip
) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(tiny_clip / name, folder / name)
    import_model(folder, tmp_path / "new")
    scale = load_file(folder / WEIGHTS)["logit_scale"]
    assert open_model(tmp_path / "new").logit_scale == scale


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: change(f, "text_cfg", vocab_size=700), "ends a text with token 646.*with 699"),
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-4]), "cut short"),
        (lambda f: (f / WEIGHTS).rename(f / "open_clip_pytorch_model.bin"), "no such file|want a"),
        (
            lambda f: (f / CONFIG).write_text('{"model_cfg": []}'),
            "wanted model_cfg with vision_cfg",
        ),
        (lambda f: change(f, "preprocess_cfg", mean=[0.5]), "preprocess_cfg.mean = .0.5.: wanted"),
    ],
)
def test_files_that_are_missing_or_damaged(folder, tmp_path, damage, message) -> None:
    damage(folder)
    with pytest.raises(GlitError, match=message) as refused:
        import_model(folder, tmp_path / "new")
    assert isinstance(refused.value, WeightsError | InputError)
