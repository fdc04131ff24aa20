"""``top3-uniform`` and ``top3-weighted``: TSL over the three best pairs (FAST-GOAL Table VIII).

L = lambda_global L_global + lambda_local L_local + lambda_tsl sum_k w_k TSL_k / sum_k w_k

Eq. 11 with Eq. 14's term of every pair k. ``w_k`` is 1 (uniform) or the pair's similarity, negative
ones counted as zero (weighted). The paper weights the TSL term only; the local contrast stays on
the best pair. With one pair a sample and uniform weights this is ``fast-goal``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import tsl_diagonal
from glit.training.objective import InputSpec, Loss, logged
from glit.training.objectives.global_local import GlobalLocal


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Uniform(GlobalLocal):
    """The papers' objective with TSL over three pairs of every sample, all of equal weight."""

    lambda_tsl: float = limited(1.0, least=0)
    """Weight of the token similarity loss (Eq. 11)."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=3, pooled_patches=True, pooled_tokens=True)

    def weight(self, similarity_M: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        """w_k of every pair."""
        return torch.ones_like(similarity_M)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum and its terms."""
        contrast, terms = GlobalLocal.__call__(self, features, logit_scale)
        local_NK = features.valid_local_NK & features.valid_N[:, None]
        pair_M = self.weight(features.similarity_NK.clamp_min(0).flatten())

        def tsl(pooled_NKD: Tensor, local_NKD: Tensor, valid_NK: Tensor) -> Tensor:
            weight_M = pair_M * (features.weight_NK * (local_NK & valid_NK)).flatten()
            return tsl_diagonal(pooled_NKD.flatten(0, 1), local_NKD.flatten(0, 1), weight_M)

        patch = tsl(features.pooled_patch_NKD, features.local_image_NKD, features.valid_patch_NK)
        token = tsl(features.pooled_token_NKD, features.local_text_NKD, features.valid_token_NK)
        loss = contrast + self.lambda_tsl * (patch + token)
        return logged(loss, **terms, loss_tsl_patch=patch, loss_tsl_token=token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Weighted(Top3Uniform):
    """The same, every pair weighted by its similarity."""

    def weight(self, similarity_M: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return similarity_M
