"""SigLIP models as starts and in evaluation: as transformers has them, where embeddings suffice."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from random_dataset import WORDS
from safetensors.torch import load_file
from tiny_siglip import CONTEXT, write_siglip
from torch.nn.functional import normalize
from transformers import AutoProcessor, SiglipModel

from glit import stages
from glit.errors import MissingExtraError, RecipeError, UserError, WeightsError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.evaluation.run import evaluate
from glit.models.clip.kinds import open_tokenizer
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.objectives import OBJECTIVES
from glit.training.objectives.glit import Glit
from glit.training.setup import prepare
from glit.training.step import run_step

LONGER = 32
FIT = {"clip", "fg-clip", "local", "global+local", "hard-negatives", "long-clip", "siglip"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_siglip(tmp_path_factory.mktemp("siglip"))


def config(folder, **changes) -> TrainConfig:
    values = {
        "model": str(folder), "objective": "siglip", "batch_size": 8, "epochs": 2, "lr": 1e-3,
        "num_workers": 0, "log_every": 1, "trackers": (), "context": CONTEXT,
    }  # fmt: skip
    return TrainConfig(**{**values, **changes})


@torch.no_grad()
def test_embeddings_are_those_of_transformers(folder) -> None:
    """Punctuation, capitals and a special token in a text; a text longer than the window."""
    embedder = load_embedder(str(folder), EvaluateConfig(context=CONTEXT))
    model, processor = SiglipModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    texts = ["a red House, here.", " ".join(WORDS[:30]), "red"]
    inputs = processor(text=texts, padding="max_length", truncation=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (3, CONTEXT)
    wanted = torch.nn.functional.normalize(model.get_text_features(**inputs).pooler_output)
    torch.testing.assert_close(embedder.texts(texts), wanted)
    (ids,) = embedder.tokenizer.encode_closed(["red </s> house"], context=CONTEXT)
    assert ids.count(1) == 1 and ids[-1] == 1
    assert embedder.preprocessing.fit == "resize"
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    plain = model.get_image_features(pixel_values=pixels / 127.5 - 1).pooler_output
    found = embedder.encoder.encode_images(pixels)[1]
    torch.testing.assert_close(found, torch.nn.functional.normalize(plain))


def test_the_loss_is_the_models_own_with_its_scale_and_bias(folder, make_dataset) -> None:
    made = prepare(config(folder), str(make_dataset(8)))
    (batch,) = next(made.loader.epoch(0))
    accelerator = Accelerator(cpu=True)
    metrics = run_step([batch], model=made.model, objective=made.objective, accelerator=accelerator)
    assert metrics["siglip_bias"].item() == pytest.approx(-12.9)
    assert all(p.grad is not None for p in made.model.parameters() if p.requires_grad)
    rows, valid = batch.texts.apart(batch.texts.input_ids_RW.flatten()[:, None].float(), 8)
    ids = torch.ones(8, CONTEXT, dtype=torch.long)  # </s>, which is the padding too
    ids[:, : rows.shape[1]] = torch.where(valid, rows[..., 0].long(), 1)
    with torch.no_grad():
        wanted = SiglipModel.from_pretrained(folder)(
            input_ids=ids, pixel_values=batch.pixels_V3SS / 127.5 - 1, return_loss=True
        ).loss
    torch.testing.assert_close(metrics["loss"], wanted)


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_resumed_run_is_the_whole_run_and_anybody_loads_it(
    folder, make_dataset, tmp_path, lora_rank: int
) -> None:
    class Stopped(Exception):
        pass

    def stop(line) -> None:
        if line["step"] == 3:
            raise Stopped

    dataset = str(make_dataset(16))
    settings = config(folder, checkpoint_every=1, lora_rank=lora_rank, context=LONGER)
    train(settings, dataset, tmp_path / "whole")
    with contextlib.suppress(Stopped):
        train(settings, dataset, tmp_path / "parted", report=stop)
    train(settings, dataset, tmp_path / "parted", resume=True)
    for name in ("model.safetensors", "trainer/optimizer.pt"):
        found, wanted = (tmp_path / run / "last" / name for run in ("parted", "whole"))
        assert found.read_bytes() == wanted.read_bytes(), name
    before, after = (load_file(f / "model.safetensors") for f in (folder, tmp_path / "whole/last"))
    for name in ("logit_scale", "logit_bias"):  # learned, and no limit at 100
        assert 0 < (after[name] - before[name]).abs().item() < 0.01
    model = SiglipModel.from_pretrained(tmp_path / "whole" / "last")
    processor = AutoProcessor.from_pretrained(tmp_path / "whole" / "last")
    inputs = processor(text=["a red house"], padding="max_length", return_tensors="pt",
                       images=[torch.zeros(3, 40, 60)])  # fmt: skip
    assert inputs["input_ids"].shape == (1, LONGER)
    with torch.no_grad():
        wanted = model(**inputs).text_embeds
    embedder = load_embedder(str(tmp_path / "whole"), EvaluateConfig(context=LONGER))
    torch.testing.assert_close(embedder.texts(["a red house"]), wanted)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_objectives_that_embeddings_suffice_for(
    folder, make_dataset, tmp_path, objective: str
) -> None:
    def with_negatives(_: int, row) -> None:
        text = row["sentences"][0]["text"]
        row["negatives"] = [{"sentence": 0, "kind": "object", "text": f"No {text}"}]

    further = stages.NegativesStage.dataset_columns
    dataset = str(make_dataset(8, change=with_negatives, further=further))
    settings = config(folder, objective=objective, max_steps=1, unlocked_blocks=1, lock_image=True)
    if objective == "f-cast":
        settings = replace(settings, lock_image=False, unlocked_blocks=0)
    if objective in FIT:
        assert train(settings, dataset, tmp_path / "run").loss > 0
        return
    with pytest.raises(
        RecipeError,
        match=rf"objective = '{objective}': looks at CLIP's .*take one of clip, fg-clip, glob",
    ):
        train(settings, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_windows_that_cannot_be(folder, make_dataset, tmp_path) -> None:
    dataset = str(make_dataset(8))
    for context, message in ((8, "its window cannot be cut; use at least 24"),
                             (248, "longer than 24 text positions can be stretched")):  # fmt: skip
        with pytest.raises(RecipeError, match=message):
            train(config(folder, context=context), dataset, tmp_path / "run")
    with pytest.raises(RecipeError, match="nothing to train but the logit scale"):
        train(config(folder, objective="clip", lock_image=True, lock_text=True), dataset,
              tmp_path / "run")  # fmt: skip


def test_what_wants_tokens_is_refused_and_patches_are_there(folder, make_dataset) -> None:
    dataset = str(make_dataset(8))
    settings = EvaluateConfig(context=CONTEXT, num_workers=0, recall_at=(1,))
    assert evaluate("joint-map", [str(folder)], dataset, settings)[0].metrics
    assert evaluate("localize", [str(folder)], dataset, settings)[0].metrics["pairs"] == 8
    encoder = load_embedder(str(folder), settings).encoder
    with pytest.raises(UserError, match="a SigLIP model has no tokens of texts in the space"):
        encoder.token_features(torch.zeros(1, 16))


@torch.no_grad()
def test_the_head_pools_the_patches_of_a_region(folder) -> None:
    """All patches give the whole image's embedding, some what the head makes of those alone, one
    what it makes of that patch; none something finite."""
    encoder = load_embedder(str(folder), EvaluateConfig(context=CONTEXT)).encoder
    pixels = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    tokens, whole = encoder.encode_images(pixels, num_tokens=2)
    mask = torch.zeros(2, 4, 16, dtype=torch.bool)
    mask[:, 0] = True
    mask[:, 1, [2, 3, 9]] = True
    mask[0, 2, 5], mask[1, 2, 7] = True, True
    found = encoder.pool_patches(tokens, mask)
    torch.testing.assert_close(found[:, 0], whole)
    head = encoder.clip.vision_model.head
    torch.testing.assert_close(found[:, 1], normalize(head(tokens[:, [2, 3, 9]])))
    alone = encoder.project_patches(torch.stack([tokens[0, 5], tokens[1, 7]]))
    torch.testing.assert_close(found[:, 2], alone)
    assert found[:, 3].isfinite().all()
    plain, _ = encoder.encode_images(pixels, num_tokens=2, unmixed=True)
    assert plain.shape == tokens.shape and not torch.allclose(plain, tokens)


def test_regions_are_learned_from_a_siglip_start(folder, make_dataset, tmp_path) -> None:
    dataset = str(make_dataset(16))
    options = Glit(pool_tokens=False)
    made = prepare(config(folder, objective="glit", options=options), dataset)
    (batch,) = next(made.loader.epoch(0))
    metrics = run_step(
        [batch], model=made.model, objective=made.objective, accelerator=Accelerator(cpu=True)
    )
    assert metrics["dense_bias"].item() == pytest.approx(-12.9)
    assert metrics["dense_scale"].item() == pytest.approx(math.exp(4.77), rel=1e-5)
    assert metrics["loss_sentences"] > 0 and "loss_tokens" not in metrics
    assert all(p.grad is not None for p in made.model.parameters() if p.requires_grad)
    done = train(config(folder, objective="glit", options=options), dataset, tmp_path / "run")
    assert done.loss > 0
    with pytest.raises(RecipeError, match=r"set train\.pool_tokens=false, or start from a CLIP"):
        train(config(folder, objective="glit"), dataset, tmp_path / "other")


def test_its_tokenizer_wants_its_extra(folder, tmp_path, monkeypatch, hide) -> None:
    hide("sentencepiece")
    with pytest.raises(MissingExtraError, match=r"the tokenizer of .*\[siglip\]'"):
        open_tokenizer(folder)
    monkeypatch.undo()
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(WeightsError, match="no tokenizer can be loaded from it"):
        open_tokenizer(tmp_path)
