"""SigLIP models (Zhai et al., ICCV 2023), SigLIP 2 of fixed size and of any shape (NaFlex).

They differ from CLIP in ways that decide what can be learned and measured:

- Images have no class token and no projection; a head of attention pools the patches. Patches of a
  region are embedded by the same head, which then attends to them alone.
- Texts are not causal. Each is padded to the whole window, padding is attended to, and the last
  position's output is the text's.
- Beside the logit scale there is a bias, both learned with the sigmoid loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from glit.data.geometry import Boxes
from glit.errors import UserError, WeightsError
from glit.images import Pixels
from glit.models.clip.crops import resized, whole_pixel_boxes
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.image_processor import Preprocessing
from glit.models.clip.model_types import wants_lower_case
from glit.models.clip.preprocess import vision_side
from glit.models.clip.text_rows import TextRows
from glit.models.gpu.copies import upload
from glit.models.pretrained import as_weights_error
from glit.models.tokenizer import TextTokenizer
from glit.recipes.extras import require

if TYPE_CHECKING:
    from transformers import SiglipModel


class SiglipTokenizer(TextTokenizer):
    """A SigLIP model's tokenizer, as its processor of transformers calls it, but without padding.

    The characters of a special token in a text are ordinary text.
    """

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        said = path / "tokenizer_config.json"
        kind = said.read_text(encoding="utf-8") if said.is_file() else ""
        if '"SiglipTokenizer"' in kind:
            require("siglip", needed_for=f"the tokenizer of {path}")
        self._lower_case = wants_lower_case(path)
        with as_weights_error(f"{path}: no tokenizer can be loaded from it"):
            self.hf = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        if self.hf.eos_token_id is None or self.hf.pad_token_id is None:
            raise WeightsError(f"{path}: the tokenizer has no end or no padding, as SigLIP's has")
        self.start_id, self.end_id = -1, int(self.hf.eos_token_id)
        self.pad_id = int(self.hf.pad_token_id)
        closed, (inner,) = self.hf(["a"]).input_ids[0], self.encode(["a"])
        at = next(i for i in range(len(closed)) if closed[i : i + len(inner)] == inner)
        self._before, self._after = closed[:at], closed[at + len(inner) :]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, of any length, without special tokens."""
        texts = [text.lower() for text in texts] if self._lower_case else list(texts)
        found = self.hf(texts, add_special_tokens=False, split_special_tokens=True)
        return [list(ids) for ids in found.input_ids]

    def encode_closed(self, texts: Sequence[str], *, context: int) -> list[list[int]]:
        """Token ids and end token of each text, at most ``context`` tokens in all."""
        most = context - len(self._before) - len(self._after)
        return [[*self._before, *ids[:most], *self._after] for ids in self.encode(texts)]


