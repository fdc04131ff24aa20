"""Regions by one pass over the whole image: the mean of the patch tokens under each box.

For CLIPs that were trained to it (``glit train --objective glit``). In the last layer every patch
attends to itself alone (MaskCLIP, Zhou et al. 2022): on scenes this is better for every objective
(docs/experiments.md). Images are squeezed into the square; at another side than the model's own its
position embeddings are interpolated.

Shapes: B images, S side, P patches, H width, R regions, D width of the shared space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glit.backends.matchers.crops import CropSpec
from glit.data.geometry import Boxes
from glit.images import Pixels


def fitted(images: Sequence[Pixels], spec: CropSpec, *, side: int) -> Float[Tensor, "b 3 s s"]:
    """Whole images squeezed into the square and normalised."""
    from glit.clip.preprocess import fit_image

    pixels = torch.stack([fit_image(image, side=side, fit="resize") for image in images]).float()
    mean, std = (torch.tensor(each).view(3, 1, 1) * 255 for each in (spec.mean, spec.std))
    return pixels.sub_(mean).div_(std)


def encode(model: Any, pixels: Float[Tensor, "b 3 s s"]) -> tuple[Any, Any]:
    """Patch tokens [B, P, H] that attend to themselves alone in the last layer, and the projected
    embeddings of the whole images [B, D], not normalised."""
    tower = model.vision_model
    output = tower(pixel_values=pixels, interpolate_pos_encoding=True, output_hidden_states=True)
    before, layer = output.hidden_states[-2][:, 1:], tower.encoder.layers[-1]
    attention = layer.self_attn
    middle = before + attention.out_proj(attention.v_proj(layer.layer_norm1(before)))
    tokens = middle + layer.mlp(layer.layer_norm2(middle))
    return tokens, model.visual_projection(output.pooler_output)


def pooled(
    model: Any, tokens_PH: Float[Tensor, "p h"], image: Pixels, boxes: Boxes, *, patch: int
) -> Float[Tensor, "r d"]:
    """The regions of one image, projected and not normalised."""
    from glit.clip.pooling import coverage
    from glit.clip.preprocess import fit_boxes

    grid = round(len(tokens_PH) ** 0.5)
    height, width = image.shape[:2]
    placed = fit_boxes(boxes, width=width, height=height, side=grid * patch, fit="resize")
    share_RP = coverage(torch.from_numpy(placed).float(), patch_size=patch, grid=grid)
    mean_RH = share_RP.to(tokens_PH) @ tokens_PH
    return model.visual_projection(model.vision_model.post_layernorm(mean_RH))
