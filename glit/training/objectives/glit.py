"""``glit``: a sigmoid loss over whole images and captions, and one over regions and sentences.

L = S(v, t) + lambda_short S(v, t_s) + lambda_dense / 2 (S(P, t_l) + S(P, S_l))
    + negative_weight (H(P) + H(v))
S(x, y) = 1/M sum_m sum_n w_mn B(z_mn, s x_m . y_n + b),  B(z, l) = -z log sigmoid(l)
                                                                  - (1 - z) log sigmoid(-l)

``S`` is SigLIP's loss (Zhai et al., ICCV 2023, section 3.2), with a scale and a bias of its own for
the whole and for the dense term. ``P`` are the patch tokens of the whole image under a region,
averaged and projected; ``S_l`` the caption's tokens of its sentence, averaged and projected
(FAST-GOAL Eq. 7 to 10); ``t_l`` is the sentence encoded by itself. The M regions and sentences of
all images are each other's negatives, so the crop of a region is never encoded, and a step costs
little more than one of ``siglip``.

``t_s`` is the short caption, of a dataset that has them; images without one are left out of its
term, which is MulCLIP's (Eq. 3). Without short captions there is no such term.

``H`` holds false sentences f_j of t_l against it (FG-CLIP's term, with CLIP's own scale); it is off
unless ``negative_weight`` is above 0:

H(x) = mean over pairs of -log(exp(s x . t_l) / (exp(s x . t_l) + sum_j exp(s x . f_j)))

- A pair's target ``z_mm`` is its weight: 1, or its probability with ``train.pairs = "weighted"``.
- Equal texts are no negatives of each other (``w_mn = 0``): on many images the same is true.
- Where a sentence leaves the text window, only its own embedding is compared.
- A SigLIP start has no tokens of texts: the dense term is ``S(P, t_l)`` alone, ``P`` its pooling
  head on the patches under the region, and the whole term uses its own scale and bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from glit.errors import RecipeError
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.siglip import SiglipEncoder
from glit.plain import limited
from glit.training.features import Features, equal_keys
from glit.training.losses import sigmoid_loss
from glit.training.module import Encoded, LearnedScales, ModuleOutput, ObjectiveModule
from glit.training.objective import InputSpec, Loss, Objective, false_sentence_loss, logged

_BLOCK = 4096
"""Regions of which the logits against all sentences are in memory at a time."""


class DenseScale(LearnedScales):
    """Scale and bias of the dense term, from a SigLIP model's own, which the whole term uses."""

    def __init__(self, encoder: SiglipEncoder) -> None:
        super().__init__("dense", scale=1.0, bias=0.0)
        self.log_scale.data = encoder.logit_scale.detach().log()
        self.get_parameter("bias").data = encoder.logit_bias.detach().clone()

    def forward(self, encoded: Encoded) -> ModuleOutput:
        encoder = encoded.encoder
        assert isinstance(encoder, SiglipEncoder)
        whole = {"whole_scale": encoder.logit_scale, "whole_bias": encoder.logit_bias}
        return ModuleOutput(numbers=whole | self.numbers())


