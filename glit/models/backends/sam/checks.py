"""Compare SAM's fast decoder with transformers' own modules.

It uses the modules' attributes, which another version of transformers may change. The check runs in
float32; the fast path is the same code in every dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glit.models.backends.sam.decoder import PointDecoder, plain_decoder
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.runtime.verified_paths import agrees, probe_input

if TYPE_CHECKING:
    from transformers import SamModel


def decoder_agrees(model: SamModel) -> bool:
    """Check the fast decoder against the plain one on a random image embedding and a point."""
    prompts: Any = model.prompt_encoder
    like = prompts.no_mask_embed.weight
    embedding = probe_input(1, like.shape[-1], *prompts.image_embedding_size, like=like)
    points_P2 = torch.tensor([[0.3, 0.6]], device=like.device) * prompts.input_image_size

    def plain() -> list[Tensor]:
        with no_tf32_convolutions():
            logits_PMhw, predicted_iou_PM = plain_decoder(model, embedding, points_P2)
        return [predicted_iou_PM, logits_PMhw[0]]

    def fast() -> list[Tensor]:
        decoder = PointDecoder(model, torch.float32)
        decoded = decoder.decode(decoder.project_images(embedding), points_P2[None])
        all_masks = torch.ones_like(decoded.predicted_iou_IPM, dtype=torch.bool)
        return [decoded.predicted_iou_IPM[0], decoder.mask_logits(decoded, all_masks)]

    return agrees(
        "SAM's mask decoder",
        package="transformers",
        kind=(type(model), model.device.type),
        fast=fast,
        plain=plain,
    )
