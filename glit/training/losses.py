"""The two losses every objective is made of: symmetric contrastive, and token similarity (TSL).

Samples that do not count are weighed with zero and not left out of the tensors: how many are left
would be a shape, for which Python waits for the GPU.

Shapes: N samples in the global batch, D embedding width. Embeddings are projected and
L2-normalised, so a dot product is a cosine.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

_NO_TARGET = -100


def contrastive(
    image_ND: Float[Tensor, "n d"],
    text_ND: Float[Tensor, "n d"],
    logit_scale: Float[Tensor, ""],
    valid_N: Bool[Tensor, " n"] | None = None,
    weight_N: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """CLIP's symmetric cross-entropy over the N x N similarity matrix (FAST-GOAL Eq. 12 and 13).

    ``logit_scale`` is the factor itself (already exponentiated). Pair i is (image i, text i); it is
    a row and a column of the matrix where ``valid_N`` says so, everywhere if it is None.
    Without any pair the loss is zero and still tied to its inputs, so that backward works. With
    ``weight_N`` the mean over rows and columns is weighted; every pair stays a negative of others.

    Worked case: two orthogonal pairs at scale 1 give ``ln(1 + e^-1)`` = 0.3133.
    """
    if image_ND.shape[0] == 0:
        return (image_ND.sum() + text_ND.sum()) * logit_scale
    logits_NN = logit_scale * image_ND @ text_ND.T
    target_N = torch.arange(logits_NN.shape[0], device=logits_NN.device)
    if valid_N is None:
        return (F.cross_entropy(logits_NN, target_N) + F.cross_entropy(logits_NN.T, target_N)) / 2
    target_N = target_N.masked_fill(~valid_N, _NO_TARGET)
    lowest = torch.finfo(logits_NN.dtype).min

    counted_N = valid_N.to(logits_NN.dtype) if weight_N is None else weight_N * valid_N

    def error(rows_NN: Tensor) -> Tensor:
        rows_NN = rows_NN.masked_fill(~valid_N, lowest)
        error_N = F.cross_entropy(rows_NN, target_N, ignore_index=_NO_TARGET, reduction="none")
        return (counted_N * error_N).sum()

    total = counted_N.sum().clamp_min(torch.finfo(logits_NN.dtype).tiny)
    return (error(logits_NN) / total + error(logits_NN.T) / total) / 2


def tsl_diagonal(
    pooled_ND: Float[Tensor, "n d"],
    local_ND: Float[Tensor, "n d"],
    weight_N: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """Mean of (1 - cosine)^2 between pooled tokens and the local embedding of the same pair.

    This is what the code published with GOAL optimises for Eq. 14, which is FAST-GOAL's too: only
    the diagonal of the similarity matrix is pulled to one. ``weight_N`` makes it a weighted mean,
    zero where all weights are.
    """
    if pooled_ND.shape[0] == 0:
        return pooled_ND.sum() + local_ND.sum()
    error_N = (1 - (pooled_ND * local_ND).sum(dim=-1)).square()
    if weight_N is None:
        return error_N.mean()
    total = weight_N.sum()
    return (weight_N * error_N).sum() / total.clamp_min(torch.finfo(error_N.dtype).tiny)


def tsl_full(
    pooled_ND: Float[Tensor, "n d"],
    local_ND: Float[Tensor, "n d"],
    weight_N: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """Mean squared difference between the N x N cosine matrix and the identity (FAST-GOAL Eq. 14
    as read).

    The paper calls its target "a matrix with ones on its diagonal entries": diagonal to one and
    everything else to zero. The mean is over all N^2 entries, or weighted by the product of their
    row's and their column's weight.
    """
    if pooled_ND.shape[0] == 0:
        return pooled_ND.sum() + local_ND.sum()
    cosine_NN = pooled_ND @ local_ND.T
    error_NN = (cosine_NN - torch.eye(len(cosine_NN), device=cosine_NN.device)).square()
    if weight_N is None:
        return error_NN.mean()
    weight_NN = weight_N[:, None] * weight_N
    return (weight_NN * error_NN).sum() / weight_NN.sum().clamp_min(
        torch.finfo(error_NN.dtype).tiny
    )


def mean_cosine(
    a_ND: Float[Tensor, "n d"],
    b_ND: Float[Tensor, "n d"],
    valid_N: Bool[Tensor, " n"],
) -> Float[Tensor, ""]:
    """Mean cosine of the valid rows, for the log; zero when none is valid."""
    cosine_N = (a_ND * b_ND).sum(dim=-1) * valid_N
    return cosine_N.sum() / valid_N.sum().clamp_min(1)


def against_negatives(
    own_NK: Float[Tensor, "n k"],
    false_NKJ: Float[Tensor, "n k j"],
    valid_NKJ: Bool[Tensor, "n k j"],
    weight_NK: Float[Tensor, "n k"],
) -> Float[Tensor, ""]:
    """Weighted mean of -log softmax of the true text's logit among those of its false texts.

    Pairs without a false text are left out; without any pair the loss is zero.

    Worked case: logits 1 for the true text and 0 for two false ones: ``ln(1 + 2 e^-1)`` = 0.5514.

    Args:
        own_NK: logits of the pairs.
        false_NKJ: of their false texts.
        valid_NKJ: which false texts there are.
        weight_NK: of the pairs.
    """
    lowest = torch.finfo(own_NK.dtype).min
    lead_NKJ = (false_NKJ - own_NK[..., None]).masked_fill(~valid_NKJ, lowest)
    error_NK = F.pad(lead_NKJ, (1, 0)).logsumexp(dim=-1)
    weight_NK = weight_NK * valid_NKJ.any(dim=-1)
    return (weight_NK * error_NK).sum() / weight_NK.sum().clamp_min(
        torch.finfo(error_NK.dtype).tiny
    )
