"""Pool image tokens by attention, once for every text (beta-CLIP, section 3).

F-CAST's pooling (its Eq. 6) is in its loss, where the texts of all processes are.

Shapes: B samples, Q queries, T tokens, D width.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

NUM_HEADS = 8
"""Heads in the paper's code; a width that does not divide by it gets fewer."""


class AttentionPool(nn.Module):
    """x + MLP(x), x = Attention(query, tokens, tokens); the MLP is four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, math.gcd(NUM_HEADS, width), batch_first=True)
        self.mlp = _Mlp(width)

    def forward(
        self, query_BQD: Float[Tensor, "b q d"], token_BTD: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b q d"]:
        """Pool each sample's tokens for every query; not normalised."""
        found_BQD = self.attention(query_BQD, token_BTD, token_BTD, need_weights=False)[0]
        return found_BQD + self.mlp(found_BQD)


class _Mlp(nn.Module):
    """Norm, widen, CLIP's GELU, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.widen(self.norm(x))
        return self.narrow(hidden * torch.sigmoid(1.702 * hidden))