@dataclass(frozen=True, slots=True, kw_only=True)
class Glit(Objective):
    """Sigmoid losses over whole images and over patches under regions; no crop is encoded."""

    lambda_dense: float = limited(0.5, least=0)
    """Weight of the dense term, the loss of regions and sentences. With 0, ``siglip`` is left, but
    equal captions are no negatives, and short captions are used if there are any."""
    lambda_short: float = limited(1.0, least=0)
    """Weight of the sigmoid loss between whole images and their short captions (kind ``short``). A
    dataset with one caption an image has none, and no such loss."""
    num_regions: int = limited(4, least=1)
    """Regions of an image in the dense term, at most: those of its most similar pairs, each region
    with its most similar sentence."""
    encode_sentences: bool = True
    """Compare regions with their sentences encoded by themselves. Without it hardly any time is
    saved, and regions are found far less well."""
    pool_tokens: bool = True
    """Compare regions with the caption's tokens of their sentences. Set it to false for a SigLIP
    start, which has none."""
    negative_weight: float = limited(0.0, least=0)
    """Weight of the loss against false sentences, of regions and of the whole image; above 0 the
    dataset needs the column ``negatives``."""
    negative_pairs: int = limited(6, least=1)
    """Pairs of every sample that are held against their false sentences, best first; one of each
    region where ``num_regions`` is above 1."""
    num_negatives: int = limited(3, least=1)
    """False sentences of each of them, drawn anew every epoch."""
    sigmoid_lr: float = limited(1e-3, above=0)
    """Highest learning rate of the scales and biases. The encoders use ``train.lr``."""

    def check(self) -> None:
        if not (self.encode_sentences or self.pool_tokens):
            raise RecipeError(
                "train.encode_sentences = False and train.pool_tokens = False: nothing is left to "
                "compare regions with; set one to true, or train.objective = 'siglip'"
            )

    takes_short: ClassVar[bool] = True
    needs_short: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        with_negatives = self.negative_weight > 0
        return InputSpec(
            num_local=max(self.num_regions, self.negative_pairs * with_negatives),
            distinct_regions=self.num_regions > 1 or not with_negatives,
            pooled_patches=True,
            pooled_tokens=self.pool_tokens,
            crops=False,
            sentences=self.encode_sentences or with_negatives,
            num_negatives=self.num_negatives * with_negatives,
            num_texts=1 if self.lambda_short else 0,
        )

    @property
    def module_lr(self) -> float:
        return self.sigmoid_lr

    def module(self, encoder: ClipEncoder) -> ObjectiveModule:
        if isinstance(encoder, SiglipEncoder):
            encoder.clip.get_parameter("logit_bias").requires_grad_(True)
            return DenseScale(encoder)
        return LearnedScales("whole", "dense", scale=10.0, bias=-10.0)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, its terms, and where scales and biases have got to."""
        numbers = features.numbers
        whole = sigmoid_loss(
            features.image_ND,
            features.text_ND,
            numbers["whole_scale"],
            numbers["whole_bias"],
            features.valid_N,
            features.equal_captions(),
        )
        dense_NK = slice(None), slice(self.num_regions)
        patch_MD = features.pooled_patch_NKD[dense_NK].flatten(0, 1)
        target_M = features.weight_NK[dense_NK].flatten()
        key_M2 = features.local_key_NK2[dense_NK].flatten(0, 1)
        valid_patch_NK = features.valid_patch_NK & features.valid_N[:, None]
        learned = numbers["dense_scale"], numbers["dense_bias"]

        def dense_term(text_NKD: Tensor, valid_NK: Tensor) -> Tensor:
            valid_M = (valid_patch_NK & valid_NK)[dense_NK].flatten()
            text_MD = text_NKD[dense_NK].flatten(0, 1)
            return dense_loss(patch_MD, text_MD, target_M, key_M2, valid_M, *learned)

        terms: dict[str, Tensor] = {}
        if self.pool_tokens:
            tokens = dense_term(features.pooled_token_NKD, features.valid_token_NK)
            terms["loss_tokens"] = tokens
        if self.encode_sentences:
            sentence = dense_term(features.local_text_NKD, features.valid_local_NK)
            terms["loss_sentences"] = sentence
        dense = sum(terms.values(), start=torch.zeros_like(whole)) / len(terms)
        # several processes wait for a gradient of every parameter, CLIP's own scale among them
        loss = whole + self.lambda_dense * dense + 0 * logit_scale
        if self.lambda_short:
            terms["loss_short"] = sigmoid_loss(
                features.image_ND,
                features.further_text_NSD[:, 0],
                numbers["whole_scale"],
                numbers["whole_bias"],
                features.valid_N & features.valid_further_NS[:, 0],
                equal_keys(features.further_key_NS2[:, 0]),
            )
            loss = loss + self.lambda_short * terms["loss_short"]
        if self.negative_weight:
            among_NKJ = features.valid_negative_NKJ.clone()
            among_NKJ[:, self.negative_pairs :] = False
            first = replace(features, valid_negative_NKJ=among_NKJ)
            terms["loss_false_of_region"] = false_sentence_loss(
                first, features.pooled_patch_NKD, valid_patch_NK, logit_scale
            )
            terms["loss_false_of_image"] = false_sentence_loss(
                first, features.image_ND[:, None], features.valid_N[:, None], logit_scale
            )
            false = terms["loss_false_of_region"] + terms["loss_false_of_image"]
            loss = loss + self.negative_weight * false
        return logged(loss, loss_whole=whole, **terms, **numbers)


def dense_loss(
    patch_MD: Float[Tensor, "m d"],
    text_MD: Float[Tensor, "m d"],
    target_M: Float[Tensor, " m"],
    key_M2: Float[Tensor, "m 2"],
    valid_M: Bool[Tensor, " m"],
    scale: Float[Tensor, ""],
    bias: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """The pairwise sigmoid loss of M regions and sentences, a mean over the valid regions.

    Logits are made in blocks and again in the backward pass, so that memory is one block's.
    Without a valid pair the loss is zero and still tied to its inputs.

    Args:
        patch_MD: pooled patches of the regions, L2-normalised.
        text_MD: of the sentences, L2-normalised.
        target_M: of the pair of region m and sentence m, from 0 to 1.
        key_M2: equal for equal sentences, which are no negatives of each other.
        valid_M: which pairs there are.
        scale: of cosines.
        bias: added to them.
    """
    total = patch_MD.new_zeros(())
    for start in range(0, len(patch_MD), _BLOCK):
        rows = slice(start, start + _BLOCK)
        block = (patch_MD[rows], text_MD, target_M[rows], key_M2, valid_M, scale, bias)
        if len(patch_MD) <= _BLOCK:
            total = total + _block_loss(*block, start=start)
        else:
            total = total + checkpoint(_block_loss, *block, start=start, use_reentrant=False)
    return total / valid_M.sum().clamp_min(1)


def _block_loss(
    patch_RD: Tensor,
    text_MD: Tensor,
    target_R: Tensor,
    key_M2: Tensor,
    valid_M: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    start: int,
) -> Tensor:
    """The sum over the regions from ``start`` on, against all sentences."""
    end = start + len(patch_RD)
    logits_RM = scale * patch_RD @ text_MD.T + bias
    own_RM = torch.zeros_like(logits_RM, dtype=torch.bool)
    own_RM.diagonal(start).fill_(True)
    equal_RM = (key_M2[start:end, None] == key_M2).all(dim=-1)
    counted_RM = valid_M[start:end, None] & valid_M & (own_RM | ~equal_RM)
    target_RM = own_RM * target_R[:, None]
    error_RM = F.binary_cross_entropy_with_logits(
        logits_RM, target_RM.to(logits_RM.dtype), reduction="none"
    )
    return torch.where(counted_RM, error_RM, torch.zeros_like(error_RM)).sum()
