"""Object detectors and segmenters that propose regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glit.backends.protocols import Detector
from glit.backends.weights import Resolved


def _yolos(config: Any, model: Resolved) -> Detector:
    from glit.backends.proposers.yolos import YolosDetector

    return YolosDetector(config, model)


def _yolo(config: Any, model: Resolved) -> Detector:
    from glit.backends.proposers.yolo import YoloDetector

    return YoloDetector(config, model)


def _sam(config: Any, model: Resolved) -> Detector:
    from glit.backends.proposers.sam import SamDetector

    return SamDetector(config, model)


DETECTORS: dict[str, Callable[[Any, Resolved], Detector]] = {
    "yolos": _yolos,
    "yolo": _yolo,
    "sam": _sam,
}
"""Backend name -> maker; each imports its engine only when it is made."""
