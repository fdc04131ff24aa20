"""The training objectives, by the name a recipe gives them."""

from __future__ import annotations

from collections.abc import Callable

from glit.train.config import TrainConfig
from glit.train.objectives.clip import Clip
from glit.train.objectives.fast_goal import FastGoal
from glit.train.objectives.global_local import GlobalLocal
from glit.train.objectives.hard_negatives import HardNegatives
from glit.train.objectives.local import Local
from glit.train.objectives.protocol import Objective
from glit.train.objectives.top_k import TopK


def _fast_goal(config: TrainConfig) -> Objective:
    return FastGoal(
        lambda_global=config.lambda_global,
        lambda_local=config.lambda_local,
        lambda_tsl=config.lambda_tsl,
        tsl_matrix=config.tsl_matrix,
    )


def _top_k(config: TrainConfig, *, weighted: bool) -> Objective:
    return TopK(
        lambda_global=config.lambda_global,
        lambda_local=config.lambda_local,
        lambda_tsl=config.lambda_tsl,
        weighted=weighted,
    )


BUILDERS: dict[str, Callable[[TrainConfig], Objective]] = {
    "clip": lambda config: Clip(),
    "local": lambda config: Local(),
    "global+local": lambda config: GlobalLocal(
        lambda_global=config.lambda_global, lambda_local=config.lambda_local
    ),
    "fast-goal": _fast_goal,
    "goal": _fast_goal,
    "top3-uniform": lambda config: _top_k(config, weighted=False),
    "top3-weighted": lambda config: _top_k(config, weighted=True),
    "hard-negatives": lambda config: HardNegatives(num_local=config.max_local),
}
"""Same names as ``glit.train.config.OBJECTIVES``, which a test holds together."""


def build_objective(config: TrainConfig) -> Objective:
    """The objective ``config.objective`` names, with its weights."""
    return BUILDERS[config.objective](config)
