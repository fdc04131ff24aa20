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

from glit.training.features import Features
from glit.training.losses import tsl_diagonal
from glit.training.objective import (
    InputSpec,
    Loss,
    Objective,
    check_weights,
    global_loss,
    local_loss,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Uniform(Objective):
    """The papers' objective with TSL over three pairs of every sample, all of equal weight."""

    lambda_global: float = 1.0
    """Weight of the global contrastive loss (Eq. 11)."""
    lambda_local: float = 0.5
    """Weight of the local contrastive loss (Eq. 11)."""
    lambda_tsl: float = 1.0
    """Weight of the token similarity loss (Eq. 11)."""

    def __post_init__(self) -> None:
        check_weights(self, "lambda_global", "lambda_local", "lambda_tsl")

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=3, pooled=True)

    def weight(self, similarity_M: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        """w_k of every pair."""
        return torch.ones_like(similarity_M)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum and its terms."""
        local_NK = features.valid_local_NK & features.valid_N[:, None]
        whole = global_loss(features, logit_scale)
        local = local_loss(features, logit_scale)
        tsl_patch = self._tsl(
            features.pooled_patch_NKD,
            features.local_image_NKD,
            features.weight_NK * (local_NK & features.valid_patch_NK),
            features.similarity_NK,
        )
        tsl_token = self._tsl(
            features.pooled_token_NKD,
            features.local_text_NKD,
            features.weight_NK * (local_NK & features.valid_token_NK),
            features.similarity_NK,
        )
        loss = (
            self.lambda_global * whole
            + self.lambda_local * local
            + self.lambda_tsl * (tsl_patch + tsl_token)
        )
        return loss, {
            "loss_global": whole.detach(),
            "loss_local": local.detach(),
            "loss_tsl_patch": tsl_patch.detach(),
            "loss_tsl_token": tsl_token.detach(),
        }

    def _tsl(
        self,
        pooled_NKD: Float[Tensor, "n k d"],
        local_NKD: Float[Tensor, "n k d"],
        weight_NK: Float[Tensor, "n k"],
        similarity_NK: Float[Tensor, "n k"],
    ) -> Float[Tensor, ""]:
        weight_M = self.weight(similarity_NK.clamp_min(0).flatten()) * weight_NK.flatten()
        return tsl_diagonal(pooled_NKD.flatten(0, 1), local_NKD.flatten(0, 1), weight_M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Weighted(Top3Uniform):
    """The same, every pair weighted by its similarity."""

    def weight(self, similarity_M: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return similarity_M
