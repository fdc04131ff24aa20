"""A second opinion on pairs, by detectors of the real architectures with random weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from pretend_cuda import pretend_cuda

import glit
from glit.backends.phrase_detectors import Found, PhraseDetector, agreement
from glit.backends.weights import resolve
from glit.errors import WeightsError
from glit.recipes.resources import mini_model

PICTURE = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
PHRASES = ["a red ring", "a small dog", "a red ring"]


@pytest.fixture(scope="module")
def owl(tmp_path_factory):
    """OWLv2, tiny."""
    from transformers import (
        CLIPTokenizer,
        Owlv2Config,
        Owlv2ForObjectDetection,
        Owlv2ImageProcessor,
        Owlv2Processor,
    )

    folder = tmp_path_factory.mktemp("owl")
    tokenizer = CLIPTokenizer.from_pretrained(mini_model("matcher"), model_max_length=16)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2}  # fmt: skip
    ends = {"bos_token_id": 965, "eos_token_id": 966, "pad_token_id": 966}
    config = Owlv2Config(
        text_config={**shape, **ends, "vocab_size": 967, "max_position_embeddings": 16},
        vision_config={**shape, "image_size": 64, "patch_size": 16},
        projection_dim=32,
    )
    torch.manual_seed(0)
    Owlv2ForObjectDetection(config).save_pretrained(folder)
    size = {"height": 64, "width": 64}
    Owlv2Processor(Owlv2ImageProcessor(size=size), tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    """Grounding DINO, tiny."""
    from transformers import (
        BertTokenizer,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessor,
        GroundingDinoProcessor,
    )

    folder = tmp_path_factory.mktemp("dino")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "a", "red", "ring", "small", "dog"]
    vocabulary = {word: number for number, word in enumerate(words)}
    config = GroundingDinoConfig(
        backbone_config={"model_type": "swin", "image_size": 64, "patch_size": 4, "embed_dim": 16,
                         "depths": [1, 1, 1], "num_heads": [1, 2, 4], "window_size": 4,
                         "out_indices": [2, 3]},
        text_config={"model_type": "bert", "vocab_size": len(words), "hidden_size": 32,
                     "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=12,
        num_feature_levels=2,
    )  # fmt: skip
    torch.manual_seed(0)
    GroundingDinoForObjectDetection(config).save_pretrained(folder)
    pictures = GroundingDinoImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    GroundingDinoProcessor(pictures, BertTokenizer(vocab=vocabulary)).save_pretrained(folder)
    return folder


def opened(folder) -> PhraseDetector:
    return PhraseDetector(resolve(str(folder)), device="cpu", precision="float32")


@pytest.mark.parametrize("kind", ["owl", "dino"])
def test_boxes_are_in_pixels_and_equal_phrases_have_equal_answers(kind, request, monkeypatch):
    monkeypatch.setattr("glit.backends.phrase_detectors.LOWEST_SCORE", 0.0)
    found = opened(request.getfixturevalue(kind)).find(PICTURE, PHRASES)
    assert len(found) == 3 and found[0] is found[2]
    assert len(found[0].boxes) > 0 and len(found[0].boxes) == len(found[0].scores)
    assert all(((f.scores >= 0) & (f.scores <= 1)).all() for f in found)
    corners = np.concatenate([f.boxes for f in found])
    assert corners[:, 2:].max() > 10  # pixels, not shares


def test_owl_answers_as_its_own_pipeline_does(owl, monkeypatch):
    from transformers import pipeline

    monkeypatch.setattr("glit.backends.phrase_detectors.LOWEST_SCORE", 0.0)
    [found] = opened(owl).find(PICTURE, ["a red ring"])
    asked = pipeline("zero-shot-object-detection", model=str(owl))
    wanted = asked(Image.fromarray(PICTURE), candidate_labels=["a red ring"], threshold=0.0)
    np.testing.assert_allclose(
        sorted(found.scores), sorted(each["score"] for each in wanted), atol=1e-5
    )


def test_agreement_is_the_highest_score_of_a_detection_on_the_region():
    boxes = np.array([[0.0, 0, 10, 10], [20, 0, 30, 10]])
    seen = Found(
        boxes=np.array([[0.0, 0, 10, 9], [1, 0, 10, 10], [24, 0, 40, 10]]),
        scores=np.array([0.3, 0.6, 0.9], dtype=np.float32),
    )
    nothing = Found(boxes=np.zeros((0, 4)), scores=np.zeros(0, dtype=np.float32))
    np.testing.assert_allclose(agreement([seen, nothing], boxes), [[0.6, 0], [0, 0]], atol=1e-6)


def test_a_model_that_cannot_be_asked_is_refused():
    with pytest.raises(WeightsError, match=r"score.opinion wants .*owlv2.*found clip"):
        opened(mini_model("matcher"))


def test_a_build_keeps_what_the_detector_says(owl, scenes, tmp_path):
    out = tmp_path / "out"
    dataset = glit.build(
        scenes / "images", out, recipe="mini", executor="local", quiet=True,
        captions=scenes / "captions.jsonl",
        settings=[f"score.opinion={owl}"],
    )  # fmt: skip
    row = next(iter(dataset.rows(images=False)))
    assert row.agreement is not None and row.agreement.shape == row.similarity.shape
    assert ((row.agreement >= 0) & (row.agreement <= 1)).all()
    assert glit.verify(out) == []
    manifest = json.loads((out / "manifest.json").read_text())
    assert "opinion" in manifest["models"]


@pytest.mark.parametrize("kind", ["owl", "dino"])
def test_on_a_pretended_gpu_it_finds_the_same(kind, request):
    folder = str(request.getfixturevalue(kind))

    def found_on(device):
        detector = PhraseDetector(resolve(folder), device=device, precision="float32")
        return detector.find(PICTURE, PHRASES)

    wanted = found_on("cpu")
    with pretend_cuda():
        found = found_on("cuda")
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.boxes, b.boxes, atol=1e-3)
        np.testing.assert_allclose(a.scores, b.scores, atol=1e-5)
