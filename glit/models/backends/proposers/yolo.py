"""YOLO by ultralytics (AGPL-3.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glit.data.records import Region
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.backends.proposers.regions import make_regions
from glit.models.backends.protocols import ProposerConfig
from glit.models.backends.ultralytics_models import check_checkpoint, load_yolo
from glit.models.device import pick_device
from glit.models.weights import Resolved

_NAME = "propose.backend = 'yolo'"


class YoloDetector:
    """A detection model of ultralytics. Its checkpoints are pickles: ``allow_pickle`` is needed."""

    def __init__(self, config: ProposerConfig, model: Resolved) -> None:
        _check(config, model)
        self._config = config
        # not as a string: some releases would set CUDA_VISIBLE_DEVICES to it
        self._device = pick_device(config.device)
        self._model: Any = load_yolo(model, task="detect", backend=_NAME)

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        """Regions per image; only images of one shape share a batch."""
        shapes: dict[tuple[int, ...], list[int]] = {}
        for index, image in enumerate(images):
            shapes.setdefault(image.shape, []).append(index)
        found: list[list[Region]] = [[] for _ in images]
        for indices in shapes.values():
            for start in range(0, len(indices), self._config.batch_size):
                batch = indices[start : start + self._config.batch_size]
                for index, result in zip(batch, self._predict(images, batch), strict=True):
                    turned = result.obb is not None  # boxes around them
                    boxes = (result.obb if turned else result.boxes).cpu().numpy()
                    labels = [str(result.names[int(label)]) for label in boxes.cls]
                    found[index] = make_regions(
                        boxes.xyxy,
                        boxes.conf,
                        labels,
                        width=images[index].shape[1],
                        height=images[index].shape[0],
                        source="yolo",
                    )
        return found

    def _predict(self, images: Sequence[Pixels], batch: list[int]) -> list[Any]:
        bgr = [np.ascontiguousarray(images[index][:, :, ::-1]) for index in batch]
        return self._model.predict(
            bgr,
            conf=self._config.score_threshold,
            device=self._device,
            max_det=max(300, self._config.max_regions),
            verbose=False,
        )


def _check(config: ProposerConfig, model: Resolved | None) -> None:
    check_checkpoint(model, allow_pickle=config.allow_pickle, table="propose", backend=_NAME)


YOLO = Backend(
    make=YoloDetector, float32_only=True, gpu_bytes=6 << 30, check=_check, extras=("yolo",)
)
