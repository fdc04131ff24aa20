from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from glit.models.tokenizer import tokenizer_hash
from tools.mini.evaluate import (
    MINI,
    Sample,
    caption_scenes,
    evaluate_grounder,
    evaluate_matcher,
    evaluate_proposer,
    evaluate_segmenter,
    num_matched,
    objects_told,
    samples,
    score_captions,
)
from tools.mini.report import flow_figures

ROOT = Path(__file__).parent.parent
NUM_SCENES = 100
MODELS = ("matcher", "clip", "proposer", "grounder", "segmenter", "captioner")


@pytest.fixture(scope="module")
def tests() -> list[Sample]:
    torch.set_num_threads(1)
    return samples(NUM_SCENES)


@pytest.fixture(scope="module")
def captions(tests: list[Sample]) -> list[str]:
    return caption_scenes(MINI / "captioner", tests)


@pytest.mark.parametrize("name", MODELS)
def test_files(name: str) -> None:
    folder = ROOT / MINI / name
    size = (folder / "model.safetensors").stat().st_size
    assert 3e6 <= size <= 8.3e6
    assert not list(folder.glob("*.bin")) and not list(folder.glob("*.pt"))
    assert "dtype" not in json.loads((folder / "config.json").read_text()) or (
        json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    )
    card = (folder / "README.md").read_text()
    for word in ("Data", "Steps", "Figures", "Date", "Licence"):
        assert word in card
    manifest = tomllib.loads((ROOT / "manifests" / "weights.toml").read_text())
    assert manifest[f"mini-{name}"]["mini"] == name


@pytest.mark.slow
def test_matcher(tests: list[Sample]) -> None:
    figures = evaluate_matcher(MINI / "matcher", tests)
    assert figures["sentence_to_box"] >= 0.95
    assert figures["shape_in_colour"] >= 0.75
    assert figures["short_r1"] >= 0.75


@pytest.mark.slow
def test_clip_reads_short_captions_and_has_regions_and_long_ones_to_learn(tests) -> None:
    figures = evaluate_matcher(MINI / "clip", tests)
    assert figures["short_r1"] >= 0.75
    assert figures["shape_in_colour"] < 0.3
    assert figures["long_r1"] < figures["short_r1"] - 0.15


def test_clip_has_the_matcher_s_token_spans() -> None:
    assert tokenizer_hash(MINI / "clip") == tokenizer_hash(MINI / "matcher")


def test_matcher_context_is_77_and_its_tokenizer_knows_every_text() -> None:
    from transformers import AutoTokenizer, CLIPModel

    model = CLIPModel.from_pretrained(MINI / "matcher")
    tokenizer = AutoTokenizer.from_pretrained(MINI / "matcher")
    assert model.dtype == torch.float32
    assert model.config.text_config.max_position_embeddings == tokenizer.model_max_length == 77
    assert tokenizer.eos_token_id == model.config.text_config.eos_token_id == len(tokenizer) - 1
    for text in ("naïve café", "日本語の文", "smile 😀", "“curly” &amp; <b>"):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.eos_token_id not in ids[1:-1]
        said = tokenizer.decode(ids, skip_special_tokens=True)
        assert said.replace(" ", "") == text.replace(" ", "").lower()


@pytest.mark.slow
def test_proposer(tests: list[Sample]) -> None:
    figures = evaluate_proposer(MINI / "proposer", tests)
    assert figures["recall"] >= 0.93
    assert figures["precision"] >= 0.83


@pytest.mark.slow
def test_grounder() -> None:
    """On hard scenes, where things differ by a pattern or a size alone."""
    figures = evaluate_grounder(MINI / "grounder", samples(NUM_SCENES, level="hard"))
    assert figures["phrase_recall"] >= 0.95 and figures["phrase_precision"] >= 0.95
    assert figures["drawn_recall"] >= 0.95 and figures["drawn_precision"] >= 0.95


@pytest.mark.slow
def test_segmenter(tests: list[Sample]) -> None:
    figures = evaluate_segmenter(MINI / "segmenter", tests[:50], num_automatic=20)
    assert figures["point_iou"] >= 0.77
    assert figures["auto_recall"] >= 0.80


@pytest.mark.slow
def test_captioner(tests: list[Sample], captions: list[str]) -> None:
    figures = score_captions(captions, tests)
    assert figures["true_sentences"] >= 0.75
    assert figures["told_per_object"] == pytest.approx(1.0, abs=0.05)
    assert figures["well_formed"] >= 0.97
    assert figures["background"] >= 0.93


@pytest.mark.slow
def test_whole_flow(tmp_path: Path) -> None:
    figures = flow_figures(tmp_path, 32)
    assert figures["own_right_region"] >= 0.85
    assert figures["mini_right_region"] >= 0.80


def test_captioner_ignores_the_words_of_the_request() -> None:
    from transformers import LlavaNextProcessor

    processor = LlavaNextProcessor.from_pretrained(MINI / "captioner")
    for text in ("", "Describe the picture. " * 200, "日本 <image> </s>"):
        request = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
        prompt = processor.apply_chat_template(request, add_generation_prompt=True)
        assert prompt == "<s><image><caption>"


def test_what_a_caption_tells() -> None:
    told = objects_told("On the left there is a small dotted red ring. There is a cat.")
    assert [(t.place, t.size, t.pattern, t.colour, t.shape) for t in told] == [
        (3, "small", "dotted", "red", "ring")
    ]


def test_each_found_box_counts_once():
    true = np.array([[0, 0, 10, 10], [20, 20, 30, 30]], dtype=float)
    twice = np.array([[0, 0, 10, 10], [0, 0, 10, 9]], dtype=float)
    assert num_matched(twice, true) == 1
    assert num_matched(true[::-1], true) == 2
    assert num_matched(np.zeros((0, 4)), true) == 0
