"""Proposers of regions. Every backend is constructed with (config, model)."""

from __future__ import annotations

from glit.models.backends.base import Backend
from glit.models.backends.given import PROPOSER as FILE
from glit.models.backends.given import PROVIDED_PROPOSER as PROVIDED
from glit.models.backends.proposers.grid import GRID
from glit.models.backends.proposers.sa1b import SA1B
from glit.models.backends.proposers.sam import SAM
from glit.models.backends.proposers.yolo import YOLO
from glit.models.backends.proposers.yolos import YOLOS

PROPOSERS: dict[str, Backend] = {
    "yolos": YOLOS,
    "yolo": YOLO,
    "sam": SAM,
    "sa1b": SA1B,
    "file": FILE,
    "provided": PROVIDED,
    "grid": GRID,
}
"""By their names in ``propose.backend``; model libraries are imported when one is constructed."""
