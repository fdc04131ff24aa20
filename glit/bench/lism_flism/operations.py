"""Operations of the models, as torch counts them, and the rate that turns them into a floor.

Matrix products and convolutions are counted, a multiply-add as two operations; everything else is
left out, so that the floor they give is a floor.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from glit.bench.harness import Row

SAM_ENCODER, SAM_DECODER, YOLOS = "SAM's encoder", "SAM's decoder", "YOLOS"
"""Names of the proposers' parts."""


def counted(module: Any, *shapes: tuple[int, ...], **named: Any) -> float:
    """Operations of a module's forward pass, without making it.

    Args:
        module: of torch, on any device; its own layers, not faster ones in their place.
        shapes: of its inputs.
        named: what else it is called with.
    """
    import torch
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    own = itertools.chain(module.named_parameters(), module.named_buffers())
    weights = {name: each.to("meta") for name, each in own}
    inputs = tuple(torch.empty(shape, device="meta") for shape in shapes)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        functional_call(module, weights, inputs, named)
    return float(counter.get_total_flops())


def clip_crop(vision: Any) -> float:
    """CLIP's image encoder on one crop, of a ``CLIPVisionConfig``."""
    import torch
    from transformers import CLIPVisionModel

    with torch.device("meta"):
        return counted(CLIPVisionModel(vision), (1, 3, vision.image_size, vision.image_size))


def yolos_image(config: Any, height: int, width: int) -> float:
    """YOLOS on one image that is so large after resizing, pixels, of a ``YolosConfig``."""
    import torch
    from transformers import YolosForObjectDetection

    with torch.device("meta"):
        return counted(YolosForObjectDetection(config), (1, 3, height, width))


def sam_image(sam: Any, num_points: int) -> dict[str, float]:
    """A ``segment_anything.modeling.Sam`` on one image: the encoder once, the decoder for each
    prompt of one point."""
    encoder, decoder = sam.image_encoder, sam.mask_decoder
    width, (rows, columns) = decoder.transformer_dim, sam.prompt_encoder.image_embedding_size
    image, point = (1, width, rows, columns), (1, 2, width)  # the point and its padding
    return {
        SAM_ENCODER: counted(encoder, (1, 3, encoder.img_size, encoder.img_size)),
        SAM_DECODER: num_points
        * counted(decoder, image, image, point, image, multimask_output=True),
    }


def matrix_rate(device: Any, precision: str, side: int) -> Row:
    """Operations a second of a product of two square matrices: the best of three sizes, three
    times each.

    Args:
        device: a ``torch.device``.
        precision: a torch type's name.
        side: of the largest matrices; the others have a half and a quarter of it.
    """
    import torch

    kind = getattr(torch, precision)
    best = max(_product_rate(device, kind, each) for each in (side, side // 2, side // 4))
    return {"precision": precision, "operations_per_s": best}


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
