"""Open-vocabulary detectors (OWLv2, Grounding DINO) as a second opinion on pairs.

Models of transformers' zero-shot object detection: OWL-ViT and OWLv2 take all phrases of an image
at once (Minderer et al. 2022 and 2023), Grounding DINO reads one phrase at a time here, since its
answers for several run into each other (Liu et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from glit.backends.device import pick_device, torch_dtype
from glit.backends.model_files import model_type
from glit.backends.weights import Resolved
from glit.data.geometry import Boxes, iou
from glit.errors import WeightsError
from glit.images import Pixels
from glit.recipes.extras import require
from glit.runtime.pretrained import load_whole

MANY_PHRASES = frozenset({"owlvit", "owlv2"})
ONE_PHRASE = frozenset({"grounding-dino", "mm-grounding-dino"})
LOWEST_SCORE = 0.05
"""Detections below it are no evidence."""
SAME_IOU = 0.5
"""Overlap from which a detection speaks for a region."""
AGREEMENT_DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A detection of a phrase in an image."""

    boxes: Boxes
    """xyxy pixels [N, 4]."""
    scores: Float[np.ndarray, " N"]
    """0 to 1."""


class PhraseDetector:
    """Finds phrases in images.

    Raises:
        WeightsError: the model is of no such kind, or cannot be loaded.
    """

    def __init__(self, model: Resolved, *, device: str, precision: str) -> None:
        require("models", needed_for="score.opinion")
        refuse_other_detector(model)
        import torch
        from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

        self._torch = torch
        self._device = pick_device(device)
        self._dtype = torch_dtype(precision)
        self._together = model_type(model.path) in MANY_PHRASES
        try:
            self._processor: Any = AutoProcessor.from_pretrained(
                str(model.path), local_files_only=True
            )
            loaded = load_whole(
                AutoModelForZeroShotObjectDetection,
                model.path,
                local_files_only=True,
                dtype=self._dtype,
            )
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(
                f"model {model.name!r}: cannot be loaded as a phrase detector ({error})"
            ) from error
        self._model = loaded.to(self._device).eval()

    def find(self, image: Pixels, phrases: Sequence[str]) -> list[Found]:
        """Find each phrase; boxes in pixels of the image."""
        distinct = list(dict.fromkeys(phrases))
        picture = Image.fromarray(image)
        if self._together:
            answers = self._ask_together(picture, distinct)
        else:
            answers = [self._ask_one(picture, phrase) for phrase in distinct]
        by_phrase = dict(zip(distinct, answers, strict=True))
        return [by_phrase[phrase] for phrase in phrases]

    def _ask_together(self, picture: Image.Image, phrases: list[str]) -> list[Found]:
        answer = self._answer(picture, [phrases])
        labels = answer["labels"].cpu().numpy()
        boxes, scores = _arrays(answer)
        return [
            Found(boxes=boxes[labels == number], scores=scores[labels == number])
            for number in range(len(phrases))
        ]

    def _ask_one(self, picture: Image.Image, phrase: str) -> Found:
        boxes, scores = _arrays(self._answer(picture, phrase.lower().rstrip(" .") + "."))
        return Found(boxes=boxes, scores=scores)

    def _answer(self, picture: Image.Image, text: Any) -> dict[str, Any]:
        inputs = self._processor(images=picture, text=text, return_tensors="pt", truncation=True)
        moved = {
            name: value.to(self._device, self._dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        options = {} if self._together else {"input_ids": moved["input_ids"]}
        with self._torch.inference_mode():
            outputs = self._model(**moved)
            return self._processor.post_process_grounded_object_detection(
                outputs,
                threshold=LOWEST_SCORE,
                target_sizes=[(picture.height, picture.width)],
                **options,
            )[0]


def agreement(found: Sequence[Found], boxes: Boxes) -> Float[np.ndarray, "S R"]:
    """The detector's confidence that each region shows each phrase: float32 [S, R].

    agreement(s, r) = the highest score of a detection of phrase s whose IoU with r is 0.5 or more,
    0 without one.

    Args:
        found: of S phrases.
        boxes: [R, 4] xyxy pixels.
    """
    result = np.zeros((len(found), len(boxes)), dtype=np.float32)
    for row, each in zip(result, found, strict=True):
        if len(each.boxes):
            near = iou(boxes, each.boxes) >= SAME_IOU
            row[:] = np.where(near, each.scores, 0.0).max(axis=1)
    return np.round(result, AGREEMENT_DECIMALS)


def refuse_other_detector(model: Resolved) -> None:
    """Refuse a model that cannot detect phrases.

    Raises:
        WeightsError: see above.
    """
    kind = model_type(model.path) if model.path.is_dir() else ""
    if kind not in MANY_PHRASES | ONE_PHRASE:
        known = ", ".join(sorted(MANY_PHRASES | ONE_PHRASE))
        raise WeightsError(
            f"model {model.name!r}: score.opinion wants a folder of a model of type {known}, "
            f"found {kind or 'no config.json'}"
        )


def _arrays(answer: dict[str, Any]) -> tuple[Boxes, Float[np.ndarray, " N"]]:
    boxes = answer["boxes"].float().cpu().numpy().reshape(-1, 4).astype(np.float64)
    scores = answer["scores"].float().cpu().numpy()
    good = np.isfinite(boxes).all(axis=1) & np.isfinite(scores)
    return boxes[good], scores[good]
