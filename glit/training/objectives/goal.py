"""GOAL's and FAST-GOAL's objectives: global and local contrast, and token similarity (TSL).

L = lambda_global L_global + lambda_local L_local + lambda_tsl L_TSL   (FAST-GOAL Eq. 11 to 13)
L_TSL = MSE(sim(P_l, v_l), 1) + MSE(sim(S_l, t_l), 1)                  (Eq. 14)

``P_l`` are the patch tokens of the whole image under the region, averaged, then taken through the
vision tower's post-layernorm and the visual projection (Eq. 9 and 10); ``S_l`` the caption's tokens
that make up the sentence, averaged, then through the text tower's final layer norm and the text
projection (Eq. 7 and 8), as the code published with GOAL does. GOAL and FAST-GOAL differ in how the
pairs were found, not here; their equations have the same numbers. The rows of FAST-GOAL's Tables VI
and VIII are objectives of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import mean_cosine, tsl_diagonal, tsl_full
from glit.training.objective import InputSpec, Loss, Objective, global_loss, local_loss, logged

TslMatrix = Literal["diagonal", "full"]
TSL_MATRICES = {"diagonal": tsl_diagonal, "full": tsl_full}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(Objective):
    """``clip``: whole images against whole captions, the plain fine-tuning baseline ("Global
    fine-tuning" in Table VI); no local pair is encoded."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec()

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The global loss, and itself for the log."""
        loss = global_loss(features, logit_scale)
        return logged(loss, loss_global=loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Objective):
    """``local``: the best region of an image against its sentence ("Local fine-tuning" in Table
    VI); whole images and captions are not encoded."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(whole=False, num_local=1)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The local loss, and itself for the log."""
        loss = local_loss(features, logit_scale)
        return logged(loss, loss_local=loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLocal(Objective):
    """``global+local``: both contrastive losses, without TSL ("w/o TSL" in Table VI)."""

    lambda_global: float = limited(1.0, least=0)
    """Weight of the global contrastive loss (Eq. 11)."""
    lambda_local: float = limited(0.5, least=0)
    """Weight of the local contrastive loss (Eq. 11)."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=1)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, and its two terms for the log."""
        whole = global_loss(features, logit_scale)
        local = local_loss(features, logit_scale)
        loss = self.lambda_global * whole + self.lambda_local * local
        return logged(loss, loss_global=whole, loss_local=local)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastGoal(GlobalLocal):
    """``fast-goal`` (also ``goal``): the papers' objective over the best pair of every sample."""

    lambda_tsl: float = limited(1.0, least=0)
    """Weight of the token similarity loss (Eq. 11)."""
    tsl_matrix: TslMatrix = "diagonal"
    """``diagonal`` pulls matching pairs to one; ``full`` also pushes all others to zero."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=1, pooled_patches=True, pooled_tokens=True)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, its terms, and the mean cosines TSL is pulling up."""
        tsl = TSL_MATRICES[self.tsl_matrix]
        local_N = features.valid_local_NK[:, 0] & features.valid_N
        patch_N = local_N & features.valid_patch_NK[:, 0]
        token_N = local_N & features.valid_token_NK[:, 0]
        patch_ND = features.pooled_patch_NKD[:, 0]
        token_ND = features.pooled_token_NKD[:, 0]
        region_ND = features.local_image_NKD[:, 0]
        sentence_ND = features.local_text_NKD[:, 0]
        contrast, terms = GlobalLocal.__call__(self, features, logit_scale)
        weight_N = features.weight_NK[:, 0].to(patch_ND.dtype)
        tsl_patch = tsl(patch_ND, region_ND, weight_N * patch_N)
        tsl_token = tsl(token_ND, sentence_ND, weight_N * token_N)
        return logged(
            contrast + self.lambda_tsl * (tsl_patch + tsl_token),
            **terms,
            loss_tsl_patch=tsl_patch,
            loss_tsl_token=tsl_token,
            cosine_patch=mean_cosine(patch_ND, region_ND, patch_N),
            cosine_token=mean_cosine(token_ND, sentence_ND, token_N),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Uniform(GlobalLocal):
    """``top3-uniform``: TSL over the three best pairs, of equal weight (Table VIII).

    L_TSL = sum_k w_k TSL_k / sum_k w_k

    Eq. 14's term of every pair k. The paper weights the TSL term only; the local contrast stays on
    the best pair. With one pair a sample and uniform weights this is ``fast-goal``.
    """

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
    """``top3-weighted``: every pair weighted by its similarity, by 0 if it is negative."""

    def weight(self, similarity_M: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return similarity_M
