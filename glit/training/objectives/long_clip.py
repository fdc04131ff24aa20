"""``long-clip``: the long caption, and the short one against a coarser image.

L = CE(image, long caption) + CE(image', short caption)

CE is CLIP's symmetric cross-entropy with label smoothing 0.1; image' is the image embedding rebuilt
from its 32 leading principal components over the batch ("primary component matching", Long-CLIP
section 3.3 of Zhang et al. 2024), neither centred nor normalised again. Details that the paper
leaves open (smoothing, weights 1 : 1, what is short) are those of its published code.

Two choices of ours. The short caption is the first sentence, as the dataset splits captions, where
there is none of the kind ``short``; the code cuts at the first ". ", which is the same but for
abbreviations. Components are those of the whole contrastive batch, the code's those of each
process's share, so that its loss depends on how many processes there are. With as many components
as samples image' is the image: a batch of 32 and less wants fewer than 32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import contrastive
from glit.training.objective import InputSpec, Loss, Objective, logged


@dataclass(frozen=True, slots=True, kw_only=True)
class LongClip(Objective):
    """Long-CLIP's two contrastive losses."""

    lambda_short: float = limited(1.0, least=0)
    """Weight of the short captions' loss."""
    num_components: int = limited(32, least=1)
    """Principal components of the image that the short caption is compared with."""
    label_smoothing: float = limited(0.1, least=0, below=1)
    """Label smoothing: share of the target for all other pairs of the batch, 0 to 1."""

    takes_short: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        return InputSpec(num_texts=1)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum and its terms."""
        valid_N = features.valid_N
        image_ND, short_ND = features.image_ND, features.further_text_NSD[:, 0]
        coarse_ND = rebuilt(image_ND, valid_N, self.num_components)
        with_short_N = valid_N & features.valid_further_NS[:, 0]
        long, short = (
            contrastive(*each, smoothing=self.label_smoothing)
            for each in (
                (image_ND, features.text_ND, logit_scale, valid_N),
                (coarse_ND, short_ND, logit_scale, with_short_N),
            )
        )
        loss = long + self.lambda_short * short
        return logged(loss, loss_long=long, loss_short=short)


def rebuilt(
    x_ND: Float[Tensor, "n d"], valid_N: Bool[Tensor, " n"], num_components: int
) -> Float[Tensor, "n d"]:
    """Rows rebuilt from their leading principal components: mean + (x - mean) V V^T.

    The columns of V are the leading eigenvectors of the covariance of the valid rows (PCA).

    Rows that are not valid take no part and come back as they are. With as many components as
    there are valid rows, or more, the valid ones come back too.

    Args:
        x_ND: any floating type; computed in float32 or above.
        valid_N: which rows there are.
        num_components: columns of V; more than D means D.
    """
    wide = x_ND.to(torch.promote_types(x_ND.dtype, torch.float32))
    weight_N1 = valid_N[:, None].to(wide.dtype)
    mean_D = (wide * weight_N1).sum(dim=0) / weight_N1.sum().clamp_min(1)
    centred_ND = (wide - mean_D) * weight_N1
    projector_DD = _LeadingProjector.apply(centred_ND.T @ centred_ND, num_components)
    back_ND = mean_D + centred_ND @ projector_DD
    return torch.where(valid_N[:, None], back_ND, wide).to(x_ND.dtype)


class _LeadingProjector(torch.autograd.Function):
    """The projector on the leading eigenvectors of a symmetric matrix C.

    dP = sum over kept i and left j of (v_i^T dC v_j) (v_i v_j^T + v_j v_i^T) / (l_i - l_j): only
    differences across the cut matter. The derivative of the vectors themselves, which automatic
    differentiation would take, has differences between all eigenvalues below the line and is
    infinite where two are equal, as all those of directions that no row has are.
    """

    @staticmethod
    def forward(ctx: Any, symmetric_DD: Tensor, num_components: int) -> Tensor:
        value_D, vector_DD = torch.linalg.eigh(symmetric_DD)  # ascending
        first = max(0, len(value_D) - num_components)
        kept_DK = vector_DD[:, first:]
        ctx.save_for_backward(value_D, vector_DD)
        ctx.first = first
        return kept_DK @ kept_DK.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        value_D, vector_DD = ctx.saved_tensors
        left_DJ, kept_DK = vector_DD[:, : ctx.first], vector_DD[:, ctx.first :]
        gap_KJ = value_D[ctx.first :, None] - value_D[None, : ctx.first]
        # directions of the same length are interchangeable: no row changes when they swap
        smallest = torch.finfo(value_D.dtype).eps * value_D.abs().max().clamp_min(1e-30) * 8
        factor_KJ = torch.where(gap_KJ > smallest, 1 / gap_KJ.clamp_min(smallest), 0.0)
        grad_DD = grads[0] + grads[0].T
        inner_KJ = (kept_DK.T @ grad_DD @ left_DJ) * factor_KJ
        half_DD = kept_DK @ inner_KJ @ left_DJ.T
        return (half_DD + half_DD.T) / 2, None
