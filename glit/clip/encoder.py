"""Both encoders over a whole batch: one vision pass and one text pass, globals and locals together.

The projections of pooled tokens are those of the code published with GOAL: pooled patch tokens go
through the vision tower's post-layernorm and the visual projection; pooled caption tokens (taken
before the text tower's final layer norm) through that norm and the text projection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from glit.clip.pooling import masked_mean, patch_mask, span_mask
from glit.clip.preprocess import vision_side
from glit.clip.text_rows import TextRows
from glit.train.batch import Batch
from glit.train.features import Features

if TYPE_CHECKING:
    from transformers import CLIPModel


class DualEncoder(nn.Module):
    """A CLIPModel that turns a Batch into Features, and the logit scale it has learned."""

    def __init__(
        self,
        model: CLIPModel,
        *,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        needs_tokens: bool,
    ) -> None:
        super().__init__()
        self.clip = model
        self.needs_tokens = needs_tokens
        self.side, self.patch_size = vision_side(model)
        self.grid = self.side // self.patch_size
        self.mean_3: Tensor
        self.std_3: Tensor
        self.register_buffer("mean_3", torch.tensor(mean) * 255, persistent=False)
        self.register_buffer("std_3", torch.tensor(std) * 255, persistent=False)

    def forward(self, batch: Batch) -> tuple[Features, Tensor]:
        """Features of the batch's samples (float32) and the logit scale as a factor."""
        patch_GPD, image_VD = self.encode_images(batch.pixels_V3SS, num_tokens=batch.num_global)
        token_flat_D, text_TD = self.encode_texts(batch.texts)
        num_global = batch.num_global
        local_image = self._into_slots(image_VD[num_global:], batch)
        local_text = self._into_slots(text_TD[num_global:], batch)
        zeros_BK = torch.zeros_like(batch.valid_local_BK)
        empty = torch.zeros_like(local_image)
        features = Features(
            image_ND=image_VD[:num_global] if num_global else empty.sum(dim=1),
            text_ND=text_TD[:num_global] if num_global else empty.sum(dim=1),
            local_image_NKD=local_image,
            local_text_NKD=local_text,
            pooled_patch_NKD=empty,
            pooled_token_NKD=empty,
            valid_N=batch.valid_B,
            valid_local_NK=batch.valid_local_BK,
            valid_patch_NK=zeros_BK,
            valid_token_NK=zeros_BK,
            similarity_NK=batch.similarity_BK,
        )
        if self.needs_tokens:
            features = self._with_tokens(features, batch, patch_GPD, token_flat_D)
        return features, self.clip.logit_scale.exp()

    def encode_images(
        self, pixels_V3SS: UInt8[Tensor, "v 3 s s"], *, num_tokens: int = 0
    ) -> tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]:
        """Patch tokens of the first ``num_tokens`` images, and every image's embedding."""
        dtype = self.clip.visual_projection.weight.dtype
        pixels = pixels_V3SS.to(dtype)
        pixels = (pixels - self.mean_3.to(dtype)[:, None, None]) / self.std_3.to(dtype)[
            :, None, None
        ]
        output = self.clip.vision_model(pixel_values=pixels)
        embedding_VD = F.normalize(
            self.clip.visual_projection(output.pooler_output).float(), dim=-1
        )
        return output.last_hidden_state[:num_tokens, 1:], embedding_VD

    def encode_texts(self, texts: TextRows) -> tuple[Float[Tensor, "rw h"], Float[Tensor, "t d"]]:
        """Tokens of all rows before the final layer norm, flattened, and every text's embedding.

        The embedding is that of the end token, the last of each text.
        """
        tower = self.clip.text_model
        hidden = tower.embeddings(input_ids=texts.input_ids_RW, position_ids=texts.position_ids_RW)
        mask = texts.attention_mask()
        if tower.config._attn_implementation == "eager":
            lowest = torch.finfo(hidden.dtype).min
            mask = torch.zeros(mask.shape, dtype=hidden.dtype, device=mask.device).masked_fill(
                ~mask, lowest
            )
        hidden = tower.encoder(
            inputs_embeds=hidden, attention_mask=mask, is_causal=False
        ).last_hidden_state
        flat = hidden.flatten(0, 1)
        ends = tower.final_layer_norm(flat[texts.offset_T + texts.length_T - 1])
        embedding_TD = F.normalize(self.clip.text_projection(ends).float(), dim=-1)
        return flat, embedding_TD

    def project_patches(self, patch: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Vision tokens (pooled or not) into the shared space, normalised."""
        normed = self.clip.vision_model.post_layernorm(patch)
        return F.normalize(self.clip.visual_projection(normed).float(), dim=-1)

    def project_tokens(self, token: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Text tokens (pooled or not) into the shared space, normalised."""
        normed = self.clip.text_model.final_layer_norm(token)
        return F.normalize(self.clip.text_projection(normed).float(), dim=-1)

    def _into_slots(self, embedding_MD: Tensor, batch: Batch) -> Tensor:
        num_samples, num_slots = batch.valid_local_BK.shape
        slots = embedding_MD.new_zeros(num_samples * num_slots, embedding_MD.shape[-1])
        slots = slots.index_copy(0, batch.slot_M, embedding_MD)
        return slots.view(num_samples, num_slots, embedding_MD.shape[-1])

    def _with_tokens(
        self, features: Features, batch: Batch, patch_BPH: Tensor, token_flat_H: Tensor
    ) -> Features:
        patches_BKP = patch_mask(batch.boxes_BK4, patch_size=self.patch_size, grid=self.grid)
        length_B = batch.texts.length_T[: batch.num_global]
        longest = batch.texts.input_ids_RW.shape[1]
        slot_L = torch.arange(longest, device=length_B.device)
        index_BL = batch.texts.offset_T[: batch.num_global, None] + slot_L
        token_BLH = token_flat_H[index_BL.clamp_max(token_flat_H.shape[0] - 1)]
        last_BK = length_B[:, None].expand(batch.spans_BK2.shape[:2]) - 1
        spans_BKL = span_mask(batch.spans_BK2, length=longest)
        fits_BK = batch.spans_BK2[..., 1] <= last_BK
        spans_BKL = spans_BKL & fits_BK[..., None]
        return Features(
            image_ND=features.image_ND,
            text_ND=features.text_ND,
            local_image_NKD=features.local_image_NKD,
            local_text_NKD=features.local_text_NKD,
            pooled_patch_NKD=self.project_patches(masked_mean(patch_BPH, patches_BKP)),
            pooled_token_NKD=self.project_tokens(masked_mean(token_BLH, spans_BKL)),
            valid_N=features.valid_N,
            valid_local_NK=features.valid_local_NK,
            valid_patch_NK=patches_BKP.any(dim=-1) & batch.valid_local_BK,
            valid_token_NK=spans_BKL.any(dim=-1) & batch.valid_local_BK,
            similarity_NK=features.similarity_NK,
        )
