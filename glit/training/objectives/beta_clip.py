"""``beta-clip``: captions, sentences and phrases against the patches they attend to.

L = lambda_global L_global + lambda_aligned L_beta

Every text of an image (the caption, up to 5 sentences, up to 30 phrases of these) pools the
image's patches by attention; L_beta compares all pooled vectors with all texts of the batch, B K x
B K cosines times a learned scale. Right is a text's own vector, with weight 1, and those of the
other texts of its image with weight beta:

cross-entropy         -1/(B K) sum_x sum_y q_xy log p_xy, both ways,
                      q_xy = (1 if x = y, beta if of one image, else 0) / sum
binary cross-entropy  1/(B K)^2 sum_xy w_xy log(1 + exp(-+ s_xy)), w_xy = beta if x and y are
                      different texts of one image, else 1

(beta-CLIP: Zohra, Zhao, Itani, Ghanem, arXiv 2512.12678, section 3; restated from its code, which
has no numbers of equations.) As there: patches attend to themselves alone in the last layer;
texts and patches enter the attention normalised; sentences are drawn again every time; equal
texts of other images count as wrong. What differs:

- Padding counts for nothing. In the code, empty phrases are further negatives of the cross-entropy,
  and count in the mean of the binary one.
- L_beta is over the whole contrastive batch, the code's over each process's share.
- Phrases are noun phrases, verbs with a preposition and places as glit's tagger finds them
  (TextBlob), the code's come from spaCy; sentences are the dataset's, the code cuts at ". ".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from glit.models.clip.attention_pool import AttentionPool
from glit.models.clip.encoder import ClipEncoder
from glit.plain import limited
from glit.recipes.extras import require
from glit.text.phrases import phrases
from glit.text.spans import Span
from glit.training.features import Features
from glit.training.module import Encoded, LearnedScales, ModuleOutput
from glit.training.objective import InputSpec, Loss, Objective, global_loss, logged

Contrast = Literal["cross-entropy", "binary"]


class BetaClipModule(LearnedScales):
    """The attention and the scale of L_beta."""

    def __init__(self, width: int) -> None:
        super().__init__(scale=1 / 0.07, is_limited=True)
        self.pool = AttentionPool(width)

    def forward(self, encoded: Encoded) -> ModuleOutput:
        features, tokens = encoded.features, encoded.tokens
        assert tokens is not None
        patch_BPD = encoded.encoder.project_patches(tokens.patch_BPH)
        texts_BKD = torch.cat([features.text_ND[:, None], features.further_text_NSD], dim=1)
        pooled_BKD = F.normalize(self.pool(texts_BKD, patch_BPD).float(), dim=-1)
        return ModuleOutput(rows={"pooled": pooled_BKD}, numbers=self.numbers())

    def after_step(self, max_logit_scale: float) -> None:
        """The scale stays between 1 and CLIP's own limit."""
        super().after_step(max_logit_scale)
        self.log_scale.clamp_(min=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaClip(Objective):
    """Texts of three lengths, each against patches pooled for it."""

    beta: float = limited(0.5, least=0)
    """Weight of the other texts of the same image: 0 distinguishes them, 1 treats them as equal."""
    contrast: Contrast = "cross-entropy"
    """``cross-entropy`` or ``binary``."""
    num_sentences: int = limited(5, least=0)
    """Most sentences per caption, drawn again for every use."""
    max_phrases: int = limited(30, least=0)
    """Most phrases of these sentences; above 0 needs the extra ``phrases``."""
    lambda_global: float = limited(1.0, least=0)
    """Weight of the global contrastive loss."""
    lambda_aligned: float = limited(1.0, least=0)
    """Weight of L_beta."""
    pool_lr: float = limited(1e-3, above=0)
    """Highest learning rate of the attention and its scale; the encoders use ``train.lr``."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(tokens=True, unmixed=True, num_texts=self.num_sentences + self.max_phrases)

    @property
    def module_lr(self) -> float:
        return self.pool_lr

    def texts(
        self,
        caption: str,
        sentences: Sequence[Span],
        draw: np.random.Generator,
        short: str | None = None,
    ) -> Sequence[str]:
        """Some sentences in the order of the caption, then phrases of them."""
        number = min(self.num_sentences, len(sentences))
        drawn = np.sort(draw.choice(len(sentences), number, replace=False)) if number else []
        chosen = [caption[slice(*sentences[index])] for index in drawn]
        if not self.max_phrases:
            return chosen
        found = dict.fromkeys(phrase for sentence in chosen for phrase in phrases(sentence))
        return [*chosen, *list(found)[: self.max_phrases]]

    def module(self, encoder: ClipEncoder) -> BetaClipModule:
        if self.max_phrases:
            require("phrases", needed_for="train.max_phrases above 0")
        return BetaClipModule(encoder.width)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, its terms, and the learned scale."""
        scale = features.numbers["scale"]
        text_NKD = torch.cat([features.text_ND[:, None], features.further_text_NSD], dim=1)
        valid_N1 = features.valid_N[:, None]
        valid_NK = torch.cat([valid_N1, features.valid_further_NS & valid_N1], dim=1)
        loss_of = soft_cross_entropy if self.contrast == "cross-entropy" else binary_cross_entropy
        aligned = loss_of(features.made["pooled"], text_NKD, valid_NK, scale, self.beta)
        whole = global_loss(features, logit_scale)
        loss = self.lambda_global * whole + self.lambda_aligned * aligned
        return logged(loss, loss_global=whole, loss_aligned=aligned, pool_scale=scale)


def soft_cross_entropy(
    pooled_NKD: Float[Tensor, "n k d"],
    text_NKD: Float[Tensor, "n k d"],
    valid_NK: Bool[Tensor, "n k"],
    scale: Float[Tensor, ""],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean of both ways over the valid texts; embeddings are L2-normalised.

    Worked case: one image of two orthogonal texts that find themselves, scale 1, beta 1:
    ln(1 + e) - 1/2 = 0.8133.
    """
    num_samples, num_slots, _ = text_NKD.shape
    valid_X = valid_NK.flatten()
    lowest = torch.finfo(text_NKD.dtype).min
    logits_XX, own_NKK = _logits(pooled_NKD, text_NKD, scale)
    both_ways = [
        torch.logsumexp(logits_XX.masked_fill(~valid_X, lowest), dim=1),
        torch.logsumexp(logits_XX.masked_fill(~valid_X[:, None], lowest), dim=0),
    ]
    target_NKK = _weights(num_slots, beta, own_NKK) * valid_NK[:, None, :]
    target_NKK = target_NKK / target_NKK.sum(dim=2, keepdim=True).clamp_min(1e-8)
    total = logits_XX.new_zeros(())
    for lse_X, logits_NKK in zip(both_ways, (own_NKK, own_NKK.transpose(1, 2)), strict=True):
        error_NK = lse_X.view(num_samples, num_slots) - (target_NKK * logits_NKK).sum(dim=2)
        total = total + torch.where(valid_NK, error_NK, torch.zeros_like(error_NK)).sum()
    return total / 2 / valid_X.sum().clamp_min(1)


def binary_cross_entropy(
    pooled_NKD: Float[Tensor, "n k d"],
    text_NKD: Float[Tensor, "n k d"],
    valid_NK: Bool[Tensor, "n k"],
    scale: Float[Tensor, ""],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean over all pairs of valid texts; the two ways are one, their matrices being transposed.

    Worked case: two images of one text, orthogonal, that find themselves, scale 1:
    (2 ln(1 + e^-1) + 2 ln 2) / 4 = 0.5032.
    """
    num_samples, num_slots, _ = text_NKD.shape
    valid_X = valid_NK.flatten()
    logits_XX, own_NKK = _logits(pooled_NKD, text_NKD, scale)
    sample_X = torch.arange(num_samples, device=logits_XX.device).repeat_interleave(num_slots)
    wrong_XX = (sample_X[:, None] != sample_X) & valid_X[:, None] & valid_X
    error_XX = torch.where(wrong_XX, F.softplus(logits_XX), torch.zeros_like(logits_XX))
    both_NKK = valid_NK[:, :, None] & valid_NK[:, None, :]
    right_NKK = F.softplus(-own_NKK) * _weights(num_slots, beta, own_NKK)
    right_NKK = torch.where(both_NKK, right_NKK, torch.zeros_like(right_NKK))
    return (error_XX.sum() + right_NKK.sum()) / valid_X.sum().clamp_min(1).square()


def _logits(
    pooled_NKD: Float[Tensor, "n k d"], text_NKD: Float[Tensor, "n k d"], scale: Tensor
) -> tuple[Tensor, Tensor]:
    """All texts against all pooled patches, [N K, N K], and the blocks on the diagonal: every
    sample's texts against its own, [N, K, K]."""
    num_samples, num_slots, _ = text_NKD.shape
    logits_XX = scale * pooled_NKD.flatten(0, 1) @ text_NKD.flatten(0, 1).T
    blocks = logits_XX.view(num_samples, num_slots, num_samples, num_slots)
    return logits_XX, blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def _weights(num_slots: int, beta: float, like: Tensor) -> Tensor:
    """1 on the diagonal, beta beside it, [K, K]."""
    eye_KK = torch.eye(num_slots, dtype=like.dtype, device=like.device)
    return eye_KK + beta * (1 - eye_KK)
