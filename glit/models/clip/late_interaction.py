"""Compare images and texts of several vectors, each vector with its best counterpart.

R(I, T) = mean_i max_j v_i . t_j + mean_j max_i v_i . t_j   (FineLIP Eq. 1)

The indices of the printed second term are garbled; this is the one that makes the score the same
for both sides. Means are over the vectors that there are.

Shapes: I images of P vectors, T texts of M vectors, D width.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

AT_ONCE = 1 << 24
"""Cosines held at a time: 64 MB in float32."""


def late_interaction(
    image_IPD: Float[Tensor, "i p d"],
    valid_IP: Bool[Tensor, "i p"],
    text_TMD: Float[Tensor, "t m d"],
    valid_TM: Bool[Tensor, "t m"],
) -> Float[Tensor, "i t"]:
    """Compute R of every image and text, a block of texts at a time; vectors are L2-normalised.

    Every image and text has a valid vector. Backward holds as little as forward.

    Worked case: V = (e1, e2) and T = (e1) give (1 + 0) / 2 + 1 = 1.5.
    """
    image_IPD, text_TMD = _filled(image_IPD, valid_IP), _filled(text_TMD, valid_TM)
    weight_IP, weight_TM = _shares(valid_IP, image_IPD.dtype), _shares(valid_TM, text_TMD.dtype)
    num_images, num_patches, _ = image_IPD.shape
    num_words = text_TMD.shape[1]
    image_XD = image_IPD.flatten(0, 1)
    step = max(1, AT_ONCE // max(1, num_images * num_patches * num_words))
    blocks = []
    for text, weight in zip(text_TMD.split(step), weight_TM.split(step), strict=True):
        cosine = (image_XD @ text.flatten(0, 1).T).view(num_images, num_patches, -1, num_words)
        of_patches = (cosine.max(dim=3).values * weight_IP[:, :, None]).sum(dim=1)
        of_words = (cosine.max(dim=1).values * weight).sum(dim=2)
        blocks.append(of_patches + of_words)
    if not blocks:
        return image_IPD.new_zeros(num_images, 0)
    return torch.cat(blocks, dim=1)


def _filled(vector_NVD: Tensor, valid_NV: Tensor) -> Tensor:
    """Replace invalid vectors by the first valid one, so that no maximum changes."""
    first_N = valid_NV.int().argmax(dim=1)
    first_N1D = vector_NVD[torch.arange(len(first_N), device=first_N.device), first_N][:, None]
    return torch.where(valid_NV[..., None], vector_NVD, first_N1D)


def _shares(valid_NV: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights that make a sum the mean of what is valid."""
    weight_NV = valid_NV.to(dtype)
    return weight_NV / weight_NV.sum(dim=1, keepdim=True).clamp_min(1)
