"""Quality: measures of every image, and drops below thresholds, before anything is paid for it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from glit.data.quality import measure
from glit.data.records import Drop, Sample
from glit.images import Pixels
from glit.models.backends.base import Backend, ModelConfig
from glit.models.backends.classifiers import CLASSIFIERS, ImageClassifier
from glit.plain import limited
from glit.recipes.config import require_value, speed_only
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.image_source import ImageSource, loaded_batches
from glit.stages.plan import Plan

_LABELS = pa.list_(pa.struct([("label", pa.string()), ("score", pa.float32())]))
_MEASURES = ("sharpness", "brightness", "contrast", "entropy", "aspect", "text")
QUALITY = pa.struct([*((name, pa.float64()) for name in _MEASURES), ("labels", _LABELS)])


def has_quality(schema: pa.Schema) -> bool:
    """Return whether a dataset of this Arrow schema has this stage's scores in ``quality``."""
    place = schema.get_field_index("quality")
    return place >= 0 and schema.field(place).type == QUALITY


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityConfig(ModelConfig):
    """Measures of the images, and thresholds; nothing is dropped unless one is set."""

    table: ClassVar = "quality"
    enabled: bool = False
    """True measures images; the dataset gets a column ``quality``."""
    backend: str = "measures"
    """``measures`` needs no model; ``classifier`` adds the labels of an image classifier."""
    model: str = ""
    """An image classifier of transformers: a hub id or a folder."""
    reject: tuple[str, ...] = ()
    """Drop images in which the classifier gives a label this score or more: ``["nsfw=0.5"]``."""
    min_sharpness: float = limited(0.0, least=0)
    """Smallest allowed variance of the Laplacian at 512 pixels. Fifty photographs had 400 and more,
    and less than 30 when blurred over a 150th of their side."""
    min_brightness: float = limited(0.0, least=0)
    """Smallest allowed mean grey value, 0 to 1."""
    max_brightness: float = limited(1.0, least=0)
    """Largest allowed mean grey value, 0 to 1."""
    min_contrast: float = limited(0.0, least=0)
    """Smallest allowed standard deviation of grey values, as a share of 1."""
    min_entropy: float = limited(0.0, least=0)
    """Smallest allowed entropy of grey values, bits, 0 to 8."""
    max_aspect: float = limited(0.0, least=0)
    """Largest allowed ratio of the longer side to the shorter one; 0 allows any."""
    max_text: float = limited(1.0, least=0)
    """Largest allowed share of the area that looks like text, 0 to 1."""
    batch_size: int = speed_only(16, least=1)
    """Images that the classifier is given together."""

    def check(self) -> None:
        require_value(
            self.backend in CLASSIFIERS,
            f"[quality] backend: found {self.backend!r}, want one of {', '.join(CLASSIFIERS)}",
        )
        with_model = self.backend == "classifier"
        require_value(
            bool(self.model) or not (with_model and self.enabled),
            "[quality] model: backend = 'classifier' wants the name of an image classifier",
        )
        require_value(
            with_model or not self.reject,
            "[quality] reject: labels are those of backend = 'classifier'",
        )
        self.rejected()

    def limits(self) -> dict[str, tuple[float, float]]:
        """Least and most of each measure."""
        return {
            "sharpness": (self.min_sharpness, math.inf),
            "brightness": (self.min_brightness, self.max_brightness),
            "contrast": (self.min_contrast, math.inf),
            "entropy": (self.min_entropy, math.inf),
            "aspect": (0, self.max_aspect or math.inf),
            "text": (0, self.max_text),
        }

    def rejected(self) -> dict[str, float]:
        """The score from which a label drops an image.

        Raises:
            RecipeError: an entry is not ``label=score``.
        """
        found = {}
        for entry in self.reject:
            label, _, score = entry.rpartition("=")
            try:
                found[label] = float(score)
            except ValueError:
                found[label] = math.nan
            require_value(
                bool(label) and math.isfinite(found[label]),
                f"[quality] reject: found {entry!r}, want 'label=score', as 'nsfw=0.5'",
            )
        return found


class QualityStage(Stage):
    """Measures images; those beyond a threshold are dropped."""

    name = "quality"
    version = 1
    reads = ("image",)
    makes = ("quality",)
    filters, retryable = True, True
    reasons: ClassVar = {"low_quality": "a measure of the image is beyond a threshold of [quality]"}
    title, shows, role = "Quality", "backend", "classifier"
    config = QualityConfig
    columns = dataset_columns = (("quality", QUALITY),)
    about: ClassVar = {"quality": "Measures of the image, and scores of labels"}

    def __init__(self, config: QualityConfig, classifier: ImageClassifier | None) -> None:
        self._config = config
        self._classifier = classifier
        self._rejected = config.rejected()

    @classmethod
    def backend(cls, config: QualityConfig) -> Backend:
        return CLASSIFIERS[config.backend]

    @classmethod
    def open(cls, plan: Plan) -> QualityStage:
        config = plan.config(QualityConfig)
        backend = cls.backend(config)
        model = plan.models[cls.role] if backend.needs_model else None
        return cls(config, backend.make(config, model))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for batch in loaded_batches(samples, images, self._config.batch_size):
            pixels = [image for _, image in batch if not isinstance(image, Drop)]
            labelled = iter(self._labelled(pixels))
            for sample, image in batch:
                if isinstance(image, Drop):
                    yield image
                else:
                    yield self._judged(sample, image, next(labelled))

    def _labelled(self, pixels: Sequence[Pixels]) -> Sequence[dict[str, float] | Drop]:
        if self._classifier is None:
            return [{} for _ in pixels]
        return isolate(pixels, self._classifier.classify)

    def _judged(self, sample: Sample, image: Pixels, labels: dict[str, float] | Drop) -> Outcome:
        if isinstance(labels, Drop):
            return labels
        config, measures = self._config, measure(image)
        for name, (least, most) in config.limits().items():
            value = measures[name]
            if value < least:
                return _low(f"{name} {value:.4g}, want {least:g} or more")
            if value > most:
                return _low(f"{name} {value:.4g}, want {most:g} or less")
        for label, least in self._rejected.items():
            if labels[label] >= least:
                return _low(f"{label} {labels[label]:.4g}, want less than {least:g}")
        rows = [{"label": label, "score": score} for label, score in labels.items()]
        quality = {**measures, "labels": rows}
        return dataclasses.replace(sample, extra={**sample.extra, "quality": quality})


def _low(message: str) -> Drop:
    return Drop(reason="low_quality", message=message)