class SiglipEncoder(ClipEncoder):
    """A SiglipModel that embeds images, regions of them and texts; texts have no tokens to pool."""

    fewest_images = 8

    def __init__(
        self,
        model: SiglipModel,
        *,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        pad_id: int,
        pads_left: bool = False,
    ) -> None:
        nn.Module.__init__(self)
        made: Any = model
        self.clip = made
        self.side, self.patch_size = self._sizes(made)
        self.grid = self.side // self.patch_size
        self.width = int(made.config.vision_config.hidden_size)
        self.context = int(made.config.text_config.max_position_embeddings)
        self.pad_id, self.pads_left = pad_id, pads_left
        # learned with the sigmoid loss alone; other losses have no use for it
        made.logit_bias.requires_grad_(False)
        self.register_buffer("mean_3", torch.tensor(mean) * 255, persistent=False)
        self.register_buffer("std_3", torch.tensor(std) * 255, persistent=False)

    def _sizes(self, model: Any) -> tuple[int, int]:
        return vision_side(model)

    @property
    def logit_scale(self) -> Float[Tensor, ""]:
        """The learned factor on cosines."""
        return self.clip.logit_scale.exp().reshape(())

    @property
    def logit_bias(self) -> Float[Tensor, ""]:
        """The bias that is added to every logit of the sigmoid loss."""
        made: Any = self.clip
        return made.logit_bias.reshape(())

    def limit_logit_scale(self, most: float) -> None:
        """Do nothing: SigLIP's scale ends above 100 and has no limit in its training."""

    def encode_images(
        self,
        pixels_V3SS: UInt8[Tensor, "v 3 s s"],
        *,
        num_tokens: int = 0,
        unmixed: bool = False,
        interpolate: bool = False,
    ) -> tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]:
        """Patch tokens after the last norm of the first ``num_tokens`` images, and every image's
        embedding; ``unmixed`` and ``interpolate`` as in :class:`ClipEncoder`.
        """
        tower: Any = self.clip.vision_model
        output = tower(
            pixel_values=self._normalised(pixels_V3SS),
            output_hidden_states=unmixed,
            interpolate_pos_encoding=interpolate,
        )
        tokens_GPH = output.last_hidden_state[:num_tokens]
        if unmixed:
            before_GPH = output.hidden_states[-2][:num_tokens]
            tokens_GPH = tower.post_layernorm(self._unmixed(before_GPH))
        return tokens_GPH, self._embedding(output)

    def _embedding(self, output: Any) -> Float[Tensor, "v d"]:
        return F.normalize(output.pooler_output.float(), dim=-1)

    def padded(self, length: int) -> int:
        return self.context

    def embed_ids(self, ids: list[list[int]], tokenizer: TextTokenizer) -> Float[Tensor, "t d"]:
        device = self.mean_3.device
        tokens = torch.full((max(len(ids), self.fewest_texts), self.context), self.pad_id)
        for row, each in enumerate(ids):
            start = self.context - len(each) if self.pads_left else 0
            tokens[row, start : start + len(each)] = torch.tensor(each)
        with torch.inference_mode():
            pooled = self.clip.text_model(input_ids=upload(tokens, device)).pooler_output
            return F.normalize(pooled.float(), dim=-1)[: len(ids)]

    def encode_texts(self, texts: TextRows) -> tuple[Float[Tensor, "rw h"], Float[Tensor, "t d"]]:
        """No token features, and the embedding of each text, padded to the whole window."""
        ids_X = texts.input_ids_RW.flatten()
        slot_TL = torch.arange(self.context, device=ids_X.device).expand(len(texts.length_T), -1)
        if self.pads_left:
            slot_TL = slot_TL - (self.context - texts.length_T[:, None])
        index_TL = (texts.offset_T[:, None] + slot_TL).clamp(0, len(ids_X) - 1)
        inside_TL = (slot_TL >= 0) & (slot_TL < texts.length_T[:, None])
        output = self.clip.text_model(input_ids=ids_X[index_TL].where(inside_TL, self.pad_id))
        embedding_TD = F.normalize(output.pooler_output.float(), dim=-1)
        return output.last_hidden_state[:0].flatten(0, 1), embedding_TD

    def pool_patches(
        self, patch_BPH: Float[Tensor, "b p h"], mask_BKP: Bool[Tensor, "b k p"]
    ) -> Float[Tensor, "b k d"]:
        """Pool the patch tokens that each mask row selects with the model's attention head.

        The result is L2-normalised. A row that selects nothing pools all patches; callers mask it
        out.
        """
        head: Any = self.clip.vision_model.head
        closed_BKP = ~(mask_BKP | ~mask_BKP.any(dim=-1, keepdim=True))
        probe_BKH = head.probe.expand(len(patch_BPH), mask_BKP.shape[1], -1)
        pooled_BKH = head.attention(
            probe_BKH,
            patch_BPH,
            patch_BPH,
            attn_mask=closed_BKP.repeat_interleave(head.attention.num_heads, dim=0),
            need_weights=False,
        )[0]
        return F.normalize(_after_attention(head, pooled_BKH).float(), dim=-1)

    def patch_features(self, patch: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Return the head's output for a patch that it attends to alone; not normalised."""
        head: Any = self.clip.vision_model.head
        attention, width = head.attention, patch.shape[-1]
        value = F.linear(
            patch, attention.in_proj_weight[2 * width :], attention.in_proj_bias[2 * width :]
        )
        return _after_attention(head, attention.out_proj(value))

    def token_features(self, token: Float[Tensor, "... h"]) -> Float[Tensor, "... d"]:
        """Raise UserError: SigLIP has no token features; see the module."""
        raise UserError(
            "a SigLIP model has no tokens of texts in the space of its embeddings; give a CLIP "
            "model, or what compares embeddings of texts (evaluate.scorer = 'cosine')"
        )


class NaflexEncoder(SiglipEncoder):
    """A ``Siglip2Model``: an image keeps its aspect ratio, in as many patches as the model takes.

    An image is [most, 3 p p + 2]: its normalised patches, row by row, then zeros; with every patch
    the image's height and width in patches.
    """

    most_patches: int
    """Most patches of an image, as the model's image processor says."""

    def _sizes(self, model: Any) -> tuple[int, int]:
        return 0, int(model.config.vision_config.patch_size)

    def fit(self, image: Pixels, preprocessing: Preprocessing) -> Tensor:
        height, width = image.shape[:2]
        return self._patches(image, np.array([[0.0, 0, width, height]]), preprocessing)[0]

    def cut(self, image: Pixels, boxes: Boxes, preprocessing: Preprocessing) -> Tensor:
        return self._patches(image, boxes, preprocessing).to(self.mean_3.device)

    def _patches(self, image: Pixels, boxes: Boxes, spec: Preprocessing) -> Tensor:
        from transformers.models.siglip2.image_processing_siglip2 import (
            convert_image_to_patches,
            get_image_size_for_max_num_patches,
        )

        side = self.patch_size
        whole = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
        mean, std = (torch.tensor(each).view(3, 1, 1) for each in (spec.mean, spec.std))
        found = torch.zeros(len(boxes), self.most_patches, 3 * side * side + 2)
        for row, box in zip(found, whole_pixel_boxes(image, boxes), strict=True):
            width, height = box[2] - box[0], box[3] - box[1]
            size = get_image_size_for_max_num_patches(height, width, side, self.most_patches)
            crop = resized(whole, box, size, mode=spec.mode)[0] / 255
            patches = convert_image_to_patches((crop - mean) / std, side)
            row[: len(patches), :-2] = patches
            row[:, -2:] = torch.tensor(size) // side
        return found

    def encode_images(
        self,
        pixels_V3SS: Tensor,
        *,
        num_tokens: int = 0,
        unmixed: bool = False,
        interpolate: bool = False,
    ) -> tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]:
        """Embeddings of images as :meth:`cut` gives them.

        Raises:
            UserError: patch tokens are asked for, which lie on a grid of another shape in every
                image.
        """
        if num_tokens:
            raise UserError(
                "a NaFlex model has another grid of patches for every image, and this looks at "
                "patches; give a CLIP, or a SigLIP of fixed size"
            )
        output = self._vision(pixels_V3SS)
        return output.last_hidden_state[:0], self._embedding(output)

    def _vision(self, crops: Tensor) -> Any:
        tower: Any = self.clip.vision_model
        shapes = crops[:, 0, -2:].long()
        slots = torch.arange(self.most_patches, device=crops.device)
        return tower(
            pixel_values=crops[..., :-2].to(self._pixel_dtype),
            pixel_attention_mask=slots < shapes.prod(dim=1, keepdim=True),
            spatial_shapes=shapes,
        )

    def linear_parts(self) -> list[nn.Module]:
        # not the patch embedding, which transformers asks for its weight
        return [self.clip.text_model, self.clip.vision_model.encoder]


def _after_attention(head: Any, pooled: Tensor) -> Tensor:
    """The rest of the pooling head."""
    return pooled + head.mlp(head.layernorm(pooled))
