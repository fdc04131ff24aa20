"""A CLIP that computes next to nothing, so that what is made of its tokens can be done by hand."""

from __future__ import annotations

import torch
from transformers import CLIPConfig, CLIPModel

from glit.models.clip.encoder import ClipEncoder


def plain_model(*, text_layers: int = 1, projection: int = 2) -> CLIPModel:
    """Width 3, images of 2 x 2 patches of a pixel, a text window of 8.

    Final layer norms keep the order of (1, 0, -1) and of whatever else sums to zero with squares
    that sum to two; sums and lengths of others are made so. Projections take the first coordinates
    and double them. Layers hand tokens on as they are.
    """
    sizes = {"hidden_size": 3, "intermediate_size": 3, "num_attention_heads": 1,
             "layer_norm_eps": 0.0, "projection_dim": projection}  # fmt: skip
    config = CLIPConfig(
        text_config={**sizes, "num_hidden_layers": text_layers, "vocab_size": 20,
                     "max_position_embeddings": 8, "bos_token_id": 1, "eos_token_id": 2,
                     "pad_token_id": 2},
        vision_config={**sizes, "num_hidden_layers": 1, "image_size": 2, "patch_size": 1},
        projection_dim=projection,
    )  # fmt: skip
    model = CLIPModel(config).eval()
    with torch.no_grad():
        for norm in (model.vision_model.post_layernorm, model.text_model.final_layer_norm):
            norm.weight.fill_((2 / 3) ** 0.5)
        for linear in (model.visual_projection, model.text_projection):
            linear.weight.copy_(2 * torch.eye(projection, 3))
        for tower in (model.vision_model, model.text_model):
            for layer in tower.encoder.layers:
                for last in (layer.self_attn.out_proj, layer.mlp.fc2):
                    last.weight.zero_()
                    last.bias.zero_()
    return model


def plain_encoder() -> ClipEncoder:
    """Its towers; a token (1, 0, -1) is (2, 0) in the shared space, (0, 1, -1) is (0, 2)."""
    return ClipEncoder(plain_model(), mean=(0.5,) * 3, std=(0.5,) * 3)
