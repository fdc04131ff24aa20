"""Encoders with a shortened last layer answer as transformers' own."""

from __future__ import annotations

from importlib.metadata import version

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    YolosConfig,
    YolosForObjectDetection,
)
from transformers.models.clip.modeling_clip import CLIPAttention
from transformers.models.yolos.modeling_yolos import (
    InterpolateInitialPositionEmbeddings,
    YolosEmbeddings,
    YolosSelfAttention,
)

from glit.backends.last_layer import keep_class_token, keep_detection_tokens
from glit.backends.matchers.clip import ClipMatcher
from glit.backends.onednn import OneDnnLinear
from glit.backends.proposers import PROPOSERS
from glit.backends.weights import resolve
from glit.runtime.verified_paths import FastPathWarning
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig

ATTENTIONS = ["eager", "sdpa"]


def shaken(model):
    """Seeded weights, none of them zero: biases and positions at zero would hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.copy_(1 + scale if name.endswith("norm.weight") else scale)
    return model.eval()


def a_clip(attention="sdpa", precision=torch.float32):
    config = CLIPVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        image_size=32, patch_size=8, projection_dim=16,
    )  # fmt: skip
    config._attn_implementation = attention
    return shaken(CLIPVisionModelWithProjection(config)).to(precision)


def a_yolos(attention="sdpa", precision=torch.float32, *, mid_positions=True):
    config = YolosConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        image_size=[64, 96], patch_size=16, num_detection_tokens=6, num_labels=3,
        use_mid_position_embeddings=mid_positions,
    )  # fmt: skip
    config._attn_implementation = attention
    return shaken(YolosForObjectDetection(config)).to(precision)


@torch.inference_mode()
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_clip_embeds_images_as_before(attention):
    model = a_clip(attention)
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
    model = a_yolos(attention, mid_positions=mid_positions)
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
    assert type(matcher.model.visual_projection) is OneDnnLinear
    yolos = PROPOSERS["yolos"].make(ProposeConfig(device="cpu"), resolve("mini-proposer"))
    height, width = yolos.model.config.image_size
    with torch.inference_mode():
        seen = yolos.model(pixel_values=torch.zeros(1, 3, height, width))
    assert seen.last_hidden_state.shape[1] == yolos.model.config.num_detection_tokens
    assert type(yolos.model.bbox_predictor.layers[0]) is OneDnnLinear


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_precision_is_no_reason_to_fall_back(precision, fresh_verdicts):
    tower, yolos = a_clip(precision=precision).vision_model, a_yolos(precision=precision)
    keep_class_token(tower)
    keep_detection_tokens(yolos)
    assert hasattr(tower.encoder.layers[-1], "layer") and hasattr(
        yolos.vit.encoder.layer[-1], "layer"
    )


def scaled(real):
    """The forward of an attention whose output another release has scaled."""

    def forward(self, *arguments, **named):
        output, weights = real(self, *arguments, **named)
        return 1.1 * output, weights

    return forward


@torch.inference_mode()
@pytest.mark.parametrize("change", ["raises", "gives other numbers"])
def test_with_another_transformers_clip_stays_whole(change, monkeypatch, fresh_verdicts):
    model = a_clip()
    tower = model.vision_model
    if change == "raises":
        del tower.encoder.layers[-1].self_attn.num_heads
    else:
        monkeypatch.setattr(CLIPAttention, "forward", scaled(CLIPAttention.forward))
    pixels = torch.randn(3, 3, 32, 32)
    wanted = model(pixel_values=pixels)
    with pytest.warns(
        FastPathWarning, match=f"CLIP.*with transformers {version('transformers')}"
    ) as seen:
        keep_class_token(tower)
        keep_class_token(tower)
    assert len(seen) == 1
    found = model(pixel_values=pixels)
    assert torch.equal(found.image_embeds, wanted.image_embeds)
    assert torch.equal(found.last_hidden_state, wanted.last_hidden_state)


def embed_with_mode_last(self, pixels):
    """The forward of YOLOS' embeddings in a release whose interpolation takes a mode as well."""
    patches = self.patch_embeddings(pixels)
    first, last = (t.expand(len(patches), -1, -1) for t in (self.cls_token, self.detection_tokens))
    tokens = torch.cat([first, patches, last], dim=1)
    return tokens + self.interpolation(self.position_embeddings, tuple(pixels.shape[2:]), "bicubic")


@torch.inference_mode()
@pytest.mark.parametrize("change", ["raises", "gives other numbers", "takes another argument"])
def test_with_another_transformers_yolos_stays_whole(change, monkeypatch, fresh_verdicts):
    model = a_yolos(mid_positions=False)
    if change == "raises":
        del model.vit.encoder.interpolation
    elif change == "gives other numbers":
        monkeypatch.setattr(YolosSelfAttention, "forward", scaled(YolosSelfAttention.forward))
    else:
        real = InterpolateInitialPositionEmbeddings.forward
        monkeypatch.setattr(YolosEmbeddings, "forward", embed_with_mode_last)
        monkeypatch.setattr(
            InterpolateInitialPositionEmbeddings,
            "forward",
            lambda self, positions, size, mode: real(self, positions, size),
        )
    images = [torch.randn(2, 3, *size) for size in [(64, 96), (96, 64), (64, 96)]]
    wanted = [model(pixel_values=pixels) for pixels in images]
    with pytest.warns(
        FastPathWarning, match=f"YOLOS.*with transformers {version('transformers')}"
    ) as seen:
        keep_detection_tokens(model)
        keep_detection_tokens(model)
    assert len(seen) == 1
    for pixels, before in zip(images, wanted, strict=True):
        found = model(pixel_values=pixels)
        assert torch.equal(found.logits, before.logits)
        assert torch.equal(found.pred_boxes, before.pred_boxes)
        assert torch.equal(found.last_hidden_state, before.last_hidden_state)
