"""Means of the patch tokens in a box and of the text tokens in a span (FAST-GOAL Eq. 7 and 9,
Algorithm 1).

Boxes and spans become boolean masks over tokens; a batched matrix product takes the means.

Shape suffixes: B samples, K local pairs of a sample, n patches a side, P = n * n patches
(row-major, without the class token), L token slots of a caption, T tokens of either kind, D width.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

EDGE_TOLERANCE_PX = 1e-3
"""A box edge this close to a patch edge counts as on it; scaling boxes in float32 errs by less."""


def patch_mask(
    boxes_BK4: Float[Tensor, "b k 4"],
    *,
    patch_size: int,
    grid: int,
) -> Bool[Tensor, "b k p"]:
    """Return which patches a box touches: columns floor(x0 / p) to ceil(x1 / p), rows alike
    (Algorithm 1).

    ``boxes_BK4`` are x0, y0, x1, y1 in pixels of the model's square input (side
    ``patch_size * grid``); parts outside the square are ignored. A box thinner than a patch
    selects the patch it lies in. A box wholly outside the square selects no patch: its row is all
    false, and the caller must mask out its pair.

    >>> patch_mask(torch.tensor([[[0.0, 0.0, 17.0, 16.0]]]), patch_size=16, grid=2).tolist()
    [[[True, True, False, False]]]
    """
    side = float(patch_size * grid)
    low_BK2, high_BK2 = boxes_BK4[..., :2], boxes_BK4[..., 2:]
    inside_BK = ((low_BK2 < side) & (high_BK2 > 0) & (low_BK2 < high_BK2)).all(dim=-1)
    first_BK2 = ((low_BK2.clamp(0, side) + EDGE_TOLERANCE_PX) / patch_size).floor()
    last_BK2 = ((high_BK2.clamp(0, side) - EDGE_TOLERANCE_PX) / patch_size).ceil()
    first_BK2 = first_BK2.clamp(0, grid - 1)
    last_BK2 = torch.maximum(last_BK2, first_BK2 + 1).clamp(1, grid)
    cell_n = torch.arange(grid, device=boxes_BK4.device)
    columns_BKn = (cell_n >= first_BK2[..., 0:1]) & (cell_n < last_BK2[..., 0:1])
    rows_BKn = (cell_n >= first_BK2[..., 1:2]) & (cell_n < last_BK2[..., 1:2])
    mask_BKnn = rows_BKn[..., :, None] & columns_BKn[..., None, :]
    return mask_BKnn.flatten(-2) & inside_BK[..., None]


def coverage(boxes_R4: Float[Tensor, "r 4"], *, patch_size: int, grid: int) -> Float[Tensor, "r p"]:
    """The share of each box that lies in each patch; a row sums to 1.

    Finer than :func:`patch_mask` for boxes that are hardly larger than a patch. ``boxes_R4`` as
    there; every box has a part inside the square.

    >>> coverage(torch.tensor([[0.0, 0.0, 20.0, 8.0]]), patch_size=16, grid=2).tolist()
    [[0.800000011920929, 0.20000000298023224, 0.0, 0.0]]
    """
    low_n = torch.arange(grid, device=boxes_R4.device) * patch_size
    inside_R2n = torch.minimum(boxes_R4[:, 2:, None], low_n + patch_size) - torch.maximum(
        boxes_R4[:, :2, None], low_n
    )
    columns_Rn, rows_Rn = inside_R2n.clamp_min(0).unbind(dim=1)
    area_RP = (rows_Rn[:, :, None] * columns_Rn[:, None]).flatten(1)
    return area_RP / area_RP.sum(dim=1, keepdim=True)


def span_mask(
    spans_BK2: Int[Tensor, "b k 2"],
    *,
    length: int,
) -> Bool[Tensor, "b k l"]:
    """Return which token slots a token span ``[start, end)`` covers in a caption of ``length``
    slots.

    The row of a span that does not fit (``start < 1``, ``end > length`` or empty) is all false, and
    the caller must mask out its pair. Slot 0 holds the start token.
    """
    start_BK1, end_BK1 = spans_BK2[..., 0:1], spans_BK2[..., 1:2]
    fits_BK1 = (start_BK1 >= 1) & (end_BK1 <= length) & (start_BK1 < end_BK1)
    slot_L = torch.arange(length, device=spans_BK2.device)
    return (slot_L >= start_BK1) & (slot_L < end_BK1) & fits_BK1


def masked_mean(
    tokens_BTD: Float[Tensor, "b t d"],
    mask_BKT: Bool[Tensor, "b k t"],
) -> Float[Tensor, "b k d"]:
    """Mean of the tokens that each row of the mask selects; zeros for a row that selects none."""
    weight_BKT = mask_BKT.to(tokens_BTD.dtype)
    weight_BKT = weight_BKT / weight_BKT.sum(dim=-1, keepdim=True).clamp_min(1)
    return weight_BKT @ tokens_BTD
