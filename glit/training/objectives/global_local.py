"""``global+local``: both contrastive losses, without token similarity.

L = lambda_global L_global + lambda_local L_local

(FAST-GOAL Eq. 11 without its last term, the row "w/o TSL" of Table VI).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.objective import InputSpec, Loss, Objective, global_loss, local_loss, logged


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLocal(Objective):
    """Global and local contrastive losses, weighted."""

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
