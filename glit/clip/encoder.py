"""Run both towers of a CLIPModel on rows of texts and images of one size.

Embeddings and tokens are FAST-GOAL's Eq. 3 to 6. Pooled tokens are projected (Eq. 8 and 10) as in
the code published with GOAL: pooled patch tokens by the vision tower's post-layernorm and the
visual projection; pooled caption tokens, taken before the text tower's final layer norm, by that
norm and the text projection.

Shapes: V images, S side of an image, P patches, H tower width, T texts in R rows of W slots,
D width of the shared space.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from glit.clip.pooling import masked_mean
from glit.clip.preprocess import vision_side
from glit.clip.text_rows import TextRows
from glit.clip.text_tokens import rows_agree, tokens_alone, tokens_in_rows

if TYPE_CHECKING:
    from transformers import CLIPModel


class ClipEncoder(nn.Module):
    """A CLIPModel that embeds images and texts, and gives their tokens for pooling."""

    def __init__(
        self,
        model: CLIPModel,
        *,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
    ) -> None:
        super().__init__()
        self.clip = model
        self.side, self.patch_size = vision_side(model)
        self.grid = self.side // self.patch_size
        self.width = int(model.text_projection.out_features)
        """D, the width of the shared space."""
        self.context = int(model.text_model.config.max_position_embeddings)
        """Text window in tokens."""
        self._text_tokens = tokens_in_rows if rows_agree(model.text_model) else tokens_alone
        self.mean_3: Tensor
        self.std_3: Tensor
        self.register_buffer("mean_3", torch.tensor(mean) * 255, persistent=False)
        self.register_buffer("std_3", torch.tensor(std) * 255, persistent=False)

    @property
    def logit_scale(self) -> Float[Tensor, ""]:
        """The learned factor on cosines."""
        return self.clip.logit_scale.exp()

    def limit_logit_scale(self, most: float) -> None:
        """Keep the factor at or below ``most``, in place and without gradients."""
        with torch.no_grad():
            self.clip.logit_scale.clamp_(max=math.log(most))

    def encode_images(
        self,
        pixels_V3SS: UInt8[Tensor, "v 3 s s"],
        *,
        num_tokens: int = 0,
        unmixed: bool = False,
    ) -> tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]:
        """Patch tokens of the first ``num_tokens`` images, and every image's embedding.

        With ``unmixed`` every patch attends to itself alone in the last layer (its value is its
        attention's output, as in MaskCLIP, Zhou et al. 2022); embeddings are the same.
        """
        dtype = self.clip.visual_projection.weight.dtype
        pixels = pixels_V3SS.to(dtype)
        pixels = (pixels - self.mean_3.to(dtype)[:, None, None]) / self.std_3.to(dtype)[
            :, None, None
        ]
        output = self.clip.vision_model(pixel_values=pixels, output_hidden_states=unmixed)
        embedding_VD = F.normalize(
            self.clip.visual_projection(output.pooler_output).float(), dim=-1
        )
        if unmixed:
            return self._unmixed(output.hidden_states[-2][:num_tokens, 1:]), embedding_VD
        return output.last_hidden_state[:num_tokens, 1:], embedding_VD

    def _unmixed(self, before_GPH: Float[Tensor, "g p h"]) -> Float[Tensor, "g p h"]:
        """The last layer's output for tokens that attend to themselves alone."""
        layer: Any = self.clip.vision_model.encoder.layers[-1]
        value = layer.self_attn.v_proj(layer.layer_norm1(before_GPH))
        middle = before_GPH + layer.self_attn.out_proj(value)
        return middle + layer.mlp(layer.layer_norm2(middle))

    def encode_texts(self, texts: TextRows) -> tuple[Float[Tensor, "rw h"], Float[Tensor, "t d"]]:
        """Token features before the final layer norm, and the embedding of each text.

        The token features are those of all slots of all rows. A text's embedding is that of its
        end token, its last one.
        """
        tower = self.clip.text_model
        tokens_XH = self._text_tokens(tower, texts)
        ends_TH = tower.final_layer_norm(tokens_XH[texts.offset_T + texts.length_T - 1])
        embedding_TD = F.normalize(self.clip.text_projection(ends_TH).float(), dim=-1)
        return tokens_XH, embedding_TD

    def patch_features(self, patch: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Patch tokens, or means of them, in the shared space (MulCLIP Eq. 1); not normalised."""
        return self.clip.visual_projection(self.clip.vision_model.post_layernorm(patch))

    def token_features(self, token: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Text tokens before the final layer norm, or means of them, in the shared space (MulCLIP
        Eq. 2); not normalised."""
        return self.clip.text_projection(self.clip.text_model.final_layer_norm(token))

    def pool_patches(
        self, patch_BPH: Float[Tensor, "b p h"], mask_BKP: Bool[Tensor, "b k p"]
    ) -> Float[Tensor, "b k d"]:
        """Average the patch tokens that each mask row selects, and project (FAST-GOAL Eq. 9, 10).

        The result is L2-normalised. It has no meaning for a row that selects nothing; callers mask
        it out.
        """
        return self.project_patches(masked_mean(patch_BPH, mask_BKP))

    def project_patches(self, patch: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Embeddings of patch tokens or means of them (FAST-GOAL Eq. 10)."""
        return F.normalize(self.patch_features(patch).float(), dim=-1)

    def project_tokens(self, token: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Embeddings of text tokens before the final layer norm, or means of them (FAST-GOAL
        Eq. 8)."""
        return F.normalize(self.token_features(token).float(), dim=-1)
