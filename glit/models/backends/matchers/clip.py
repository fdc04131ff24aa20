"""CLIP and its kin by transformers: embeddings of region crops and of sentences.

Which kind a checkpoint is says its configuration (:data:`glit.models.clip.model_types.KINDS`):
CLIP of any size and text window (Long-CLIP's too), MetaCLIP 2, SigLIP and SigLIP 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from glit.data.geometry import Boxes
from glit.errors import RecipeError, WeightsError
from glit.images import Pixels
from glit.models.backends.base import Backend, refuse_other_kind
from glit.models.backends.protocols import MatcherConfig
from glit.models.device import torch_dtype
from glit.models.files import model_type, weight_files
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.weights import Resolved
from glit.recipes.extras import require

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class ClipMatcher:
    """A model of any kind that :mod:`glit.models.clip.kinds` opens.

    Embeddings are projected, L2-normalised and float32. On a CPU, what a crop or a sentence becomes
    does not depend on what shares its batch (docs/decisions/alike-in-any-batch.md).
    """

    def __init__(self, config: MatcherConfig, model: Resolved) -> None:
        config = CLIP.settled(config)
        require("models", needed_for="the matcher")
        import torch

        from glit.models.clip.image_processor import says_preprocessing
        from glit.models.clip.kinds import open_encoder

        self._torch = torch
        self._batch_size = config.batch_size
        if not says_preprocessing(model.path):
            raise WeightsError(f"{model.path}: it holds no preprocessor_config.json")
        try:
            opened = open_encoder(
                model.path, dtype=torch_dtype(config.precision), device=config.device,
                int8=config.precision == "int8", name=model.name,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise WeightsError(
                f"model {model.name!r}: cannot be loaded as CLIP ({error})"
            ) from error
        self.encoder, self.tokenizer = opened.encoder, opened.tokenizer
        self.preprocessing = opened.preprocessing
        self.context = self.encoder.context

    def embed_regions(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes]
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Embed the regions of each image; crops of several images share batches."""
        counts = [len(each) for each in boxes]
        crops = self._torch.cat(
            [
                self.encoder.cut(image, each, self.preprocessing)
                for image, each in zip(images, boxes, strict=True)
            ]
        )
        batches = self._torch.tensor_split(crops, self._num_batches(len(crops)))
        parts = [self.encoder.embed_crops(batch) for batch in batches]
        joined = self._torch.cat(parts).cpu().numpy()  # waited for once, with all at work
        return np.split(joined, np.cumsum(counts)[:-1])

    def embed_dense(
        self, images: Sequence[Pixels], boxes: Sequence[Boxes], *, scale: float
    ) -> list[Float[np.ndarray, "_ _"]]:
        """Regions and, last, the whole image, by one pass over each image: a region is the mean of
        the patch tokens under its box.

        For CLIPs that were trained to it (``glit train --objective glit``). In the last layer every
        patch attends to itself alone, which is better for every objective on scenes
        (docs/experiments.md). Images are squeezed into the square.
        """
        from glit.models.clip.pooling import coverage
        from glit.models.clip.preprocess import fit_boxes, fit_image

        torch, found, patch = self._torch, [], self.encoder.patch_size
        grid = max(1, round(self.encoder.side * scale / patch))
        at_once = max(1, int(self._batch_size / max(scale, 1) ** 2))
        for start in range(0, len(images), at_once):
            some = images[start : start + at_once]
            squares = [fit_image(image, side=grid * patch, fit="resize") for image in some]
            pixels = torch.stack(squares).to(self.encoder.mean_3.device)
            if len(some) == 1:
                pixels = pixels.expand(2, -1, -1, -1)
            with torch.inference_mode(), no_tf32_convolutions():
                tokens, wholes = self.encoder.encode_images(
                    pixels, num_tokens=len(pixels), unmixed=True, interpolate=True
                )
                for image, own, whole, placed in zip(
                    some, tokens, wholes, boxes[start:], strict=False
                ):
                    height, width = image.shape[:2]
                    inside = fit_boxes(
                        placed, width=width, height=height, side=grid * patch, fit="resize"
                    )
                    share = coverage(torch.from_numpy(inside).float(), patch_size=patch, grid=grid)
                    regions = self.encoder.project_patches(share.to(own) @ own)
                    found.append(torch.cat([regions, whole[None]]).cpu().numpy())
        return found

    def embed_sentences(self, sentences: Sequence[str]) -> Float[np.ndarray, "S D"]:
        """Embed the sentences; equal sentences are encoded once.

        Batches are of sentences that are padded to the same length.
        """
        distinct = sorted(set(sentences))
        ids = self.tokenizer.encode_closed(distinct, context=self.context)
        order = sorted(range(len(distinct)), key=lambda index: (len(ids[index]), index))
        parts = [
            self.embed_ids([ids[index] for index in batch])
            for _, alike in groupby(order, key=lambda index: self.encoder.padded(len(ids[index])))
            for batch in self._evenly(list(alike))
        ]
        embedded = self._torch.cat(parts).cpu().numpy()
        place = {distinct[index]: row for row, index in enumerate(order)}
        return embedded[[place[sentence] for sentence in sentences]]

    def embed_ids(self, ids: list[list[int]]) -> Tensor:
        """Embeddings [N, D] of token ids, start and end token included, on the device."""
        return self.encoder.embed_ids(ids, self.tokenizer)

    def _num_batches(self, count: int) -> int:
        return math.ceil(count / self._batch_size)

    def _evenly(self, items: list[int]) -> list[list[int]]:
        parts = np.array_split(items, self._num_batches(len(items)))
        return [part.tolist() for part in parts]


