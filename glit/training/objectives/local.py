"""``local``: the best region of an image against its sentence.

L = L_local (FAST-GOAL Eq. 13; the row "Local fine-tuning" of Table VI).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.training.features import Features
from glit.training.objective import InputSpec, Loss, Objective, local_loss, logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Objective):
    """Local contrastive loss only; whole images and captions are not encoded."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(whole=False, num_local=1)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The local loss, and itself for the log."""
        loss = local_loss(features, logit_scale)
        return logged(loss, loss_local=loss)
