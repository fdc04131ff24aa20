"""Condense tokens by attention into fewer tokens (FineLIP section 3.2, MulCLIP Eq. 4).

Shapes: B samples, T tokens, Q queries, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

HIDDEN_RATIO = 0.2
"""Width of the keys over that of the tokens, as in LAPS (Fu et al., CVPR 2024), which both cite."""


class TokenRefinement(nn.Module):
    """X' = softmax(W_q GELU(LayerNorm(X) W_k)^T / tau) X

    Every query is a row of W_q, so there are as many whatever the number of tokens. The softmax
    runs over the tokens: FineLIP prints a sum over the queries, with which a condensed token
    would be no mean of the others; the code both papers cite has it this way, and the layer norm.
    ``scale`` is 1 / tau and begins at 1.
    """

    def __init__(self, width: int, num_queries: int) -> None:
        super().__init__()
        hidden = max(1, int(HIDDEN_RATIO * width))
        self.norm = nn.LayerNorm(width)
        self.keys = nn.Linear(width, hidden)
        self.queries = nn.Linear(hidden, num_queries, bias=False)  # a bias would cancel
        self.scale = nn.Parameter(torch.ones(()))

    def forward(
        self, token_BTD: Float[Tensor, "b t d"], valid_BT: Bool[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b q d"]:
        """The condensed tokens; without any valid token they mean nothing, and are finite."""
        hidden = F.gelu(self.keys(self.norm(token_BTD)))
        logits_BTQ = self.queries(hidden) * self.scale
        if valid_BT is not None:
            lowest = torch.finfo(logits_BTQ.dtype).min
            logits_BTQ = logits_BTQ.masked_fill(~valid_BT[..., None], lowest)
            token_BTD = token_BTD * valid_BT[..., None].to(token_BTD.dtype)
        weight_BTQ = logits_BTQ.softmax(dim=1).to(token_BTD.dtype)
        return weight_BTQ.transpose(1, 2) @ token_BTD


def words(
    token_BLH: Float[Tensor, "b l h"], valid_BL: Bool[Tensor, "b l"]
) -> tuple[Float[Tensor, "b w h"], Bool[Tensor, "b w"]]:
    """The tokens of texts between start and end, and which slots hold one.

    Args:
        token_BLH: start token first.
        valid_BL: the texts' own tokens, start and end included.
    """
    return token_BLH[:, 1:], F.pad(valid_BL[:, 2:], (0, 1))


def widened(
    vector_BVD: Float[Tensor, "b v d"], valid_BV: Bool[Tensor, "b v"], num: int
) -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """The same with invalid ones behind, so that every process has as many."""
    missing = num - vector_BVD.shape[1]
    return F.pad(vector_BVD, (0, 0, 0, missing)), F.pad(valid_BV, (0, missing))
