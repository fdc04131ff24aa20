"""Open-vocabulary detectors: models that find phrases in images."""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.grounders.sam3 import SAM3
from glit.backends.grounders.zero_shot import ZERO_SHOT

GROUNDERS: dict[str, Backend] = {"zero-shot": ZERO_SHOT, "sam3": SAM3}
"""By their names in ``ground.backend``; model libraries are imported when one is constructed."""
