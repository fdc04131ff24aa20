"""CLIP by transformers: embeddings of region crops and of sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from glit.backends.base import Backend, refuse_other_kind
from glit.backends.device import pick_device, torch_dtype
from glit.backends.matchers.crops import CropSpec, cut_crops
from glit.backends.protocols import MatcherConfig
from glit.backends.tokenizer import TextTokenizer
from glit.backends.weights import Resolved
from glit.data.geometry import Boxes
from glit.errors import WeightsError
from glit.images import Pixels
from glit.recipes.extras import require
from glit.runtime.pretrained import load_whole

if TYPE_CHECKING:
    from torch import Tensor


_LENGTH_STEP = 8
"""Sentences are padded to a multiple of this many tokens."""
_FEWEST_SENTENCES = 8
"""A batch of fewer is filled up."""


class ClipMatcher:
    """A ``CLIPModel`` of any size. Embeddings are projected, L2-normalised and float32.

    On a CPU, what a crop or a sentence becomes does not depend on what shares its batch
    (docs/decisions/alike-in-any-batch.md).
    """

    def __init__(self, config: MatcherConfig, model: Resolved) -> None:
        config = CLIP.settled(config)
        require("models", needed_for="the matcher")
        import torch
        from transformers import CLIPModel

        from glit.backends.onednn import use_onednn

        self._torch = torch
        self._batch_size = config.batch_size
        self._device = pick_device(config.device)
        self.dtype = torch_dtype(config.precision)
        try:
            loaded = load_whole(
                CLIPModel, model.path, local_files_only=True, dtype=self.dtype, weights_only=True
            )
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"model {model.name!r}: cannot be loaded as CLIP ({error})"
            ) from error
        self.model = loaded.to(self._device).eval()
        use_onednn(self.model)
        self.tokenizer = TextTokenizer(model.path)
        self.spec = _crop_spec(str(model.path), self.model.config.vision_config.image_size)
        self.context = int(self.model.config.text_config.max_position_embeddings)

    def embed_regions(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes]
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Embed the regions of each image; crops of several images share batches."""
        counts = [len(each) for each in boxes]
        crops = self._torch.cat(
            [
                cut_crops(image, each, self.spec, device=self._device)
                for image, each in zip(images, boxes, strict=True)
            ]
        )
        batches = self._torch.tensor_split(crops, self._num_batches(len(crops)))
        parts = [self.embed_inputs(batch) for batch in batches]
        joined = self._torch.cat(parts).cpu().numpy()  # waited for once, with all at work
        return np.split(joined, np.cumsum(counts)[:-1])

    def embed_inputs(self, pixels: Any) -> Tensor:
        """Embeddings [N, D] of normalised pixels [N, 3, S, S], on the device."""
        count = len(pixels)
        if count == 1:  # one would be multiplied as a vector, which rounds otherwise
            pixels = pixels.expand(2, -1, -1, -1)
        with self._torch.inference_mode():
            pooled = self.model.vision_model(pixel_values=pixels.to(self.dtype)).pooler_output
            return self._normalised(self.model.visual_projection(pooled))[:count]

    def embed_sentences(self, sentences: Sequence[str]) -> Float[np.ndarray, "S D"]:
        """Embed the sentences; equal sentences are encoded once.

        Batches are of sentences that are padded to the same length.
        """
        distinct = sorted(set(sentences))
        ids = self.tokenizer.encode_closed(distinct, context=self.context)
        order = sorted(range(len(distinct)), key=lambda index: (len(ids[index]), index))
        parts = [
            self.embed_ids([ids[index] for index in batch])
            for _, alike in groupby(order, key=lambda index: self._padded(len(ids[index])))
            for batch in self._evenly(list(alike))
        ]
        embedded = self._torch.cat(parts).cpu().numpy()
        place = {distinct[index]: row for row, index in enumerate(order)}
        return embedded[[place[sentence] for sentence in sentences]]

    def embed_ids(self, ids: list[list[int]]) -> Tensor:
        """Embeddings [N, D] of token ids, start and end token included, on the device."""
        from glit.backends.gpu.copies import upload

        torch = self._torch
        shape = max(len(ids), _FEWEST_SENTENCES), self._padded(max(map(len, ids)))
        tokens = torch.full(shape, self.tokenizer.end_id, dtype=torch.long)
        for row, each in enumerate(ids):
            tokens[row, : len(each)] = torch.tensor(each)
        last = torch.zeros(len(tokens), dtype=torch.long)
        last[: len(ids)] = torch.tensor([len(each) - 1 for each in ids])
        last = upload(last, self._device)
        with torch.inference_mode():
            # attention is causal: the end token does not attend to padding, so no mask is needed
            tokens = upload(tokens, self._device)
            hidden = self.model.text_model(input_ids=tokens).last_hidden_state
            pooled = hidden[torch.arange(len(last), device=self._device), last]
            return self._normalised(self.model.text_projection(pooled))[: len(ids)]

    def _padded(self, length: int) -> int:
        return min(math.ceil(length / _LENGTH_STEP) * _LENGTH_STEP, self.context)

    def _num_batches(self, count: int) -> int:
        return math.ceil(count / self._batch_size)

    def _evenly(self, items: list[int]) -> list[list[int]]:
        parts = np.array_split(items, self._num_batches(len(items)))
        return [part.tolist() for part in parts]

    def _normalised(self, projected: Tensor) -> Tensor:
        return self._torch.nn.functional.normalize(projected.float(), dim=-1)


def _crop_spec(path: str, side: int) -> CropSpec:
    from transformers import CLIPImageProcessor

    try:
        processor: Any = CLIPImageProcessor.from_pretrained(path, local_files_only=True)
    except OSError as error:
        raise WeightsError(f"{path}: it holds no preprocessor_config.json ({error})") from error
    return CropSpec(side=side, mean=tuple(processor.image_mean), std=tuple(processor.image_std))


def _check(config: MatcherConfig, model: Resolved | None) -> None:
    refuse_other_kind(model, {"clip"}, loads="score.backend = 'clip' loads a CLIPModel")


CLIP = Backend(make=ClipMatcher, gpu_bytes=6 << 30, extras=("models",), check=_check)
