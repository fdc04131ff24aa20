"""CLIP and its kin by transformers: embeddings of region crops and of sentences.

Which kind a checkpoint is says its configuration: CLIP of any size and text window (Long-CLIP's
too), OpenCLIP's folders, MetaCLIP 2, SigLIP and SigLIP 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from glit.backends.base import Backend, refuse_other_kind
from glit.backends.matchers.crops import CropSpec, cut_crops
from glit.backends.protocols import MatcherConfig
from glit.data.geometry import Boxes
from glit.errors import RecipeError, WeightsError
from glit.images import Pixels
from glit.models.device import pick_device, torch_dtype
from glit.models.files import model_type, weight_files
from glit.models.pretrained import load_whole
from glit.models.tokenizer import TextTokenizer
from glit.models.weights import Resolved
from glit.recipes.extras import require

if TYPE_CHECKING:
    from torch import Tensor


KINDS = ("clip", "metaclip_2", "siglip", "siglip2")
"""``model_type`` of the checkpoints that are loaded, beside OpenCLIP's folders."""
_LENGTH_STEP = 8
"""Sentences are padded to a multiple of this many tokens."""
FEWEST_SENTENCES = 8
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

        from glit.backends.onednn import use_onednn

        self._torch = torch
        self._batch_size = config.batch_size
        self._device = pick_device(config.device)
        self.dtype = torch_dtype(config.precision)
        try:
            loaded = self._load(model.path)
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"model {model.name!r}: cannot be loaded as CLIP ({error})"
            ) from error
        self.model: Any = loaded.to(self._device).eval()
        for part in self._linear_parts():
            use_onednn(part)
        self.tokenizer = self._open_tokenizer(model.path)
        text: Any = self.model.config.text_config
        self.tokenizer.check_fits(text.vocab_size, repr(model.name), end=self._end_in(text))
        self.spec = _crop_spec(
            model.path, getattr(self.model.config.vision_config, "image_size", 0)
        )
        self.context = int(self.model.config.text_config.max_position_embeddings)

    def _load(self, folder: Path) -> Any:
        from transformers import CLIPModel, MetaClip2Model

        from glit.clip.open_clip import is_open_clip, load_open_clip

        if is_open_clip(folder):
            return load_open_clip(folder).to(self.dtype)
        kind = MetaClip2Model if model_type(folder) == "metaclip_2" else CLIPModel
        return load_whole(kind, folder, local_files_only=True, dtype=self.dtype, weights_only=True)

    def _end_in(self, text_config: Any) -> int | None:
        """The token whose output is a text's embedding, if the configuration decides it."""
        return text_config.eos_token_id

    def _linear_parts(self) -> list[Any]:
        """Modules whose linear layers another library may multiply by."""
        return [self.model]

    def _open_tokenizer(self, folder: Path) -> TextTokenizer:
        return TextTokenizer(folder)

    def _cut(self, image: Pixels, boxes: Boxes) -> Tensor:
        """Crops of an image as the encoder's input, on the device."""
        return cut_crops(image, boxes, self.spec, device=self._device)

    def embed_regions(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes]
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Embed the regions of each image; crops of several images share batches."""
        counts = [len(each) for each in boxes]
        crops = self._torch.cat(
            [self._cut(image, each) for image, each in zip(images, boxes, strict=True)]
        )
        batches = self._torch.tensor_split(crops, self._num_batches(len(crops)))
        parts = [self.embed_inputs(batch) for batch in batches]
        joined = self._torch.cat(parts).cpu().numpy()  # waited for once, with all at work
        return np.split(joined, np.cumsum(counts)[:-1])

    def embed_dense(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes], *, scale: float
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Regions and, last, the whole image, by one pass over each image (:mod:`.dense`)."""
        from glit.backends.matchers.dense import encode, fitted, pooled

        torch, found = self._torch, []
        patch = int(self.model.config.vision_config.patch_size)
        side = max(1, round(self.spec.side * scale / patch)) * patch
        at_once = max(1, int(self._batch_size / max(scale, 1) ** 2))
        for start in range(0, len(images), at_once):
            some = images[start : start + at_once]
            with torch.inference_mode():
                pixels = fitted(some, self.spec, side=side).to(self._device, self.dtype)
                if len(some) == 1:
                    pixels = pixels.expand(2, -1, -1, -1)
                tokens, wholes = encode(self.model, pixels)
                for image, own, whole, placed in zip(
                    some, tokens, wholes, boxes[start:], strict=False
                ):
                    regions = pooled(self.model, own, image, placed, patch=patch)
                    joined = self._normalised(torch.cat([regions, whole[None]]))
                    found.append(joined.cpu().numpy())
        return found

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
        shape = max(len(ids), FEWEST_SENTENCES), self._padded(max(map(len, ids)))
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


