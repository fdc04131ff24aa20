"""Encoders with a shortened last layer answer as transformers' own."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    YolosConfig,
    YolosForObjectDetection,
)

from glit.backends.last_layer import keep_class_token, keep_detection_tokens
from glit.backends.matchers.clip import ClipMatcher
from glit.backends.proposers import PROPOSERS
from glit.backends.weights import resolve
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig

ATTENTIONS = ["eager", "sdpa"]


def shaken(model):
    """Biases, positions and tokens that start at zero would hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


@torch.inference_mode()
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_clip_embeds_images_as_before(attention):
    config = CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        image_size=32, patch_size=8, projection_dim=16,
    )  # fmt: skip
    config._attn_implementation = attention
    model = shaken(CLIPVisionModelWithProjection(config))
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    whole = model(pixel_values=pixels)
    keep_class_token(model.vision_model)
    shortened = model(pixel_values=pixels)
    torch.testing.assert_close(shortened.image_embeds, whole.image_embeds, atol=1e-5, rtol=1e-4)
    assert shortened.last_hidden_state.shape == (3, 1, 32)
    assert not torch.allclose(whole.image_embeds[0], whole.image_embeds[1], atol=1e-2)


@torch.inference_mode()
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("mid_positions", [False, True])
def test_yolos_detects_as_before_at_any_size(attention, mid_positions):
    config = YolosConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        image_size=[64, 96], patch_size=16, num_detection_tokens=6, num_labels=3,
        use_mid_position_embeddings=mid_positions,
    )  # fmt: skip
    config._attn_implementation = attention
    model = shaken(YolosForObjectDetection(config))
    generator = torch.Generator().manual_seed(2)
    # more sizes than are kept, and all of them again, some while they are and some when not
    sizes = [(64, 96), (96, 64), (48, 80), (80, 80), (128, 32), (64, 64)]
    images = [torch.randn(2, 3, *size, generator=generator) for size in sizes * 2]
    images += [images[-1], images[0]]
    whole = [model(pixel_values=pixels) for pixels in images]
    keep_detection_tokens(model)
    for pixels, wanted in zip(images, whole, strict=True):
        found = model(pixel_values=pixels)
        torch.testing.assert_close(found.logits, wanted.logits, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.pred_boxes, wanted.pred_boxes, atol=1e-5, rtol=1e-4)


def test_the_backends_use_it():
    matcher = ClipMatcher(ScoreConfig(device="cpu"), resolve("mini-matcher"))
    side = matcher.spec.side
    with torch.inference_mode():
        seen = matcher.model.vision_model(pixel_values=torch.zeros(1, 3, side, side))
    assert seen.last_hidden_state.shape[1] == 1
    yolos = PROPOSERS["yolos"].make(ProposeConfig(device="cpu"), resolve("mini-proposer"))
    height, width = yolos.model.config.image_size
    with torch.inference_mode():
        seen = yolos.model(pixel_values=torch.zeros(1, 3, height, width))
    assert seen.last_hidden_state.shape[1] == yolos.model.config.num_detection_tokens
