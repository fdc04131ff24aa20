"""SAM's mask upscaling: image embedding and mask tokens to mask logits, as matrix products.

Shapes: B points, N = h * w positions of the image embedding, C its width, M masks of a point.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.models.onednn import linear


class Upscaling:
    """The decoder's upscaling and the product with the hypernetworks' output, as matrix products.

    The two transposed convolutions have kernel and stride 2, so each of their output pixels
    depends on one input pixel alone.
    """

    def __init__(self, mask_decoder: Any, dtype: torch.dtype) -> None:
        norm = mask_decoder.upscale_layer_norm
        self._first_conv = _transposed_conv_as_linear(mask_decoder.upscale_conv1, dtype)
        self._norm = (norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        self._second_conv = _transposed_conv_as_linear(mask_decoder.upscale_conv2, dtype)
        self._dtype = dtype

    def __call__(self, image: Tensor, hyper_in: Tensor, grid: tuple[int, int]) -> Tensor:
        """Mask logits, float32 [B, M, 4h, 4w].

        Args:
            image: the transformer's image embedding [B, N, C].
            hyper_in: the hypernetworks' output [B, M, C / 8].
            grid: h and w.
        """
        weight, bias, eps = self._norm
        x = self._first_conv(image).unflatten(-1, (4, -1))  # [B, N, 4, C / 4]
        x = functional.gelu(functional.layer_norm(x, weight.shape, weight, bias, eps))
        x = functional.gelu(self._second_conv(x))  # [B, N, 4, 4 * C / 8]
        x = x.unflatten(-1, (4, -1)).flatten(1, 3)  # [B, N * 16, C / 8]
        logits = (hyper_in.to(self._dtype) @ x.transpose(1, 2)).float()
        # N * 16 is h, w, (y, x) of the first convolution, (y, x) of the second; to rows, columns
        logits = logits.view(*logits.shape[:2], *grid, 2, 2, 2, 2)
        logits = logits.permute(0, 1, 2, 4, 6, 3, 5, 7)
        return logits.reshape(*logits.shape[:2], 4 * grid[0], 4 * grid[1])


def _transposed_conv_as_linear(conv: Any, dtype: torch.dtype) -> nn.Module:
    """A transposed convolution with kernel and stride 2 as [..., in] -> [..., 2 * 2 * out]."""
    weight = conv.weight.permute(2, 3, 1, 0).flatten(0, 2).to(dtype)  # [2 * 2 * out, in]
    bias = conv.bias.repeat(4).to(dtype)
    return linear(weight, bias)
