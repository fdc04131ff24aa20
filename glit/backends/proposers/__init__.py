"""Proposers of regions. Every backend is constructed with (config, model)."""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.given import PROPOSER as FILE
from glit.backends.given import PROVIDED_PROPOSER as PROVIDED
from glit.backends.proposers.grid import GRID
from glit.backends.proposers.sa1b import SA1B
from glit.backends.proposers.sam import SAM
from glit.backends.proposers.yolo import YOLO
from glit.backends.proposers.yolos import YOLOS

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
