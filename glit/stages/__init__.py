"""The flow: its steps one file each, in the order a sample meets them."""

from __future__ import annotations

from glit.stages.base import Stage, Step
from glit.stages.caption import CaptionStage
from glit.stages.ingest import Ingest
from glit.stages.pack import Pack
from glit.stages.pair import PairStage
from glit.stages.propose import ProposeStage
from glit.stages.score import ScoreStage
from glit.stages.split import SplitStage

FLOW: tuple[type[Step], ...] = (
    Ingest,
    CaptionStage,
    SplitStage,
    ProposeStage,
    ScoreStage,
    PairStage,
    Pack,
)
"""Each may need only what comes before it."""

STAGES: dict[str, type[Stage]] = {s.name: s for s in FLOW if issubclass(s, Stage)}
"""The steps that turn samples into samples, by name."""

TABLES: tuple[str, ...] = tuple(step.name for step in FLOW if step.columns)
"""The steps that keep a table a chunk."""