def own_scale(model: Resolved | None) -> float | None:
    """The learned scale on cosines of a matcher's checkpoint, to three digits; None where there is
    no matcher, and for pickles, which are OpenAI's.

    SigLIP's bias is not asked for: every rule compares logits of one model, where it cancels.
    """
    if model is None:
        return None
    for file in weight_files(model.path):
        if file.suffix == ".safetensors" and (stored := _stored_scale(file)) is not None:
            with np.errstate(over="ignore"):
                found = np.exp(stored).max()
            if not np.isfinite(found):
                raise WeightsError(f"model {model.name!r}: its logit_scale is {found}")
            return float(f"{found:.3g}")
    return None


def _stored_scale(file: Path) -> Any:
    """The logarithm of the scale in a file of weights, float32; None if it is in another file.

    torch is only imported for bfloat16, which NumPy does not have: the driver of a build on a
    cluster needs no torch, which takes a third of a gigabyte.
    """
    from safetensors import safe_open

    with safe_open(file, framework="np") as stored:
        if "logit_scale" not in stored.keys():  # noqa: SIM118 - a safetensors handle, which cannot be iterated
            return None
        if stored.get_slice("logit_scale").get_dtype() != "BF16":
            return stored.get_tensor("logit_scale").astype(np.float32)
    with safe_open(file, framework="pt") as stored:
        return stored.get_tensor("logit_scale").float().numpy()


def _check(config: MatcherConfig, model: Resolved | None) -> None:
    from glit.models.clip.model_types import KINDS

    refuse_other_kind(model, KINDS, loads="score.backend = 'clip' loads a CLIPModel or its kin")
    dense = getattr(config, "crop", "") == "dense"
    if dense and model is not None and model_type(model.path).startswith("siglip"):
        raise RecipeError(
            f"score.crop = 'dense': {model.name!r} is a SigLIP, which pools patches by a head of "
            "its own; give a CLIP, best a run of glit train --objective glit"
        )


CLIP = Backend(
    make=ClipMatcher,
    embeds_dense=True,
    gpu_bytes=6 << 30,
    extras=("models",),
    check=_check,
    has_int8=True,
)