def _crop_spec(folder: Path, side: int) -> CropSpec:
    """Raises WeightsError: nothing says how the model's images are prepared."""
    from glit.clip.image_processor import read_preprocessing, says_preprocessing

    if not says_preprocessing(folder):
        raise WeightsError(f"{folder}: it holds no preprocessor_config.json")
    found = read_preprocessing(folder, side=side)
    return CropSpec(
        side=side, mean=found.mean, std=found.std, squeezed=found.fit == "resize", mode=found.mode,
        shortest=found.shortest,
    )  # fmt: skip


def open_matcher(config: MatcherConfig, model: Resolved) -> ClipMatcher:
    """Open the matcher class that fits a checkpoint's ``model_type``."""
    from glit.backends.matchers.siglip import NaflexMatcher, SiglipMatcher

    kinds = {"siglip": SiglipMatcher, "siglip2": NaflexMatcher}
    return kinds.get(model_type(model.path), ClipMatcher)(config, model)


def own_scale(model: Resolved | None) -> float | None:
    """The learned scale on cosines of a matcher's checkpoint, to three digits; None where there is
    no matcher, and for pickles, which are OpenAI's.

    SigLIP's bias is not asked for: every rule compares logits of one model, where it cancels.
    """
    if model is None:
        return None
    from safetensors import safe_open

    for file in weight_files(model.path):
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as stored:
                if "logit_scale" in stored.keys():  # noqa: SIM118 - a safetensors handle, which cannot be iterated
                    found = stored.get_tensor("logit_scale").float().exp().max()
                    if not found.isfinite():
                        raise WeightsError(
                            f"model {model.name!r}: its logit_scale is {found.item()}"
                        )
                    return float(f"{found.item():.3g}")
    return None


def reading(model: Resolved | None) -> dict[str, Any]:
    """How a checkpoint's images and texts are read, if otherwise than earlier versions did: part of
    fingerprints. ``squeezed`` is said of SigLIP's and of most runs of glit train."""
    if model is None:
        return {}
    from glit.clip.image_processor import newly_followed, read_preprocessing, says_preprocessing
    from glit.clip.siglip import wants_lower_case

    if not says_preprocessing(model.path):
        return {}
    found: dict[str, Any] = {}
    if read_preprocessing(model.path).fit == "resize":
        found["squeezed"] = True
    if followed := newly_followed(model.path):
        found["preprocessing"] = followed
    if model_type(model.path).startswith("siglip") and wants_lower_case(model.path):
        found["lower_case"] = True
    return found


def _check(config: MatcherConfig, model: Resolved | None) -> None:
    from glit.clip.open_clip import check_files, is_open_clip

    if model is not None and is_open_clip(model.path):
        check_files(model.path, model.name)
    else:
        refuse_other_kind(model, KINDS, loads="score.backend = 'clip' loads a CLIPModel or its kin")
    dense = getattr(config, "crop", "") == "dense"
    if dense and model is not None and model_type(model.path).startswith("siglip"):
        raise RecipeError(
            f"score.crop = 'dense': {model.name!r} is a SigLIP, which pools patches by a head of "
            "its own; give a CLIP, best a run of glit train --objective glit"
        )


CLIP = Backend(make=open_matcher, gpu_bytes=6 << 30, extras=("models",), check=_check)
