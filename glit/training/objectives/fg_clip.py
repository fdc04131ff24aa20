"""``fg-clip``: whole images, regions, and regions against false sentences.

FG-CLIP, Xie et al. 2025, arXiv 2505.05071:

L = CE(image, long caption) + lambda_short CE(image, short caption)
    + lambda_region CE(region, sentence) + lambda_hard H
H = mean over regions of -log(exp(s r . t) / (exp(s r . t) + sum_j exp(s r . f_j)))

CE is CLIP's symmetric cross-entropy, over all regions of the batch in the third term; r are the
patches under a region, pooled, t is its sentence and f_j the sentence's false ones. The form of
the terms, the weights, ten negatives and a scale of their own for each of the last two terms are
those of the published code; equations of the paper were not at hand.

What is different here: patches are averaged where the code aligns regions of interest; where the
dataset has no captions of the kind ``short``, these are the first sentences; one text projection
serves long and short texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from glit.models.clip.encoder import ClipEncoder
from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import contrastive
from glit.training.module import LearnedScales, ObjectiveModule
from glit.training.objective import (
    InputSpec,
    Loss,
    Objective,
    false_sentence_loss,
    global_loss,
    logged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FgClip(Objective):
    """Contrast of whole images, of regions, and of regions with false sentences."""

    lambda_short: float = limited(1.0, least=0)
    """Weight of the short captions' loss."""
    lambda_region: float = limited(0.1, least=0)
    """Weight of the loss of regions and sentences."""
    lambda_hard: float = limited(0.5, least=0)
    """Weight of the loss against false sentences."""
    num_regions: int = limited(4, least=1)
    """Regions of every sample, each with its best sentence, best first."""
    num_negatives: int = limited(10, least=1)
    """False sentences of every pair; the dataset needs the column ``negatives``."""

    takes_short: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        return InputSpec(
            num_local=self.num_regions,
            distinct_regions=True,
            crops=False,
            pooled_patches=True,
            unmixed=True,
            num_negatives=self.num_negatives,
            num_texts=1 if self.lambda_short else 0,
        )

    def module(self, encoder: ClipEncoder) -> ObjectiveModule:
        return LearnedScales("region", "hard", scale=1 / 0.07, is_limited=True)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum and its terms."""
        numbers = features.numbers
        terms = {"loss_long": global_loss(features, logit_scale)}
        loss = terms["loss_long"]
        if self.lambda_short:
            short_N = features.valid_N & features.valid_further_NS[:, 0]
            terms["loss_short"] = contrastive(
                features.image_ND, features.further_text_NSD[:, 0], logit_scale, short_N
            )
            loss = loss + self.lambda_short * terms["loss_short"]
        patch_NKD, text_NKD = features.pooled_patch_NKD, features.local_text_NKD
        valid_NK = features.valid_local_NK & features.valid_patch_NK & features.valid_N[:, None]
        weight_NK = features.weight_NK
        terms["loss_region"] = contrastive(
            patch_NKD.flatten(0, 1),
            text_NKD.flatten(0, 1),
            numbers["region_scale"],
            valid_NK.flatten(),
            weight_NK.flatten(),
        )
        terms["loss_hard"] = false_sentence_loss(
            features, patch_NKD, valid_NK, numbers["hard_scale"]
        )
        loss = loss + self.lambda_region * terms["loss_region"]
        loss = loss + self.lambda_hard * terms["loss_hard"]
        return logged(loss, **terms, **numbers)
