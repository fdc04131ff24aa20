"""Compare a sentence's best patches with its region (FAST-GOAL Table XVI).

Shapes: B pairs, P = n * n patches, D embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def centre_inside(
    boxes_B4: Float[Tensor, "b 4"], *, patch_size: int, grid: int
) -> Bool[Tensor, "b p"]:
    """Return which patches have their centre in the box; pixels of the model's square, exclusive
    ends."""
    centre_n = (torch.arange(grid, device=boxes_B4.device) + 0.5) * patch_size
    columns_Bn = (centre_n >= boxes_B4[:, 0:1]) & (centre_n < boxes_B4[:, 2:3])
    rows_Bn = (centre_n >= boxes_B4[:, 1:2]) & (centre_n < boxes_B4[:, 3:4])
    return (rows_Bn[:, :, None] & columns_Bn[:, None, :]).flatten(1)


def first_hit(
    patch_BPD: Float[Tensor, "b p d"],
    text_BD: Float[Tensor, "b d"],
    inside_BP: Bool[Tensor, "b p"],
) -> Float[np.ndarray, " b"]:
    """Rank (from 0) of the best patch inside the region; infinite where none is inside.

    Of equal similarities the lower patch number comes first.
    """
    similarity_BP = (patch_BPD @ text_BD[:, :, None])[..., 0]
    order_BP = similarity_BP.sort(dim=1, descending=True, stable=True).indices
    sorted_BP = inside_BP.gather(1, order_BP)
    rank_B = sorted_BP.float().argmax(dim=1).double()
    rank_B[~sorted_BP.any(dim=1)] = torch.inf
    return rank_B.cpu().numpy()


def chance(num_inside_B: np.ndarray, *, num_patches: int, ks: Sequence[int]) -> dict[int, float]:
    """Expected share of hits for patches picked at random, the floor to read results against.

    >>> chance(np.array([1, 3]), num_patches=4, ks=[1])
    {1: 0.5}
    """
    expected = {}
    for k in ks:
        drawn = min(k, num_patches)
        expected[k] = float(
            np.mean([_hit_chance(int(m), num_patches, drawn) for m in num_inside_B])
        )
    return expected


def _hit_chance(num_inside: int, num_patches: int, k: int) -> float:
    return 1 - comb(num_patches - num_inside, k) / comb(num_patches, k)
