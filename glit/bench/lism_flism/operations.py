"""Operations of the models, counted from their shapes, and the rate that turns them into a floor.

A multiply-add is two operations. A block of a transformer of width D over n tokens costs
24 D^2 n (queries, keys, values, output: 8; the two layers of the MLP: 16) and 4 D n^2 for the two
products of attention. Norms, activations, interpolation and everything after the last matrix are
left out, so that the floor they give is a floor.
"""

from __future__ import annotations

import time
from typing import Any

from glit.bench.lism_flism.job import Rate

SAM_ENCODER, SAM_DECODER, YOLOS = "SAM's encoder", "SAM's decoder", "YOLOS"
"""Names of the proposers' parts."""

_MLP_RATIO = 4
_POINT_TOKENS = 7  # four mask tokens, the IoU token, the point and its padding
_NUM_MASKS = 3


def blocks(width: int, num_blocks: int, tokens: int, *, read: int) -> float:
    """Operations of a transformer with an MLP of four times its width.

    Args:
        width: of the tokens.
        num_blocks: layers.
        tokens: how many go in.
        read: how many of the last layer's tokens anything reads; glit makes no others.

    >>> blocks(2, 2, 3, read=1)
    512.0
    """
    whole = 24 * width**2 * tokens + 4 * width * tokens**2
    last = 4 * width**2 * tokens + 20 * width**2 * read + 4 * width * tokens * read
    return float((num_blocks - 1) * whole + last)


def clip_crop(vision: Any) -> float:
    """CLIP's image encoder on one crop.

    Args:
        vision: a ``CLIPVisionConfig``.
    """
    patches = (vision.image_size // vision.patch_size) ** 2
    patching = 2 * patches * 3 * vision.patch_size**2 * vision.hidden_size
    return patching + blocks(vision.hidden_size, vision.num_hidden_layers, patches + 1, read=1)


def yolos_image(config: Any, height: int, width: int) -> float:
    """YOLOS on one image of this size after resizing.

    Args:
        config: a ``YolosConfig``.
        height: of the model's input, pixels.
        width: of the model's input, pixels.
    """
    patches = (height // config.patch_size) * (width // config.patch_size)
    patching = 2 * patches * 3 * config.patch_size**2 * config.hidden_size
    read = config.num_detection_tokens
    return patching + blocks(
        config.hidden_size, config.num_hidden_layers, 1 + patches + read, read=read
    )


def sam_image(sam: Any, num_points: int) -> dict[str, float]:
    """Segment-anything on one image: the encoder once, the decoder for every point.

    Counted in glit's order of operations, which needs fewer than the published one (windows
    padded after the projection to q, k and v; the decoder's projections applied to the tokens).

    Args:
        sam: a ``segment_anything.modeling.Sam`` with a ViT.
        num_points: prompts of one point each.
    """
    return {
        SAM_ENCODER: _sam_encoder(sam.image_encoder),
        SAM_DECODER: num_points * _sam_point(sam),
    }


def _sam_encoder(encoder: Any) -> float:
    width, _, patch, _ = encoder.patch_embed.proj.weight.shape
    side = encoder.img_size // patch
    tokens = side**2
    total = 2.0 * tokens * 3 * patch**2 * width
    for block in encoder.blocks:
        window = block.window_size or side
        across = -(-side // window)
        inside, padded = window**2, (across * window) ** 2
        # the attention of a window runs over its padding, the projections do not
        total += 8 * width**2 * tokens + 4 * width * inside * padded
        if block.attn.use_rel_pos:
            total += 4 * width * window * padded
        total += 4 * _MLP_RATIO * width**2 * tokens
    out = encoder.neck[0].weight.shape[0]
    return total + 2 * tokens * width * out + 2 * tokens * out**2 * 9


def _sam_point(sam: Any) -> float:
    decoder, side = sam.mask_decoder, sam.image_encoder.img_size
    positions = (side // sam.image_encoder.patch_embed.proj.weight.shape[2]) ** 2
    attention = decoder.transformer.layers[0].cross_attn_token_to_image
    width, heads = decoder.transformer_dim, attention.num_heads
    # a product of the tokens with the image embedding: not projected (its full width for each
    # head), and projected (the width of a head for each head)
    full = 2 * heads * _POINT_TOKENS * positions * width
    narrow = 2 * _POINT_TOKENS * positions * attention.internal_dim
    # first layer: three projected products and the update of the image embedding; second: scores
    # and values in both directions, positional encodings projected; final: token to image alone
    total = (3 * narrow + full) + (4 * full + 2 * narrow) + (2 * full + narrow)
    first, second = decoder.output_upscaling[0].weight, decoder.output_upscaling[3].weight
    upscaling = 8 * positions * first.shape[0] * first.shape[1]
    upscaling += 8 * 4 * positions * second.shape[0] * second.shape[1]
    return float(total + upscaling + 2 * _NUM_MASKS * 16 * positions * second.shape[1])


def matrix_rate(device: Any, precision: str, side: int) -> Rate:
    """Speed of a product of two square matrices: the best of three sizes, three times each.

    Args:
        device: a ``torch.device``.
        precision: a torch type's name.
        side: of the largest matrices; the others have a half and a quarter of it.
    """
    import torch

    kind = getattr(torch, precision)
    best = max(_product_rate(device, kind, each) for each in (side, side // 2, side // 4))
    return Rate(precision=precision, operations_per_s=best)


def _product_rate(device: Any, kind: Any, side: int) -> float:
    import torch

    from glit.backends.onednn import linear

    a = torch.randn(side, side, device=device).to(kind)
    multiply = linear(a, a[0])  # the way glit's models go on a CPU
    repeats = 20 if device.type == "cuda" else 1

    def product() -> float:
        started = time.perf_counter()
        with torch.inference_mode():
            for _ in range(repeats):
                multiply(a)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / repeats

    product()
    return 2 * side**3 / min(product() for _ in range(3))


def count_parameters(model: Any) -> int:
    """Parameters of a torch module."""
    return sum(parameter.numel() for parameter in model.parameters())
