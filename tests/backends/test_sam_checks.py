"""SAM's fast paths are used with the segment-anything they were written for, and no other."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import segment_anything.modeling.image_encoder as image_encoder
import segment_anything.modeling.transformer as transformer
import torch

from glit.backends.sam.automatic import AutomaticMasks
from glit.backends.sam.checks import encoder_agrees
from glit.backends.sam.encoder import encode, published_encoder
from glit.backends.sam.model import SamConfig, build_sam, load_sam
from glit.images import decode
from glit.models.weights import resolve
from glit.runtime.verified_paths import FastPathWarning

pytestmark = pytest.mark.usefixtures("fresh_verdicts")


@pytest.fixture
def segmenter():
    model, _, thresholds = load_sam(resolve("mini-segmenter").path)
    return model, thresholds


@pytest.fixture(scope="module")
def pictures(scenes):
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:2]]


def scaled(real):
    """The forward of an attention whose output another version has scaled."""
    return lambda self, *arguments, **named: 1.1 * real(self, *arguments, **named)


def assert_equal(found, wanted):
    assert sum(len(each.boxes) for each in wanted) > 2
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a.boxes, b.boxes) and np.array_equal(a.area_px, b.area_px)
        assert np.array_equal(a.predicted_iou, b.predicted_iou)
        assert np.array_equal(a.stability_score, b.stability_score)


def test_with_segment_anything_itself_both_are_used(segmenter):
    masks = AutomaticMasks(*segmenter)
    assert masks._decoder is not None and masks._encode is encode


def test_the_check_leaves_the_random_state_alone(segmenter):
    before = torch.random.get_rng_state()
    AutomaticMasks(*segmenter)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("change", ["raises", "gives other numbers"])
def test_another_decoder_is_run_as_it_is(segmenter, pictures, monkeypatch, change):
    model, thresholds = copy.deepcopy(segmenter[0]), segmenter[1]
    if change == "raises":
        del model.mask_decoder.transformer.final_attn_token_to_image.internal_dim
    else:
        attention = transformer.Attention
        monkeypatch.setattr(attention, "forward", scaled(attention.forward))
    wanted = AutomaticMasks(model, thresholds, exact=True)(pictures)
    with pytest.warns(
        FastPathWarning, match="SAM's mask decoder .* with segment-anything 1.0"
    ) as seen:
        masks = AutomaticMasks(model, thresholds)
        AutomaticMasks(model, thresholds, dtype=torch.bfloat16)
    assert len(seen) == 1 and masks._decoder is None
    assert_equal(masks(pictures), wanted)


def rename_window_size(monkeypatch):
    """Blocks that call their ``window_size`` by another name."""
    block = image_encoder.Block
    make, run = block.__init__, block.forward

    def renamed(self, *arguments, **named):
        make(self, *arguments, **named)
        self.window = self.__dict__.pop("window_size")

    def forward(self, x):
        self.window_size = self.window
        try:
            return run(self, x)
        finally:
            del self.window_size

    monkeypatch.setattr(block, "__init__", renamed)
    monkeypatch.setattr(block, "forward", forward)


@pytest.mark.parametrize("change", ["raises", "gives other numbers"])
def test_another_encoder_is_run_as_it_is(pictures, monkeypatch, change):
    if change == "raises":
        rename_window_size(monkeypatch)
    else:
        attention = image_encoder.Attention
        monkeypatch.setattr(attention, "forward", scaled(attention.forward))
    model, _, thresholds = load_sam(resolve("mini-segmenter").path)
    with pytest.warns(
        FastPathWarning, match="SAM's image encoder .* with segment-anything 1.0"
    ) as seen:
        masks = AutomaticMasks(model, thresholds)
        AutomaticMasks(model, thresholds)
    assert len(seen) == 1 and masks._encode is published_encoder
    pixels = torch.randn(1, 3, 128, 128)
    with torch.inference_mode():
        assert torch.equal(masks._encode(model.image_encoder, pixels), model.image_encoder(pixels))
    assert sum(len(each.boxes) for each in masks(pictures)) > 2


def test_a_window_partition_of_another_kind_is_noticed(segmenter, monkeypatch):
    real = image_encoder.window_partition
    monkeypatch.setattr(image_encoder, "window_partition", lambda x, size: real(x.flip(1), size))
    with pytest.warns(FastPathWarning, match="other numbers"):
        assert not encoder_agrees(segmenter[0].image_encoder)


def test_tiny_vit_has_nothing_to_check():
    config = SamConfig(encoder="tiny_vit", image_size=64, prompt_dim=32, decoder_mlp_dim=64)
    assert encoder_agrees(build_sam(config).image_encoder)
