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
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import contrastive
from glit.training.objective import InputSpec, Loss, Objective, logged
from glit.training.principal import rebuilt


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
