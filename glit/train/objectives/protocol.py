"""What a training objective is: what it needs encoded, and a function of the features."""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from glit.train.features import Features
from glit.train.losses import contrastive


class Objective(Protocol):
    """A loss over the features of one contrastive batch.

    Objectives are pure: no model, no randomness, no process group. The order of the samples does
    not matter, and filler samples (``valid_N`` false) count for nothing.
    """

    @property
    def needs_global(self) -> bool:
        """Whether whole images and whole captions are encoded."""
        ...

    @property
    def num_local(self) -> int:
        """How many local pairs a sample is asked for (best first); 0 for none."""
        ...

    @property
    def needs_tokens(self) -> bool:
        """Whether patch and sentence tokens are pooled (needs ``needs_global`` too)."""
        ...

    def __call__(
        self, features: Features, logit_scale: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss to minimise, and detached scalars for the log."""
        ...


def global_loss(features: Features, logit_scale: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Contrastive loss of whole images and whole captions (FAST-GOAL Eq. 12)."""
    valid_N = features.valid_N
    return contrastive(features.image_ND[valid_N], features.text_ND[valid_N], logit_scale)


def local_loss(features: Features, logit_scale: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Contrastive loss of every sample's best region and sentence (FAST-GOAL Eq. 13)."""
    valid_N = features.valid_local_NK[:, 0] & features.valid_N
    return contrastive(
        features.local_image_NKD[:, 0][valid_N],
        features.local_text_NKD[:, 0][valid_N],
        logit_scale,
    )
