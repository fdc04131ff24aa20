"""``global+local``: both contrastive losses, without token similarity.

L = lambda_global L_global + lambda_local L_local (the row "w/o TSL" of FAST-GOAL Table VI).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.train.features import Features
from glit.train.objectives.protocol import global_loss, local_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalLocal:
    """Global and local contrastive losses, weighted."""

    lambda_global: float = 1.0
    lambda_local: float = 0.5
    needs_global: bool = True
    num_local: int = 1
    needs_tokens: bool = False

    def __call__(
        self, features: Features, logit_scale: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The weighted sum, and its two terms for the log."""
        whole = global_loss(features, logit_scale)
        local = local_loss(features, logit_scale)
        loss = self.lambda_global * whole + self.lambda_local * local
        return loss, {"loss_global": whole.detach(), "loss_local": local.detach()}
