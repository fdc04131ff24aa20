"""Compare SAM's fast decoder and encoder with segment-anything's own modules.

They use the modules' attributes, which another version or a fork of segment-anything may change.
The checks run in float32; the fast paths are the same code in every dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glit.backends.sam.decoder import PointDecoder, published_decoder
from glit.backends.sam.encoder import encode, published_encoder
from glit.backends.sam.model import SamConfig, build_image_encoder
from glit.gpu.convolutions import no_tf32_convolutions
from glit.runtime.verified_paths import agrees, probe_input

if TYPE_CHECKING:
    from segment_anything.modeling import Sam

_TINY = SamConfig(
    image_size=40,
    patch_size=8,
    embed_dim=16,
    depth=2,
    num_heads=2,
    global_attn_indexes=(1,),
    window_size=3,
    prompt_dim=16,
)
"""A block of each kind of attention; windows of 3 do not fit into 5 x 5 patches."""


def decoder_agrees(model: Sam) -> bool:
    """Check the fast decoder against the published one on a random image embedding and a point."""

    def inputs() -> tuple[Tensor, Tensor]:
        prompt_encoder: Any = model.prompt_encoder
        like = prompt_encoder.no_mask_embed.weight
        height, width = prompt_encoder.image_embedding_size
        embedding = probe_input(1, like.shape[-1], height, width, like=like)
        point = torch.tensor([[0.3, 0.6]], device=like.device) * model.image_encoder.img_size
        return embedding, point

    def plain() -> list[Tensor]:
        with no_tf32_convolutions():
            logits_PMhw, predicted_iou_PM = published_decoder(model, *inputs())
        return [predicted_iou_PM, logits_PMhw[0]]

    def fast() -> list[Tensor]:
        embedding, points_P2 = inputs()
        decoder = PointDecoder(model, torch.float32)
        decoded = decoder.decode(decoder.project_images(embedding), points_P2[None])
        all_masks = torch.ones_like(decoded.predicted_iou_IPM, dtype=torch.bool)
        return [decoded.predicted_iou_IPM[0], decoder.mask_logits(decoded, all_masks)]

    return agrees(
        "SAM's mask decoder",
        package="segment-anything",
        kind=(type(model), model.device.type),
        fast=fast,
        plain=plain,
    )


def encoder_agrees(encoder: Any) -> bool:
    """Two random images through a tiny encoder of the same class.

    The loaded encoder takes images of one size only and needs seconds for one.
    """
    if not hasattr(encoder, "blocks"):
        return True  # TinyViT, which has no fast path

    def outputs(run: Any) -> list[Tensor]:
        like = next(encoder.parameters())
        with torch.random.fork_rng(devices=[]):  # random weights are drawn, then replaced
            tiny = build_image_encoder(_TINY).to(like.device)
        for seed, parameter in enumerate(tiny.parameters()):
            parameter.copy_(probe_input(*parameter.shape, like=parameter, seed=seed))
        side = _TINY.image_size
        with no_tf32_convolutions():
            return [run(tiny, probe_input(2, 3, side, side, like=like))]

    return agrees(
        "SAM's image encoder",
        package="segment-anything",
        kind=(type(encoder), next(encoder.parameters()).device.type),
        fast=lambda: outputs(encode),
        plain=lambda: outputs(published_encoder),
    )
