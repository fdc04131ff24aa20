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
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import mean_cosine, tsl_diagonal, tsl_full
from glit.training.objective import InputSpec, Loss, Objective, global_loss, local_loss, logged

TslMatrix = Literal["diagonal", "full"]


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
class Tsl(GlobalLocal):
    """Both contrastive losses of the best pair, and TSL over the ``num_pairs`` best pairs:

    L_TSL = sum_k w_k TSL_k / sum_k w_k
    """

    num_pairs: ClassVar[int] = 1

    lambda_tsl: float = limited(1.0, least=0)
    """Weight of the token similarity loss (Eq. 11)."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_local=self.num_pairs, pooled_patches=True, pooled_tokens=True)

    def weight(self, similarity_NK: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """w_k of every pair."""
        return torch.ones_like(similarity_NK)

    def tsl(self, pooled_MD: Tensor, local_MD: Tensor, weight_M: Tensor) -> Float[Tensor, ""]:
        """The weighted mean of TSL."""
        return tsl_diagonal(pooled_MD, local_MD, weight_M)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, its terms, and of one pair the mean cosines TSL is pulling up."""
        loss, terms = GlobalLocal.__call__(self, features, logit_scale)
        local_NK = features.valid_local_NK & features.valid_N[:, None]
        pair_NK = self.weight(features.similarity_NK.clamp_min(0)) * features.weight_NK
        for name, pooled_NKD, local_NKD, valid_NK in (
            ("patch", features.pooled_patch_NKD, features.local_image_NKD, features.valid_patch_NK),
            ("token", features.pooled_token_NKD, features.local_text_NKD, features.valid_token_NK),
        ):
            counted_NK = local_NK & valid_NK
            pooled_MD, local_MD, weight_M, counted_M = (
                each[:, : self.num_pairs].flatten(0, 1)
                for each in (pooled_NKD, local_NKD, pair_NK * counted_NK, counted_NK)
            )
            terms[f"loss_tsl_{name}"] = self.tsl(pooled_MD, local_MD, weight_M)
            if self.num_pairs == 1:
                terms[f"cosine_{name}"] = mean_cosine(pooled_MD, local_MD, counted_M)
        tsl = terms["loss_tsl_patch"] + terms["loss_tsl_token"]
        return logged(loss + self.lambda_tsl * tsl, **terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastGoal(Tsl):
    """``fast-goal`` (also ``goal``): the papers' objective over the best pair of every sample."""

    tsl_matrix: TslMatrix = "diagonal"
    """``diagonal`` pulls matching pairs to one; ``full`` also pushes all others to zero."""

    def tsl(self, pooled_MD: Tensor, local_MD: Tensor, weight_M: Tensor) -> Float[Tensor, ""]:
        kind = tsl_diagonal if self.tsl_matrix == "diagonal" else tsl_full
        return kind(pooled_MD, local_MD, weight_M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Uniform(Tsl):
    """``top3-uniform``: TSL over the three best pairs, of equal weight (Table VIII).

    The paper weights the TSL term only; the local contrast stays on the best pair. With one pair a
    sample this is ``fast-goal``.
    """

    num_pairs: ClassVar[int] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Top3Weighted(Top3Uniform):
    """``top3-weighted``: every pair weighted by its similarity, by 0 if it is negative."""

    def weight(self, similarity_NK: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        return similarity_NK
