"""What an objective sees: the embeddings of the whole contrastive batch, with what is valid."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """N samples with K local slots each; every embedding projected and L2-normalised.

    Under several processes these are the gathered features of all of them, in rank order, so an
    objective need not know how many processes there are. Slots that are not valid hold zeros.
    """

    image_ND: Float[Tensor, "n d"]
    """Global image embeddings (v_g)."""

    text_ND: Float[Tensor, "n d"]
    """Caption embeddings (t_g)."""

    local_image_NKD: Float[Tensor, "n k d"]
    """Embeddings of the cropped regions (v_l)."""

    local_text_NKD: Float[Tensor, "n k d"]
    """Embeddings of the sentences (t_l)."""

    pooled_patch_NKD: Float[Tensor, "n k d"]
    """Patch tokens of the global image inside the region, pooled and projected (P_l)."""

    pooled_token_NKD: Float[Tensor, "n k d"]
    """Tokens of the caption that make up the sentence, pooled and projected (S_l)."""

    valid_N: Bool[Tensor, " n"]
    """False for samples that only fill up the last batch of an epoch."""

    valid_local_NK: Bool[Tensor, "n k"]
    """False where a sample has no such local pair."""

    valid_patch_NK: Bool[Tensor, "n k"]
    """False where the region lies outside what the model sees of the image."""

    valid_token_NK: Bool[Tensor, "n k"]
    """False where the sentence leaves the text window."""

    similarity_NK: Float[Tensor, "n k"]
    """The matcher's cosine of the pair, from the dataset."""

    def map(self, fn) -> Features:
        """Apply ``fn`` to every tensor."""
        return replace(self, **{f.name: fn(getattr(self, f.name)) for f in fields(self)})

    @property
    def num_slots(self) -> int:
        """K, the local slots a sample."""
        return self.local_image_NKD.shape[1]


EMBEDDINGS = (
    "image_ND",
    "text_ND",
    "local_image_NKD",
    "local_text_NKD",
    "pooled_patch_NKD",
    "pooled_token_NKD",
)
"""The fields of Features that carry gradients."""


def concatenate(parts: list[Features]) -> Features:
    """The samples of several parts one after the other."""
    return Features(
        **{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Features)}
    )
