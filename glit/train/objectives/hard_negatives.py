"""``hard-negatives``: tell the regions of one image apart (FAST-GOAL Table XIV).

L = mean over images of the contrastive loss over that image's own pairs.

The paper's second stage: the similarity matrix holds only pairs of the same image. Sentences that
share a region would be each other's false negatives, so the loader hands over only the best
sentence of every region; images with fewer than two pairs left are skipped. The paper reports that
this hurts (51.00 against 74.27 R@1 on DOCCI), and so do we expect.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glit.errors import RecipeError
from glit.train.features import Features
from glit.train.objective import Loss, Needs, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class HardNegatives(Objective):
    """Contrastive loss inside every image; nothing is compared across images."""

    max_local: int = 8
    """Most local pairs of one image that are compared."""

    def __post_init__(self) -> None:
        if self.max_local < 2:
            raise RecipeError(f"train.max_local = {self.max_local}: wanted 2 or more")

    @property
    def needs(self) -> Needs:
        return Needs(whole=False, num_local=self.max_local, distinct_regions=True)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The mean over images with two pairs or more, and how many there were."""
        valid_NK = features.valid_local_NK & features.valid_N[:, None]
        enough_N = valid_NK.sum(dim=1) >= 2
        valid_MK = valid_NK[enough_N]
        image_MKD = features.local_image_NKD[enough_N]
        text_MKD = features.local_text_NKD[enough_N]
        if not bool(enough_N.any()):
            loss = (features.local_image_NKD.sum() + features.local_text_NKD.sum()) * 0
            return loss + logit_scale * 0, {"images_compared": enough_N.sum().detach()}
        logits_MKK = logit_scale * image_MKD @ text_MKD.transpose(1, 2)
        loss = (_rows(logits_MKK, valid_MK) + _rows(logits_MKK.transpose(1, 2), valid_MK)) / 2
        return loss, {"loss_local": loss.detach(), "images_compared": enough_N.sum().detach()}


def _rows(logits_MKK: Tensor, valid_MK: Tensor) -> Tensor:
    """Cross-entropy of every valid row against its own column, mean per image, then over images."""
    lowest = torch.finfo(logits_MKK.dtype).min
    logits_MKK = logits_MKK.masked_fill(~valid_MK[:, None, :], lowest)
    target_MK = torch.arange(valid_MK.shape[1], device=valid_MK.device).expand(valid_MK.shape)
    error_MK = F.cross_entropy(logits_MKK.transpose(1, 2), target_MK, reduction="none")
    error_MK = torch.where(valid_MK, error_MK, torch.zeros_like(error_MK))
    return (error_MK.sum(dim=1) / valid_MK.sum(dim=1)).mean()
