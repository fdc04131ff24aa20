"""Matchers of every kind of checkpoint: transformers' own embeddings, whatever shares a batch."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny_siglip import write_siglip
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import normalize
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    CLIPImageProcessor,
    MetaClip2Config,
    MetaClip2Model,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    Siglip2Processor,
    Siglip2Tokenizer,
    XLMRobertaTokenizer,
)

from glit.errors import RecipeError, UserError, WeightsError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.models.backends.matchers import MATCHERS
from glit.models.backends.matchers.clip import ClipMatcher, own_scale
from glit.models.clip.crops import whole_pixel_boxes
from glit.models.clip.random_clip import TINY, write_random_clip
from glit.models.clip.runs import find_model
from glit.models.clip.siglip import SiglipTokenizer
from glit.models.weights import resolve
from glit.recipes.resources import mini_model
from glit.stages.score import ScoreConfig
from glit.training.config import TrainConfig
from glit.training.loop import train

LETTERS = "abcdefghijklmnopqrstuvwxyzé.,"
TEXTS = ["a red house", "A Green House, here.", "un écureuil " * 3, "red", "b " * 200]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 2}  # fmt: skip


def write_naflex(folder: Path) -> Path:
    vocab = {t: i for i, t in enumerate(["<pad>", "<eos>", "<bos>", "<unk>", "▁", *LETTERS])}
    tokenizer = Siglip2Tokenizer(vocab=vocab, merges=[], model_input_names=["input_ids"])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    config = Siglip2Config(
        text_config={**SIZES, "vocab_size": len(vocab), "max_position_embeddings": 64},
        vision_config={**SIZES, "num_patches": 16, "patch_size": 8},
    )
    Siglip2Model(config).save_pretrained(folder)
    images = Siglip2ImageProcessor(patch_size=8, max_num_patches=20)
    Siglip2Processor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def write_metaclip(folder: Path) -> Path:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    tokenizer = XLMRobertaTokenizer(vocab=[*pieces, *((c, -2.0) for c in LETTERS), ("<mask>", 0.0)])
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = MetaClip2Config(
        text_config={**SIZES, **ids, "vocab_size": len(tokenizer), "projection_dim": 16},
        vision_config={**SIZES, "image_size": 32, "patch_size": 8, "projection_dim": 16},
        projection_dim=16,
    )
    MetaClip2Model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(folder)
    return folder


def write_long(folder: Path) -> Path:
    """As Long-CLIP has it: CLIP with 248 positions."""
    shape = {**TINY, "text_config": {**TINY["text_config"], "max_position_embeddings": 248}}
    return write_random_clip(folder, shape, seed=0, corpus=TEXTS)


KINDS = {"siglip": write_siglip, "naflex": write_naflex, "metaclip": write_metaclip,
         "long": write_long}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return KINDS[request.param](tmp_path_factory.mktemp(request.param))


def matcher_of(folder: Path, batch_size: int = 16):
    return ClipMatcher(ScoreConfig(batch_size=batch_size, device="cpu"), resolve(str(folder)))


def pictures() -> tuple[list[np.ndarray], list[np.ndarray]]:
    draw = np.random.default_rng(0)
    coarse = [draw.integers(0, 255, size, np.uint8) for size in ((6, 9, 3), (12, 5, 3))]
    images = [
        np.array(Image.fromarray(c).resize((c.shape[1] * 12, c.shape[0] * 12), 3)) for c in coarse
    ]
    boxes = np.array([[0, 0, 60, 70], [3.4, 5.5, 40, 25], [10, 2, 19, 60], [0, 0, 60, 4.0]])
    return images, [boxes, boxes]


@torch.no_grad()
def test_embeddings_are_those_of_transformers(folder) -> None:
    matcher, model = matcher_of(folder), AutoModel.from_pretrained(folder).eval()
    assert isinstance(model, type(matcher.encoder.clip))
    processor = AutoProcessor.from_pretrained(folder)
    tokenizer = getattr(processor, "tokenizer", processor)
    padding = "max_length" if "iglip" in type(model).__name__ else True
    texts = tokenizer(
        TEXTS, padding=padding, truncation=True, max_length=matcher.context, return_tensors="pt"
    )
    wanted = normalize(model.get_text_features(**texts).pooler_output).numpy()
    np.testing.assert_allclose(matcher.embed_sentences(TEXTS), wanted, atol=2e-6)
    images, boxes = pictures()
    theirs = getattr(processor, "image_processor", None) or CLIPImageProcessor.from_pretrained(
        folder
    )
    for image, own, found in zip(images, boxes, matcher.embed_regions(images, boxes), strict=True):
        crops = [Image.fromarray(image).crop(box) for box in whole_pixel_boxes(image, own)]
        for crop, embedding in zip(crops, found, strict=True):
            inputs = theirs(images=crop, return_tensors="pt")
            [wanted] = normalize(model.get_image_features(**inputs).pooler_output).numpy()
            assert embedding @ wanted > 0.9995


def test_an_embedding_does_not_know_its_batch(folder) -> None:
    images, boxes = pictures()
    many, few, one = (matcher_of(folder, size) for size in (64, 3, 1))
    together, texts = many.embed_regions(images, boxes), many.embed_sentences(TEXTS)
    for matcher in (few, one):
        for own, theirs in zip(matcher.embed_regions(images, boxes), together, strict=True):
            assert np.array_equal(own, theirs)
        assert np.array_equal(matcher.embed_sentences(TEXTS), texts)
        assert np.array_equal(matcher.embed_sentences(TEXTS[2:3]), texts[2:3])


def test_each_says_its_own_scale(tmp_path) -> None:
    assert own_scale(resolve("mini-matcher")) == 40.3
    for dtype, scale in ((torch.float16, 98.1), (torch.bfloat16, 98.9)):
        stored = {"logit_scale": torch.tensor(4.587, dtype=dtype)}
        save_file(stored, tmp_path / "model.safetensors")
        assert own_scale(replace(resolve("mini-matcher"), path=tmp_path)) == scale
    model = resolve(str(write_siglip(tmp_path)))
    assert own_scale(model) == 118 == float(f"{math.exp(4.77):.3g}")
    assert own_scale(None) is None


@pytest.mark.parametrize("write", [write_siglip, write_naflex])
def test_siglip_2_reads_texts_in_lower_case_where_its_tokenizer_is_gemmas(tmp_path, write) -> None:
    folder = write_naflex(tmp_path / "naflex")
    said = folder / "tokenizer_config.json"
    values = json.loads(said.read_text())
    said.write_text(json.dumps({**values, "tokenizer_class": "GemmaTokenizer"}))
    if write is write_siglip:  # SigLIP 2 of fixed size, as published
        (tmp_path / "fixed").mkdir()
        fixed = write_siglip(tmp_path / "fixed")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(folder / name, fixed / name)
        folder = fixed
    theirs = Siglip2Tokenizer.from_pretrained(folder)
    found = SiglipTokenizer(folder).encode_closed(TEXTS, context=24)
    assert found == theirs(TEXTS, truncation=True, max_length=24).input_ids
    assert found[1] == SiglipTokenizer(folder).encode_closed([TEXTS[1].lower()], context=24)[0]


def refused(path: Path, said: str, match=matcher_of) -> None:
    """It neither matches nor is measured."""
    with pytest.raises(WeightsError, match=said):
        match(path)
    with pytest.raises(WeightsError, match=said):
        load_embedder(str(path), EvaluateConfig())


def test_a_tokenizer_of_more_tokens_than_embeddings_is_refused(tmp_path) -> None:
    folder = Path(shutil.copytree(mini_model("clip"), tmp_path / "clip"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["triangle", "crescent"])
    tokenizer.save_pretrained(folder)
    refused(folder, "its tokenizer has 969 tokens, but the weights have embeddings for 967")


def test_a_tokenizer_with_another_end_than_the_models_is_refused(tmp_path) -> None:
    folder = Path(shutil.copytree(mini_model("clip"), tmp_path / "clip"))
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 5
    (folder / "config.json").write_text(json.dumps(config))
    refused(folder, "ends a text with token 966, but its config.json says 5")


def test_a_file_of_weights_names_the_command_that_makes_a_folder(tmp_path) -> None:
    torch.save({}, tmp_path / "clip.pt")
    check = MATCHERS["clip"].check
    assert check is not None
    refused(
        tmp_path / "clip.pt", "glit import-model .*clip.pt -o",
        lambda path: check(ScoreConfig(), resolve(str(path))),
    )  # fmt: skip


def test_another_kind_is_refused_by_name(tmp_path) -> None:
    shutil.copytree(resolve("mini-matcher").path, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "blip"}))
    check = MATCHERS["clip"].check
    assert check is not None
    with pytest.raises(WeightsError, match="model_type 'blip'.*'metaclip_2', 'siglip', 'siglip2'"):
        check(ScoreConfig(), resolve(str(tmp_path)))


def test_what_is_matched_is_measured_alike(folder) -> None:
    matcher = matcher_of(folder)
    embedder = load_embedder(str(folder), EvaluateConfig(context=matcher.context, num_workers=0))
    np.testing.assert_allclose(embedder.texts(TEXTS), matcher.embed_sentences(TEXTS), atol=2e-6)
    images, _ = pictures()
    wholes = [np.array([[0.0, 0, image.shape[1], image.shape[0]]]) for image in images]
    wanted = np.concatenate(matcher.embed_regions(images, wholes))
    np.testing.assert_allclose(np.concatenate(list(embedder.pixels(images))), wanted, atol=2e-5)


def test_patches_of_a_naflex_model_are_refused_by_name(tmp_path) -> None:
    embedder = load_embedder(str(write_naflex(tmp_path)), EvaluateConfig(context=64))
    images, _ = pictures()
    squares = map(embedder.square, images)
    with pytest.raises(UserError, match="another grid of patches for every image"):
        next(embedder.encoded(squares, tokens=True))


def test_metaclip_2_learns_and_its_run_is_matched_and_measured(make_dataset, tmp_path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        folder, dataset = write_metaclip(tmp_path / "metaclip"), str(make_dataset(8))
    settings = TrainConfig(
        model=str(folder), objective="clip", batch_size=4, epochs=8, num_workers=0, trackers=(),
        context=77, log_every=1, lr=1e-3, warmup_steps=0,
    )  # fmt: skip
    train(settings, dataset, tmp_path / "run")
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(each) for each in text.splitlines()]
    losses = [each["loss"] for each in lines if "loss" in each]
    assert len(losses) == 16 and sum(losses[-4:]) < sum(losses[:4])
    found = find_model(str(tmp_path / "run")).folder
    assert isinstance(AutoModel.from_pretrained(found), MetaClip2Model)
    embedder = load_embedder(str(tmp_path / "run"), EvaluateConfig(context=77))
    texts = matcher_of(found).embed_sentences(TEXTS)
    np.testing.assert_allclose(embedder.texts(TEXTS), texts, atol=2e-6)
    assert not np.allclose(texts, matcher_of(folder).embed_sentences(TEXTS), atol=1e-3)


def test_a_naflex_model_cannot_be_trained_and_says_so(make_dataset, tmp_path) -> None:
    folder, dataset = write_naflex(tmp_path / "naflex"), str(make_dataset(8))
    settings = TrainConfig(model=str(folder), objective="siglip", batch_size=4, num_workers=0)
    with pytest.raises(RecipeError, match="images keep their shape.*measured and matched alone"):
        train(settings, dataset, tmp_path / "run")
