"""``clip``: whole images against whole captions, the plain fine-tuning baseline.

L = L_global (FAST-GOAL Eq. 12; the row "Global fine-tuning" of Table VI).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.training.features import Features
from glit.training.objective import InputSpec, Loss, Objective, global_loss, logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(Objective):
    """Global contrastive loss only; no local pair is encoded."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec()

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The global loss, and itself for the log."""
        loss = global_loss(features, logit_scale)
        return logged(loss, loss_global=loss)
