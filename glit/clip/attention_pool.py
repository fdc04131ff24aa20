"""Image tokens pooled by attention, once for every text that asks (FLAIR section 3.2, beta-CLIP).

Shapes: B samples, Q queries, T tokens, D width.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

NUM_HEADS = 8
"""Of both papers' code; a width that does not divide by it gets fewer."""


class AttentionPool(nn.Module):
    """One layer of cross-attention, by choice with what surrounds it in either paper.

    Args of the constructor:
        width: D.
        norms: layer norms of query, key and value (FLAIR).
        zero_key: a key and value of zeros besides, so that a text may attend to nothing (FLAIR).
        mlp: a residual MLP of four times the width behind it (beta-CLIP).
    """

    def __init__(
        self, width: int, *, norms: bool = False, zero_key: bool = False, mlp: bool = False
    ) -> None:
        super().__init__()
        heads = math.gcd(NUM_HEADS, width)
        self.attention = nn.MultiheadAttention(
            width, heads, batch_first=True, add_zero_attn=zero_key
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if norms else 0))
        self.mlp = _Mlp(width) if mlp else None

    def forward(
        self, query_BQD: Float[Tensor, "b q d"], token_BTD: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b q d"]:
        """What every query finds among its sample's tokens; not normalised."""
        key, value = token_BTD, token_BTD
        if len(self.norms):
            query_norm, key_norm, value_norm = self.norms
            query_BQD, key, value = query_norm(query_BQD), key_norm(key), value_norm(value)
        found_BQD = self.attention(query_BQD, key, value, need_weights=False)[0]
        return found_BQD if self.mlp is None else found_BQD + self.mlp(found_BQD)


class _Mlp(nn.Module):
    """Norm, widen, CLIP's GELU, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.widen(self.norm(x))
        return self.narrow(hidden * torch.sigmoid(1.702 * hidden))
