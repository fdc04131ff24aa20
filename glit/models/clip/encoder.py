"""Run both towers of a CLIPModel (MetaClip2Model too): for matching, training and measuring.

Embeddings and tokens are FAST-GOAL's Eq. 3 to 6. Pooled tokens are projected (Eq. 8 and 10) as in
the code published with GOAL: pooled patch tokens by the vision tower's post-layernorm and the
visual projection; pooled caption tokens, taken before the text tower's final layer norm, by that
norm and the text projection.

Shapes: V images, S side of an image, P patches, H tower width, T texts in R rows of W slots,
D width of the shared space.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from glit.data.geometry import Boxes
from glit.images import Pixels
from glit.models.clip.crops import cut_crops
from glit.models.clip.image_processor import Preprocessing
from glit.models.clip.pooling import masked_mean
from glit.models.clip.preprocess import fit_image, vision_side
from glit.models.clip.text_rows import TextRows
from glit.models.clip.text_tokens import tokens_in_rows
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.gpu.copies import upload
from glit.models.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from transformers import CLIPModel

_LENGTH_STEP = 8
"""Texts that are matched are padded to a multiple of this many tokens."""


class ClipEncoder(nn.Module):
    """A CLIPModel that embeds images and texts, and gives their tokens for pooling."""

    fewest_images: ClassVar = 2
    """The smallest batch of :meth:`embed_crops`, which fills up smaller ones: a library multiplies
    them by another kernel, which rounds otherwise."""
    fewest_texts: ClassVar = 8
    """The smallest batch of :meth:`embed_ids`, for the same reason."""

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
        interpolate: bool = False,
    ) -> tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]:
        """Patch tokens of the first ``num_tokens`` images, and every image's embedding.

        With ``unmixed`` every patch attends to itself alone in the last layer (its value is its
        attention's output, as in MaskCLIP, Zhou et al. 2022); embeddings are the same. With
        ``interpolate`` images may have another side than the model's own, for which its position
        embeddings are interpolated.
        """
        output = self.clip.vision_model(
            pixel_values=self._normalised(pixels_V3SS),
            output_hidden_states=unmixed,
            interpolate_pos_encoding=interpolate,
        )
        if unmixed:
            tokens_GPH = self._unmixed(output.hidden_states[-2][:num_tokens, 1:])
        else:
            tokens_GPH = output.last_hidden_state[:num_tokens, 1:]
        return tokens_GPH, self._embedding(output)

    def _normalised(self, pixels_V3SS: UInt8[Tensor, "v 3 s s"]) -> Float[Tensor, "v 3 s s"]:
        mean_311, std_311 = (each.float()[:, None, None] for each in (self.mean_3, self.std_3))
        return ((pixels_V3SS.float() - mean_311) / std_311).to(self._pixel_dtype)

    @property
    def _pixel_dtype(self) -> torch.dtype:
        return self.clip.vision_model.embeddings.patch_embedding.weight.dtype

    def _embedding(self, output: Any) -> Float[Tensor, "v d"]:
        """The embeddings of images, of their tower's output."""
        return F.normalize(self.clip.visual_projection(output.pooler_output).float(), dim=-1)

    def fit(self, image: Pixels, preprocessing: Preprocessing) -> Tensor:
        """The image as :meth:`encode_images` takes it: uint8 [3, S, S], not normalised yet."""
        spec = preprocessing
        return fit_image(
            image, side=self.side, fit=spec.fit, shortest=spec.shortest, mode=spec.mode
        )

    def cut(self, image: Pixels, boxes: Boxes, preprocessing: Preprocessing) -> Tensor:
        """Crops of an image as :meth:`embed_crops` takes them, on the model's device; [N, ...]."""
        return cut_crops(image, boxes, preprocessing, side=self.side, device=self.mean_3.device)

    def embed_crops(self, crops: Tensor) -> Float[Tensor, "v d"]:
        """Embed the crops [N, ...] that :meth:`cut` returned, as L2-normalised float32 [N, D].

        On a CPU an embedding is the same whatever other crops are in the batch
        (docs/decisions/alike-in-any-batch.md).
        """
        count = len(crops)
        if count < self.fewest_images:
            more = crops[:1].expand(self.fewest_images - count, *crops.shape[1:])
            crops = torch.cat([crops, more])
        with torch.inference_mode(), no_tf32_convolutions():
            return self._embedding(self._vision(crops))[:count]

    def _vision(self, crops: Tensor) -> Any:
        return self.clip.vision_model(pixel_values=crops.to(self._pixel_dtype))

    def padded(self, length: int) -> int:
        """The number of tokens that a text of ``length`` is padded to by :meth:`embed_ids`."""
        return min(math.ceil(length / _LENGTH_STEP) * _LENGTH_STEP, self.context)

    def embed_ids(self, ids: list[list[int]], tokenizer: TextTokenizer) -> Float[Tensor, "t d"]:
        """Embeddings of texts by their closed token ids, alike in any batch of texts that are
        padded to the same length (:meth:`padded`)."""
        device = self.mean_3.device
        shape = max(len(ids), self.fewest_texts), self.padded(max(map(len, ids)))
        tokens = torch.full(shape, tokenizer.end_id, dtype=torch.long)
        for row, each in enumerate(ids):
            tokens[row, : len(each)] = torch.tensor(each)
        last = torch.zeros(len(tokens), dtype=torch.long)
        last[: len(ids)] = torch.tensor([len(each) - 1 for each in ids])
        last = upload(last, device)
        with torch.inference_mode():
            # attention is causal: the end token does not attend to padding, so no mask is needed
            hidden = self.clip.text_model(input_ids=upload(tokens, device)).last_hidden_state
            pooled = hidden[torch.arange(len(last), device=device), last]
            return F.normalize(self.clip.text_projection(pooled).float(), dim=-1)[: len(ids)]

    def linear_parts(self) -> list[nn.Module]:
        """Modules whose linear layers another library may multiply by."""
        return [self.clip]

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
        tokens_XH = tokens_in_rows(tower, texts)
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
