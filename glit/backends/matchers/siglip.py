"""SigLIP and SigLIP 2 as matchers: of a fixed input (:mod:`glit.clip.siglip`), and NaFlex."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.backends.matchers.clip import FEWEST_SENTENCES, ClipMatcher
from glit.backends.matchers.crops import resized, whole_pixel_boxes
from glit.backends.protocols import MatcherConfig
from glit.data.geometry import Boxes
from glit.images import Pixels
from glit.models.pretrained import as_weights_error
from glit.models.weights import Resolved

if TYPE_CHECKING:
    from torch import Tensor

    from glit.clip.siglip import SiglipTokenizer


_FEWEST_CROPS = 8
"""A batch of fewer is filled up."""


class SiglipMatcher(ClipMatcher):
    """A ``SiglipModel``: a crop is squeezed into the square, a text is padded to the window."""

    def _load(self, folder: Path) -> Any:
        from transformers import SiglipModel

        from glit.clip.folder import load_model

        return load_model(SiglipModel, folder).to(self.dtype)

    def _open_tokenizer(self, folder: Path) -> SiglipTokenizer:
        from glit.clip.siglip import SiglipTokenizer

        return SiglipTokenizer(folder)

    def _end_in(self, text_config: Any) -> None:
        """Accept any end token: SigLIP pools the last position, whatever token is there."""
        return

    def embed_inputs(self, pixels: Any) -> Tensor:
        """Embeddings [N, D] of normalised pixels [N, 3, S, S], on the device."""
        count = len(pixels)
        if count < _FEWEST_CROPS:  # which would be multiplied otherwise, and round otherwise
            more = pixels[:1].expand(_FEWEST_CROPS - count, *pixels.shape[1:])
            pixels = self._torch.cat([pixels, more])
        with self._torch.inference_mode():
            return self._normalised(self._pooled(pixels))[:count]

    def _pooled(self, pixels: Tensor) -> Tensor:
        return self.model.vision_model(pixel_values=pixels.to(self.dtype)).pooler_output

    def embed_ids(self, ids: list[list[int]]) -> Tensor:
        """Embeddings [N, D] of token ids, the end token included, on the device."""
        from glit.backends.gpu.copies import upload

        torch = self._torch
        tokenizer: Any = self.tokenizer
        shape = max(len(ids), FEWEST_SENTENCES), self.context
        tokens = torch.full(shape, tokenizer.pad_id, dtype=torch.long)
        for row, each in enumerate(ids):
            start = self.context - len(each) if tokenizer.hf.padding_side == "left" else 0
            tokens[row, start : start + len(each)] = torch.tensor(each)
        with torch.inference_mode():
            pooled = self.model.text_model(input_ids=upload(tokens, self._device)).pooler_output
            return self._normalised(pooled)[: len(ids)]

    def _padded(self, length: int) -> int:
        return self.context


class NaflexMatcher(SiglipMatcher):
    """A ``Siglip2Model``: a crop keeps its aspect ratio, in as many patches as the model takes."""

    def __init__(self, config: MatcherConfig, model: Resolved) -> None:
        super().__init__(config, model)
        from transformers import AutoImageProcessor

        with as_weights_error(f"model {model.name!r}: its image processor cannot be loaded"):
            processor: Any = AutoImageProcessor.from_pretrained(model.path, local_files_only=True)
            self._patch, self._most = int(processor.patch_size), int(processor.max_num_patches)

    def _load(self, folder: Path) -> Any:
        from transformers import Siglip2Model

        from glit.clip.folder import load_model

        return load_model(Siglip2Model, folder).to(self.dtype)

    def _linear_parts(self) -> list[Any]:
        # not the patch embedding, which transformers asks for its weight
        return [self.model.text_model, self.model.vision_model.encoder]

    def _cut(self, image: Pixels, boxes: Boxes) -> Tensor:
        """[N, most, 3 p p + 2]: the normalised patches of each crop, row by row, then zeros; with
        every patch the crop's height and width in patches."""
        from transformers.models.siglip2.image_processing_siglip2 import (
            convert_image_to_patches,
            get_image_size_for_max_num_patches,
        )

        torch, side = self._torch, self._patch
        whole = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
        mean, std = (torch.tensor(each).view(3, 1, 1) for each in (self.spec.mean, self.spec.std))
        found = torch.zeros(len(boxes), self._most, 3 * side * side + 2)
        for row, box in zip(found, whole_pixel_boxes(image, boxes), strict=True):
            width, height = box[2] - box[0], box[3] - box[1]
            size = get_image_size_for_max_num_patches(height, width, side, self._most)
            crop = resized(whole, box, size, mode=self.spec.mode)[0] / 255
            patches = convert_image_to_patches((crop - mean) / std, side)
            row[: len(patches), :-2] = patches
            row[:, -2:] = torch.tensor(size) // side
        return found.to(self._device)

    def _pooled(self, pixels: Tensor) -> Tensor:
        shapes = pixels[:, 0, -2:].long()
        slots = self._torch.arange(self._most, device=pixels.device)
        inside = slots < shapes.prod(dim=1, keepdim=True)
        return self.model.vision_model(
            pixel_values=pixels[..., :-2].to(self.dtype),
            pixel_attention_mask=inside,
            spatial_shapes=shapes,
        ).pooler_output
