"""Object detectors and segmenters that propose regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glit.backends.protocols import Detector, RegionReader
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


def _sa1b(config: Any) -> RegionReader:
    from glit.backends.proposers.sa1b import Sa1bReader

    return Sa1bReader(config)


READERS: dict[str, Callable[[Any], RegionReader]] = {"sa1b": _sa1b}
"""Backend name -> maker, for backends that need no model because the regions are there already."""
