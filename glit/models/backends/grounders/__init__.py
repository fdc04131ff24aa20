"""Open-vocabulary detectors, which find phrases in images, and readers of given phrases."""

from __future__ import annotations

from glit.models.backends.base import Backend
from glit.models.backends.given import GROUNDER as FILE
from glit.models.backends.given import PROVIDED_GROUNDER as PROVIDED
from glit.models.backends.grounders.sam3 import SAM3
from glit.models.backends.grounders.yolo import ULTRALYTICS
from glit.models.backends.grounders.zero_shot import ZERO_SHOT

GROUNDERS: dict[str, Backend] = {
    "zero-shot": ZERO_SHOT,
    "sam3": SAM3,
    "ultralytics": ULTRALYTICS,
    "file": FILE,
    "provided": PROVIDED,
}
"""By their names in ``ground.backend``; model libraries are imported when one is constructed."""
