"""``fast-goal`` (also ``goal``): global and local contrast plus token similarity (TSL).

L = lambda_global L_global + lambda_local L_local + lambda_tsl L_TSL   (FAST-GOAL Eq. 11)
L_TSL = MSE(sim(P_l, v_l), 1) + MSE(sim(S_l, t_l), 1)                  (Eq. 14)

``P_l`` are the patch tokens of the whole image under the region, averaged, then taken through the
vision tower's post-layernorm and the visual projection (Eq. 9 and 10); ``S_l`` the caption's tokens
that make up the sentence, averaged, then through the text tower's final layer norm and the text
projection (Eq. 7 and 8), as the code published with GOAL does. GOAL and FAST-GOAL differ in how the
pairs were found, not here; their equations have the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import mean_cosine, tsl_diagonal, tsl_full
from glit.training.objective import InputSpec, Loss, logged
from glit.training.objectives.global_local import GlobalLocal

TslMatrix = Literal["diagonal", "full"]
TSL_MATRICES = {"diagonal": tsl_diagonal, "full": tsl_full}


@dataclass(frozen=True, slots=True, kw_only=True)
class FastGoal(GlobalLocal):
    """The papers' objective over the best pair of every sample."""

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
