"""FineLIP's features: global vectors, and condensed patches and words (section 3.2).

Shapes: B samples, P patches, L slots of a caption, H tower width, D width of the shared space.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.refinement import TokenRefinement, widened, words

Refine = Literal["both", "image", "text", "none"]


class FineLipTokens(nn.Module):
    """The refinements of FineLIP: one for the patches and one for the words.

    Tokens enter it projected and not normalised, as in LAPS; words are a caption's tokens between
    start and end. A side that is not refined keeps all its tokens (the ablations of Table 3B).
    """

    def __init__(
        self, encoder: ClipEncoder, *, ratio: float, refine: Refine, global_tokens: bool
    ) -> None:
        super().__init__()
        num_patches, self.num_words = encoder.grid**2, max(1, encoder.context - 2)
        self.global_tokens = global_tokens
        self.image = self.text = None
        if refine in ("both", "image"):
            self.image = TokenRefinement(encoder.width, max(1, int(ratio * num_patches)))
        if refine in ("both", "text"):
            self.text = TokenRefinement(encoder.width, max(1, int(ratio * self.num_words)))

    def of_images(
        self,
        encoder: ClipEncoder,
        patch_BPH: Float[Tensor, "b p h"],
        image_BD: Float[Tensor, "b d"],
    ) -> tuple[Float[Tensor, "b v d"], Bool[Tensor, "b v"]]:
        """V' of every image, L2-normalised, the class token first; which of them count."""
        patch_BPD = encoder.patch_features(patch_BPH)
        if self.image is not None:
            patch_BPD = self.image(patch_BPD)
        valid_BP = torch.ones(patch_BPD.shape[:2], dtype=torch.bool, device=patch_BPD.device)
        return self._with_global(image_BD, patch_BPD, valid_BP)

    def of_texts(
        self,
        encoder: ClipEncoder,
        token_BLH: Float[Tensor, "b l h"],
        valid_BL: Bool[Tensor, "b l"],
        text_BD: Float[Tensor, "b d"],
    ) -> tuple[Float[Tensor, "b v d"], Bool[Tensor, "b v"]]:
        """T' of every text, L2-normalised, the end token first; which of them count.

        Without refinement there are as many as the text window has, whatever is in it.

        Args:
            encoder: projects.
            token_BLH: before the final layer norm.
            valid_BL: the text's own tokens, start and end included.
            text_BD: embeddings of the texts.
        """
        word_BLH, valid_BL = words(token_BLH, valid_BL)
        word_BLD = encoder.token_features(word_BLH)
        if self.text is not None:
            word_BLD, valid_B1 = self.text(word_BLD, valid_BL), valid_BL.any(dim=1, keepdim=True)
            return self._with_global(text_BD, word_BLD, valid_B1.expand(-1, word_BLD.shape[1]))
        return self._with_global(text_BD, *widened(word_BLD, valid_BL, self.num_words))

    def _with_global(
        self, global_BD: Tensor, local_BVD: Tensor, valid_BV: Tensor
    ) -> tuple[Tensor, Tensor]:
        local_BVD = F.normalize(local_BVD.float(), dim=-1)
        vector = torch.cat([global_BD[:, None], local_BVD], dim=1)
        alone_B1 = ~valid_BV.any(dim=1, keepdim=True)  # a text without words keeps its end token
        first_B1 = torch.ones_like(alone_B1) if self.global_tokens else alone_B1
        return vector, torch.cat([first_B1, valid_BV], dim=1)
