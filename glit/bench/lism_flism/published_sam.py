"""Segment-anything's own model of the shape, and with the weights, of a ``SamModel``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from glit.models.importers.sam import transformers_name

if TYPE_CHECKING:
    from segment_anything.modeling import Sam as PublishedSam
    from transformers import SamConfig

    from glit.models.backends.sam.model import Sam


def published_sam(sam: Sam) -> PublishedSam:
    """The same weights in segment-anything's modules, in evaluation mode."""
    model = build_published(sam.model.config, mean=sam.pixel_mean, std=sam.pixel_std)
    weights = sam.model.state_dict()
    model.load_state_dict({name: weights[transformers_name(name)] for name in model.state_dict()})
    return model


def build_published(
    config: SamConfig,
    *,
    mean: tuple[float, ...] = (123.675, 116.28, 103.53),
    std: tuple[float, ...] = (58.395, 57.12, 57.375),
) -> PublishedSam:
    """A model with random weights, in evaluation mode.

    Args:
        config: its shape.
        mean: of red, green and blue, from 0 to 255.
        std: the same of their deviation.
    """
    from segment_anything.modeling import (
        ImageEncoderViT,
        MaskDecoder,
        PromptEncoder,
        Sam,
        TwoWayTransformer,
    )
    from torch import nn

    vision: Any = config.vision_config
    decoder: Any = config.mask_decoder_config
    norm: Any = partial(nn.LayerNorm, eps=vision.layer_norm_eps)
    side = vision.image_size // vision.patch_size
    encoder = ImageEncoderViT(
        img_size=vision.image_size,
        patch_size=vision.patch_size,
        embed_dim=vision.hidden_size,
        depth=vision.num_hidden_layers,
        num_heads=vision.num_attention_heads,
        mlp_ratio=vision.mlp_dim / vision.hidden_size,
        norm_layer=norm,
        qkv_bias=vision.qkv_bias,
        use_rel_pos=vision.use_rel_pos,
        global_attn_indexes=tuple(vision.global_attn_indexes),
        window_size=vision.window_size,
        out_chans=vision.output_channels,
    )
    prompt_encoder = PromptEncoder(
        embed_dim=vision.output_channels,
        image_embedding_size=(side, side),
        input_image_size=(vision.image_size, vision.image_size),
        mask_in_chans=16,
    )
    mask_decoder = MaskDecoder(
        num_multimask_outputs=3,
        transformer=TwoWayTransformer(
            depth=decoder.num_hidden_layers,
            embedding_dim=decoder.hidden_size,
            mlp_dim=decoder.mlp_dim,
            num_heads=decoder.num_attention_heads,
        ),
        transformer_dim=decoder.hidden_size,
        iou_head_depth=decoder.iou_head_depth,
        iou_head_hidden_dim=decoder.iou_head_hidden_dim,
    )
    return Sam(encoder, prompt_encoder, mask_decoder, list(mean), list(std)).eval()
