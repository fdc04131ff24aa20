"""``hard-negatives``: tell the regions of one image apart (FAST-GOAL Table XIV).

L = mean over images of the contrastive loss over that image's own pairs.

The paper's second stage: the similarity matrix holds only pairs of the same image. Sentences that
share a region would be each other's false negatives, so the loader hands over only the best
sentence of every region; images with fewer than two pairs left are skipped. The paper reports that
this hurts (51.00 against 74.27 R@1 on DOCCI), and so do we expect.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import contrastive
from glit.training.objective import InputSpec, Loss, Objective, logged


@dataclass(frozen=True, slots=True, kw_only=True)
class HardNegatives(Objective):
    """Contrastive loss inside every image; nothing is compared across images."""

    max_local: int = limited(8, least=2)
    """Most local pairs compared per image."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(whole=False, num_local=self.max_local, distinct_regions=True)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The mean over images with two pairs or more, and how many there were."""
        valid_NK = features.valid_local_NK & features.valid_N[:, None]
        enough_N = valid_NK.sum(dim=1) >= 2
        pairs = features.local_image_NKD, features.local_text_NKD
        error_N = contrastive(*pairs, logit_scale, valid_NK, features.weight_NK)
        num_images = enough_N.sum()
        loss = (error_N * enough_N).sum() / num_images.clamp_min(1)
        return logged(loss, loss_local=loss, images_compared=num_images)
