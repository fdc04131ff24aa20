"""SAM 3 (Carion et al. 2025): one concept a pass over features of the image computed once.

Its weights are gated: accept the licence on the hub and fetch them there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from PIL import Image

from glit.data.rle import mask_text
from glit.images import Pixels
from glit.models.backends.base import Backend, refuse_other_kind
from glit.models.backends.grounders.choose import best_of_each
from glit.models.backends.protocols import GrounderConfig, PhraseDetections
from glit.models.device import pick_device, torch_dtype
from glit.models.pretrained import load_with_processor
from glit.models.weights import Resolved
from glit.recipes.extras import require
from glit.runtime.prefetch import batched


class Sam3Grounder:
    """A ``Sam3Model``; the boxes of its instances, and with ``keep_masks`` their masks.

    Raises:
        WeightsError: it cannot be loaded.
    """

    def __init__(self, config: GrounderConfig, model: Resolved) -> None:
        require("models", needed_for="ground.backend = 'sam3'")
        _check(config, model)
        config = SAM3.settled(config)
        import torch
        from transformers import Sam3Model, Sam3Processor

        self._torch, self._config = torch, config
        self._device = pick_device(config.device)
        self._dtype = torch_dtype(config.precision)
        self._processor, loaded = load_with_processor(
            Sam3Processor, Sam3Model, model, name="SAM 3", dtype=self._dtype
        )
        self._model: Any = loaded.to(self._device).eval()

    def find(
        self, images: Sequence[Pixels], phrases: Sequence[Sequence[str]]
    ) -> list[list[PhraseDetections]]:
        """Find the phrases of each image."""
        with self._torch.inference_mode():
            return [
                self._find(image, own) if own else []
                for image, own in zip(images, phrases, strict=True)
            ]

    def _find(self, image: Pixels, phrases: Sequence[str]) -> list[PhraseDetections]:
        distinct = list(dict.fromkeys(phrases))
        inputs = self._processor(images=Image.fromarray(image), return_tensors="pt")
        pixels = inputs["pixel_values"].to(self._device, self._dtype)
        seen = self._model.get_vision_features(pixel_values=pixels)
        found: dict[str, PhraseDetections] = {}
        for some in batched(distinct, self._config.batch_size):
            found |= zip(some, self._ask(image, seen, some), strict=True)
        return [found[phrase] for phrase in phrases]

    def _ask(self, image: Pixels, seen: Any, phrases: list[str]) -> list[PhraseDetections]:
        window = self._model.config.text_config.max_position_embeddings
        read = self._processor.tokenizer(
            phrases, padding="max_length", truncation=True, max_length=window, return_tensors="pt"
        )
        moved = {name: read[name].to(self._device) for name in ("input_ids", "attention_mask")}
        outputs = self._model(vision_embeds=self._repeated(seen, len(phrases)), **moved)
        presence = outputs.presence_logits.float().sigmoid()
        scores = (outputs.pred_logits.float().sigmoid() * presence).cpu().numpy()
        height, width = image.shape[:2]
        size = np.array([width, height, width, height], dtype=np.float64)
        boxes = outputs.pred_boxes.float().cpu().numpy() * size
        found = []
        for own, score, masks in zip(boxes, scores, outputs.pred_masks, strict=True):
            mask_of = functools.partial(self._mask, masks, height=height, width=width)
            found += best_of_each(
                own, score[:, None], width=width, height=height, config=self._config,
                mask_of=mask_of if self._config.keep_masks else None,
            )  # fmt: skip
        return found

    def _mask(self, masks: Any, number: int, *, height: int, width: int) -> str:
        """The mask of an instance, as transformers' ``post_process_instance_segmentation`` has it:
        probabilities at the image's size, cut at one half."""
        small = masks[number][None, None].float().sigmoid()
        large = self._torch.nn.functional.interpolate(small, (height, width), mode="bilinear")
        return mask_text((large[0, 0] > 0.5).cpu().numpy(), height=height, width=width)

    def _repeated(self, seen: Any, number: int) -> Any:
        """Features of one image as those of a batch of the same image."""

        def repeat(value: Any) -> Any:
            if isinstance(value, self._torch.Tensor):
                return value.expand(number, *value.shape[1:])
            return tuple(map(repeat, value)) if isinstance(value, (tuple, list)) else value

        return replace(seen, **{f.name: repeat(getattr(seen, f.name)) for f in fields(seen)})


def _check(config: GrounderConfig, model: Resolved | None) -> None:
    refuse_other_kind(model, ("sam3", "sam3_video"), loads="ground.backend = 'sam3' loads SAM 3")


SAM3 = Backend(
    make=Sam3Grounder,
    check=_check,
    keeps_masks=True,
    extras=("models", "phrases"),
    gpu_bytes=8 << 30,
)
