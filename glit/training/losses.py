"""The losses that objectives are made of: contrastive, sigmoid, and token similarity (TSL).

Samples that do not count are weighed with zero and not left out of the tensors: how many are left
would be a shape, for which Python waits for the GPU.

Shapes: N samples in the global batch, D embedding width; ``*x`` are independent batches.
Embeddings are projected and L2-normalised, so a dot product is a cosine.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def contrastive(
    image_XND: Float[Tensor, "*x n d"],
    text_XND: Float[Tensor, "*x n d"],
    logit_scale: Float[Tensor, ""],
    valid_XN: Bool[Tensor, "*x n"],
    weight_XN: Float[Tensor, "*x n"] | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "*x"]:
    """CLIP's symmetric cross-entropy over the N x N similarity matrix (FAST-GOAL Eq. 12 and 13).

    Pair i is (image i, text i). Without any pair the loss is zero and still tied to its inputs, so
    that backward works.

    Worked cases: two orthogonal pairs at scale 1 give ``ln(1 + e^-1)`` = 0.3133; with smoothing 0.1
    -(0.95 log p + 0.05 log(1 - p)) with p = e / (e + 1), 0.3633.

    Args:
        image_XND: of the pairs.
        text_XND: of the pairs.
        logit_scale: the factor on cosines itself (already exponentiated).
        valid_XN: which pairs are rows and columns of the matrix.
        weight_XN: makes the mean over rows and columns a weighted one; every valid pair stays a
            negative of others.
        smoothing: share of the target that is spread over all valid pairs, 0 to 1.
    """
    logits_XNN = logit_scale * image_XND @ text_XND.mT
    lowest, tiny = torch.finfo(logits_XNN.dtype).min, torch.finfo(logits_XNN.dtype).tiny
    counted_XN = valid_XN.to(logits_XNN.dtype) if weight_XN is None else weight_XN * valid_XN
    total_X = counted_XN.sum(dim=-1).clamp_min(tiny)

    def error(logits_XNN: Tensor) -> Tensor:
        log_XNN = logits_XNN.masked_fill(~valid_XN[..., None, :], lowest).log_softmax(dim=-1)
        own_XN = log_XNN.diagonal(dim1=-2, dim2=-1)
        if smoothing:
            log_XNN = torch.where(valid_XN[..., None, :], log_XNN, torch.zeros_like(log_XNN))
            number_X1 = valid_XN.sum(dim=-1, keepdim=True).clamp_min(1)
            own_XN = (1 - smoothing) * own_XN + smoothing * log_XNN.sum(dim=-1) / number_X1
        return -(counted_XN * own_XN).sum(dim=-1)

    return (error(logits_XNN) / total_X + error(logits_XNN.mT) / total_X) / 2


def sigmoid_loss(
    image_XND: Float[Tensor, "*x n d"],
    text_XND: Float[Tensor, "*x n d"],
    scale: Float[Tensor, ""] | float,
    bias: Float[Tensor, ""] | float,
    valid_XN: Bool[Tensor, "*x n"],
    equal_NN: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, "*x"]:
    """SigLIP's pairwise loss (ICCV 2023, section 3.2); pair i is (image i, text i).

    Without any pair it is zero.

    Worked case: two orthogonal pairs at scale 1 and bias 0 give
    (2 ln(1 + e^-1) + 2 ln 2) / 2 = 1.0064.

    Args:
        image_XND: of the pairs.
        text_XND: of the pairs.
        scale: factor on cosines.
        bias: added to them.
        valid_XN: which images and texts count.
        equal_NN: which texts are equal, and so no negatives of each other.
    """
    error_XNN = sigmoid_errors(image_XND, text_XND, scale, bias)
    if equal_NN is not None:
        own_NN = torch.eye(len(equal_NN), dtype=torch.bool, device=equal_NN.device)
        error_XNN = error_XNN * (own_NN | ~equal_NN)
    both_XNN = valid_XN[..., :, None] & valid_XN[..., None, :]
    return (error_XNN * both_XNN).sum(dim=(-2, -1)) / valid_XN.sum(dim=-1).clamp_min(1)


def sigmoid_errors(
    image_XND: Float[Tensor, "*x n d"],
    text_XND: Float[Tensor, "*x n d"],
    scale: Float[Tensor, ""] | float,
    bias: Float[Tensor, ""] | float,
) -> Float[Tensor, "*x n n"]:
    """-log sigmoid of every image's and text's logit, negated where they are not a pair."""
    logits_XNN = scale * image_XND @ text_XND.mT + bias
    sign_NN = 2 * torch.eye(logits_XNN.shape[-1], device=logits_XNN.device) - 1
    return -F.logsigmoid(sign_NN * logits_XNN)


def tsl_diagonal(
    pooled_ND: Float[Tensor, "n d"],
    local_ND: Float[Tensor, "n d"],
    weight_N: Float[Tensor, " n"],
) -> Float[Tensor, ""]:
    """Weighted mean of (1 - cosine)^2 between pooled tokens and the local embedding of the same
    pair; zero where all weights are.

    This is what the code published with GOAL optimises for Eq. 14, which is FAST-GOAL's too: only
    the diagonal of the similarity matrix is pulled to one.
    """
    error_N = (1 - (pooled_ND * local_ND).sum(dim=-1)).square()
    return _mean(error_N, weight_N)


def tsl_full(
    pooled_ND: Float[Tensor, "n d"],
    local_ND: Float[Tensor, "n d"],
    weight_N: Float[Tensor, " n"],
) -> Float[Tensor, ""]:
    """Mean squared difference between the N x N cosine matrix and the identity (FAST-GOAL Eq. 14
    as read), weighted by the product of an entry's row's and column's weight.

    The paper calls its target "a matrix with ones on its diagonal entries": diagonal to one and
    everything else to zero.
    """
    cosine_NN = pooled_ND @ local_ND.T
    error_NN = (cosine_NN - torch.eye(len(cosine_NN), device=cosine_NN.device)).square()
    return _mean(error_NN, weight_N[:, None] * weight_N)


def _mean(error: Tensor, weight: Tensor) -> Float[Tensor, ""]:
    """The weighted mean; zero where all weights are."""
    return (weight * error).sum() / weight.sum().clamp_min(torch.finfo(error.dtype).tiny)


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
    return _mean(error_NK, weight_NK * valid_NKJ.any(dim=-1))
