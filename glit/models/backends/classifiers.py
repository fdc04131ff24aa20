"""Image classifiers of transformers: probabilities of an image's labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from PIL import Image

from glit.errors import RecipeError, WeightsError, closest
from glit.images import Pixels
from glit.models.backends.base import PLAIN_BYTES, Backend, ModelConfig
from glit.models.device import pick_device, torch_dtype
from glit.models.pretrained import load_with_processor
from glit.models.weights import Resolved
from glit.recipes.extras import require


class ImageClassifier:
    """A model of ``AutoModelForImageClassification``.

    Raises:
        WeightsError: it is of no such kind, or cannot be loaded.
    """

    def __init__(self, config: ModelConfig, model: Resolved) -> None:
        require("models", needed_for="quality.backend = 'classifier'")
        config = CLASSIFIER.settled(config)
        import torch
        from transformers import AutoImageProcessor, AutoModelForImageClassification

        self._torch = torch
        self._device = pick_device(config.device)
        self._dtype = torch_dtype(config.precision)
        self._processor, loaded = load_with_processor(
            AutoImageProcessor,
            AutoModelForImageClassification,
            model,
            name="an image classifier",
            dtype=self._dtype,
        )
        self._model: Any = loaded.to(self._device).eval()
        self._labels = _labels(self._model.config.to_dict())

    def classify(self, images: Sequence[Pixels]) -> list[dict[str, float]]:
        """The score of each label for each image: a probability, or the output of a regression.

        Raises:
            FloatingPointError: the model answered NaN or infinity.
        """
        torch = self._torch
        pictures = [Image.fromarray(image) for image in images]
        inputs = self._processor(pictures, return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            logits = self._model(inputs.to(self._device, self._dtype)).logits.float()
        kind = self._model.config.problem_type
        if kind == "multi_label_classification":
            scores = logits.sigmoid()
        elif kind == "regression" or logits.shape[1] == 1:
            scores = logits
        else:
            scores = logits.softmax(dim=1)
        if not bool(torch.isfinite(scores).all()):
            raise FloatingPointError("the classifier answered NaN or infinity")
        return [dict(zip(self._labels, row, strict=True)) for row in scores.tolist()]


def _labels(config: dict[str, Any]) -> list[str]:
    """In the order of the model's outputs."""
    named = config.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}  # transformers' default
    return [str(named[key]) for key in sorted(named, key=int)]


def _check(config: Any, model: Resolved | None) -> None:
    """Refuse a label that the model does not have."""
    if model is None:
        return
    path = model.path / "config.json"
    if not path.is_file():
        raise WeightsError(
            f"model {model.name!r}: no config.json in it; [quality] model wants the folder or hub "
            "id of an image classifier of transformers"
        )
    try:
        known = _labels(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, AttributeError) as error:
        raise WeightsError(f"model {model.name!r}: config.json cannot be read ({error})") from error
    for label in config.rejected():
        if label not in known:
            raise RecipeError(
                f"[quality] reject: {model.name!r} has no label {label!r}; {closest(label, known)}"
            )


CLASSIFIER = Backend(make=ImageClassifier, extras=("models",), check=_check)
MEASURES = Backend(make=lambda config, model: None, needs_model=False, process_bytes=PLAIN_BYTES)
CLASSIFIERS: dict[str, Backend] = {"measures": MEASURES, "classifier": CLASSIFIER}
"""By their names in ``quality.backend``; ``measures`` has no model."""
