"""Segment-anything's own checkpoints (``sam_vit_{b,l,h}_*.pth``) under transformers' names.

The names of both differ, the tensors do not. The shape follows from the tensors; the number of
attention heads of the mask decoder, which no tensor tells, is the published one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import SamConfig, SamImageProcessor, SamModel

PREFIX = "image_encoder."
"""Prefix of the image encoder's tensors in segment-anything; no CLIP has such names."""
POSITIONS = "shared_image_embedding.positional_embedding"
TIED = "prompt_encoder.shared_embedding.positional_embedding"
"""The second name of the same tensor in a SamModel."""
DECODER_NORM_EPS = 1e-5
"""Of the mask decoder's transformer in segment-anything; transformers' default is 1e-6."""
_PATTERNS = (
    (r"^image_encoder\.", "vision_encoder."),
    (r"\.blocks\.", ".layers."),
    (r"patch_embed\.proj\.", "patch_embed.projection."),
    (r"\.norm(\d)\.", r".layer_norm\1."),
    (r"\.norm_final_attn\.", ".layer_norm_final_attn."),
    (r"neck\.0\.", "neck.conv1."),
    (r"neck\.1\.", "neck.layer_norm1."),
    (r"neck\.2\.", "neck.conv2."),
    (r"neck\.3\.", "neck.layer_norm2."),
    (r"^prompt_encoder\.pe_layer\.positional_encoding_gaussian_matrix$", POSITIONS),
    (r"\.point_embeddings\.", ".point_embed."),
    (r"\.mask_downscaling\.0\.", ".mask_embed.conv1."),
    (r"\.mask_downscaling\.1\.", ".mask_embed.layer_norm1."),
    (r"\.mask_downscaling\.3\.", ".mask_embed.conv2."),
    (r"\.mask_downscaling\.4\.", ".mask_embed.layer_norm2."),
    (r"\.mask_downscaling\.6\.", ".mask_embed.conv3."),
    (r"\.output_upscaling\.0\.", ".upscale_conv1."),
    (r"\.output_upscaling\.1\.", ".upscale_layer_norm."),
    (r"\.output_upscaling\.3\.", ".upscale_conv2."),
    (r"(_mlps\.\d|_head)\.layers\.0\.", r"\1.proj_in."),
    (r"(_mlps\.\d|_head)\.layers\.1\.", r"\1.layers.0."),
    (r"(_mlps\.\d|_head)\.layers\.2\.", r"\1.proj_out."),
)


def transformers_name(name: str) -> str:
    """The name of one of segment-anything's tensors in a ``SamModel``.

    >>> transformers_name("image_encoder.blocks.3.norm1.weight")
    'vision_encoder.layers.3.layer_norm1.weight'
    """
    for pattern, replacement in _PATTERNS:
        name = re.sub(pattern, replacement, name)
    return name


def sam_weights(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Segment-anything's tensors under transformers' names."""
    return {transformers_name(name): value for name, value in found.items()}


def sam_config(weights: Mapping[str, Tensor]) -> SamConfig:
    """The shape of a model, from its tensors under transformers' names.

    Raises:
        KeyError: they are of no ViT, or lack one that the shape is read from.
    """
    from transformers import SamConfig

    patches = weights["vision_encoder.patch_embed.projection.weight"]
    side = weights["vision_encoder.pos_embed"].shape[1]
    offsets = []
    while (name := f"vision_encoder.layers.{len(offsets)}.attn.rel_pos_h") in weights:
        offsets.append(weights[name].shape[0])
    windows = [(count + 1) // 2 for count in offsets if count != 2 * side - 1]
    width, patch = patches.shape[0], patches.shape[-1]
    channels = weights["vision_encoder.neck.conv1.weight"].shape[0]
    sizes = {"image_size": side * patch, "patch_size": patch}
    return SamConfig(
        vision_config={
            **sizes,
            "hidden_size": width,
            "num_hidden_layers": len(offsets),
            "num_attention_heads": (
                width // weights["vision_encoder.layers.0.attn.rel_pos_h"].shape[1]
            ),
            "mlp_dim": weights["vision_encoder.layers.0.mlp.lin1.weight"].shape[0],
            "output_channels": channels,
            "window_size": windows[0] if windows else 0,
            "global_attn_indexes": [n for n, c in enumerate(offsets) if c == 2 * side - 1],
            "num_pos_feats": weights[POSITIONS].shape[1],
        },
        prompt_encoder_config={**sizes, "hidden_size": channels},
        mask_decoder_config={
            "hidden_size": channels,
            "mlp_dim": weights["mask_decoder.transformer.layers.0.mlp.lin1.weight"].shape[0],
            "iou_head_hidden_dim": (
                weights["mask_decoder.iou_prediction_head.proj_in.weight"].shape[0]
            ),
            "layer_norm_eps": DECODER_NORM_EPS,
        },
    )


def sam_model(config: SamConfig, weights: Mapping[str, Tensor]) -> SamModel:
    """A model of that shape with tensors under transformers' names, in float32."""
    from transformers import SamModel

    with torch.device("meta"):
        model = SamModel(config)
    model.load_state_dict({**weights, TIED: weights[POSITIONS]}, assign=True)
    model.tie_weights()
    return model.float()


def sam_processor(config: SamConfig, **normalisation: Any) -> SamImageProcessor:
    """The image processor of a model: its side, and ImageNet's mean and deviation by default."""
    from transformers import SamImageProcessor

    vision: Any = config.vision_config
    side, masks = vision.image_size, 4 * vision.image_size // vision.patch_size
    return SamImageProcessor(
        size={"longest_edge": side},
        pad_size={"height": side, "width": side},
        mask_size={"longest_edge": masks},
        mask_pad_size={"height": masks, "width": masks},
        **normalisation,
    )
