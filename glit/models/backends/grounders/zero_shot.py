"""Zero-shot detectors of transformers: OWL-ViT, OWLv2, Grounding DINO, LLMDet, OmDet-Turbo.

Unlike the library's own post-processing, which gives a box to one phrase alone, every phrase is
scored by itself: "a small ring" and "the red ring" may be one thing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from glit.data.geometry import Boxes
from glit.errors import WeightsError
from glit.images import Pixels
from glit.models.backends.base import Backend, refuse_other_kind
from glit.models.backends.grounders.choose import best_of_each
from glit.models.backends.protocols import GrounderConfig, PhraseDetections
from glit.models.device import pick_device, torch_dtype
from glit.models.files import model_type
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.pretrained import load_with_processor
from glit.models.weights import Resolved
from glit.recipes.extras import require
from glit.runtime.prefetch import batched

Answer = tuple[Boxes, Float[np.ndarray, "N P"]]
"""Boxes, xyxy pixels of the image, and the score (0 to 1) of each box for each of P phrases."""
_REMEMBERED = 4096


class ZeroShotGrounder(ABC):
    """A model of ``AutoModelForZeroShotObjectDetection``; one subclass a kind.

    Raises:
        WeightsError: the model is of no such kind, or cannot be loaded.
    """

    def __init__(self, config: GrounderConfig, model: Resolved) -> None:
        require("models", needed_for="ground.enabled = true")
        config = ZERO_SHOT.settled(config)
        import torch
        from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

        self._torch, self._config = torch, config
        self._device = pick_device(config.device)
        self._dtype = torch_dtype(config.precision)
        self._processor, loaded = load_with_processor(
            AutoProcessor, AutoModelForZeroShotObjectDetection, model,
            name="a zero-shot detector", dtype=self._dtype,
        )  # fmt: skip
        self._model: Any = loaded.to(self._device).eval()

    def find(
        self, images: Sequence[Pixels], phrases: Sequence[Sequence[str]]
    ) -> list[list[PhraseDetections]]:
        """Find the phrases of each image; see :class:`glit.models.backends.protocols.Grounder`.

        Raises:
            FloatingPointError: the model answered NaN or infinity.
        """
        distinct = [list(dict.fromkeys(each)) for each in phrases]
        with self._torch.inference_mode(), no_tf32_convolutions():
            answers = list(self._answers(images, distinct))
        result = []
        for image, own, names, answer in zip(images, phrases, distinct, answers, strict=True):
            height, width = image.shape[:2]
            found = best_of_each(*answer, width=width, height=height, config=self._config)
            by_phrase = dict(zip(names, found, strict=True))
            result.append([by_phrase[phrase] for phrase in own])
        return result

    @abstractmethod
    def _answers(self, images: Sequence[Pixels], phrases: Sequence[list[str]]) -> Iterator[Answer]:
        """Return each image's boxes and scores for its own phrases."""

    def _moved(self, inputs: Any) -> dict[str, Any]:
        return {
            name: value.to(self._device, self._dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }


class OwlGrounder(ZeroShotGrounder):
    """OWL-ViT and OWLv2 (Minderer et al. 2022 and 2023).

    Images share a batch, each is encoded once, and so is each distinct phrase.
    """

    def __init__(self, config: GrounderConfig, model: Resolved) -> None:
        super().__init__(config, model)
        self._is_padded = model_type(model.path) == "owlv2"
        self._queries: dict[str, Any] = {}

    def _answers(self, images: Sequence[Pixels], phrases: Sequence[list[str]]) -> Iterator[Answer]:
        self._learn({phrase for each in phrases for phrase in each})
        for batch in batched(list(range(len(images))), self._config.batch_size):
            pictures = [Image.fromarray(images[index]) for index in batch]
            inputs = self._moved(self._processor.image_processor(pictures, return_tensors="pt"))
            features, _ = self._model.image_embedder(pixel_values=inputs["pixel_values"])
            flat = features.flatten(1, 2)
            boxes = self._model.box_predictor(flat, features).float().cpu().numpy()
            for row, index in enumerate(batch):
                yield self._answer(flat[row : row + 1], boxes[row], images[index], phrases[index])

    def _answer(self, flat: Any, boxes: Boxes, image: Pixels, phrases: list[str]) -> Answer:
        height, width = image.shape[:2]
        if self._is_padded:  # to a square, below and to the right
            width = height = max(width, height)
        corners = _corners(boxes) * [width, height, width, height]
        if not phrases:
            return corners, np.zeros((len(boxes), 0))
        queries = self._torch.stack([self._queries[phrase] for phrase in phrases])
        logits, _ = self._model.class_predictor(flat, queries[None])
        return corners, logits[0].float().sigmoid().cpu().numpy()

    def _learn(self, phrases: set[str]) -> None:
        """Encode the phrases that are not known yet."""
        if len(self._queries) > _REMEMBERED:
            self._queries.clear()
        new = sorted(phrases - self._queries.keys())
        for some in batched(new, 256):
            window = self._model.config.text_config.max_position_embeddings
            inputs = self._processor.tokenizer(
                some, padding="max_length", truncation=True, max_length=window, return_tensors="pt"
            )
            towers = getattr(self._model, "owlvit", None) or self._model.owlv2
            read = towers.text_model(**self._moved(inputs)).pooler_output
            self._queries |= zip(some, towers.text_projection(read), strict=True)


class DinoGrounder(ZeroShotGrounder):
    """Grounding DINO (Liu et al. 2023), MM-Grounding-DINO and LLMDet.

    All phrases of an image go into one prompt, with full stops between them, as many as its window
    holds; the score of a box for a phrase is the highest of the phrase's own tokens.
    """

    def _answers(self, images: Sequence[Pixels], phrases: Sequence[list[str]]) -> Iterator[Answer]:
        for image, own in zip(images, phrases, strict=True):
            asked = [self._ask(image, prompt) for prompt in self._prompts(own)]
            # each prompt has boxes of its own, which say nothing of the phrases of the others
            scores = np.zeros((sum(len(boxes) for boxes, _ in asked), len(own)))
            row = column = 0
            for boxes, some in asked:
                scores[row : row + len(boxes), column : column + some.shape[1]] = some
                row, column = row + len(boxes), column + some.shape[1]
            yield np.concatenate([boxes for boxes, _ in asked] or [np.zeros((0, 4))]), scores

    def _prompts(self, phrases: list[str]) -> Iterator[list[list[int]]]:
        """Token ids of the phrases, in as many prompts as the text window makes necessary."""
        window = self._model.config.max_text_len - 2
        ids = self._processor.tokenizer(
            [phrase.lower().strip(" .") for phrase in phrases],
            add_special_tokens=False, truncation=True, max_length=window - 1,
        )["input_ids"] if phrases else []  # fmt: skip
        prompt: list[list[int]] = []
        for each in ids:
            if sum(len(other) + 1 for other in prompt) + len(each) + 1 > window:
                yield prompt
                prompt = []
            prompt.append(each)
        if prompt:
            yield prompt

    def _ask(self, image: Pixels, prompt: list[list[int]]) -> Answer:
        torch, tokenizer = self._torch, self._processor.tokenizer
        stop = tokenizer.convert_tokens_to_ids(".")
        ids = [tokenizer.cls_token_id]
        spans = []
        for phrase in prompt:
            spans.append((len(ids), len(ids) + len(phrase)))
            ids += [*phrase, stop]
        ids.append(tokenizer.sep_token_id)
        inputs = self._processor.image_processor(Image.fromarray(image), return_tensors="pt")
        outputs = self._model(
            input_ids=torch.tensor([ids], device=self._device), **self._moved(inputs)
        )
        tokens = outputs.logits[0].float().sigmoid()
        scores = [
            tokens[:, first:end].amax(dim=1) if end > first else tokens.new_zeros(len(tokens))
            for first, end in spans
        ]
        height, width = image.shape[:2]
        boxes = _corners(outputs.pred_boxes[0].float().cpu().numpy())
        return boxes * [width, height, width, height], torch.stack(scores, 1).cpu().numpy()


class OmDetGrounder(ZeroShotGrounder):
    """OmDet-Turbo (Zhao et al. 2024): all phrases of an image in one call."""

    def _answers(self, images: Sequence[Pixels], phrases: Sequence[list[str]]) -> Iterator[Answer]:
        for image, own in zip(images, phrases, strict=True):
            if not own:
                yield np.zeros((0, 4)), np.zeros((0, 0))
                continue
            inputs = self._processor(
                images=Image.fromarray(image), text=[own], task="Detect the things named.",
                return_tensors="pt", truncation=True,
            )  # fmt: skip
            outputs = self._model(**self._moved(inputs))
            height, width = image.shape[:2]
            boxes = _corners(outputs.decoder_coord_logits[0].float().cpu().numpy())
            scores = outputs.decoder_class_logits[0, :, : len(own)].float().sigmoid()
            yield boxes * [width, height, width, height], scores.cpu().numpy()


_KINDS: dict[str, type[ZeroShotGrounder]] = {
    "owlvit": OwlGrounder,
    "owlv2": OwlGrounder,
    "grounding-dino": DinoGrounder,
    "mm-grounding-dino": DinoGrounder,
    "omdet-turbo": OmDetGrounder,
}


def _make(config: GrounderConfig, model: Resolved) -> ZeroShotGrounder:
    _check(config, model)
    kind = model_type(model.path)
    if not kind:
        raise WeightsError(f"model {model.name!r}: cannot be loaded, its folder has no config.json")
    return _KINDS[kind](config, model)


def _check(config: GrounderConfig, model: Resolved | None) -> None:
    refuse_other_kind(model, _KINDS, loads="ground.backend = 'zero-shot' loads detectors")


def _corners(boxes: Boxes) -> Boxes:
    """Centre, width and height to corners."""
    boxes = boxes.astype(np.float64)
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)


ZERO_SHOT = Backend(make=_make, check=_check, extras=("models", "phrases"), gpu_bytes=6 << 30)
