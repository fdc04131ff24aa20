"""The flow: its steps one file each, in the order a sample meets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glit.data.records import REASONS
from glit.recipes.config import enabled, is_enabled
from glit.stages.base import Step
from glit.stages.caption import CaptionStage
from glit.stages.condense import CondenseStage
from glit.stages.exclude import ExcludeStage
from glit.stages.flow import Flow, make_flow
from glit.stages.ground import GroundStage
from glit.stages.ingest import Ingest
from glit.stages.negatives import NegativesStage
from glit.stages.pack import Pack
from glit.stages.pair import PairStage
from glit.stages.propose import ProposeStage
from glit.stages.quality import QualityStage
from glit.stages.rights import RightsStage
from glit.stages.score import ScoreStage
from glit.stages.split import SplitStage

FLOW: tuple[type[Step], ...] = (
    Ingest,
    RightsStage,
    ExcludeStage,
    QualityStage,
    CaptionStage,
    CondenseStage,
    SplitStage,
    ProposeStage,
    GroundStage,
    ScoreStage,
    PairStage,
    NegativesStage,
    Pack,
)
"""Every step that glit has. Each may read only what those before it make."""


def all_steps() -> tuple[type[Step], ...]:
    """Every step that a recipe can enable, in flow order."""
    return FLOW


def flow(tables: Mapping[str, Any]) -> Flow:
    """The flow of a recipe's tables: its enabled steps.

    Raises:
        RecipeError: they do not fit together.
    """
    on = enabled({step.name: tables[step.name] for step in FLOW})
    for step in FLOW:
        if step.name not in on and is_enabled(tables[step.name]):
            step.check_off(tables[step.name])
    return make_flow([step.chosen(tables[step.name]) for step in FLOW if step.name in on])


def all_reasons() -> dict[str, str]:
    """Every reason a sample can be dropped for, and what it means."""
    own = {key: text for step in FLOW for key, text in step.reasons.items()}
    return {**REASONS, **own}
