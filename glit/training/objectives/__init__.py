"""The training objectives, registered in :data:`OBJECTIVES` by name."""

from __future__ import annotations

from glit.training.objective import Objective
from glit.training.objectives.beta_clip import BetaClip
from glit.training.objectives.f_cast.objective import FCast
from glit.training.objectives.fg_clip import FgClip
from glit.training.objectives.finelip import FineLip
from glit.training.objectives.glit import Glit
from glit.training.objectives.goal import (
    Clip,
    FastGoal,
    GlobalLocal,
    Local,
    Top3Uniform,
    Top3Weighted,
)
from glit.training.objectives.hard_negatives import HardNegatives
from glit.training.objectives.long_clip import LongClip
from glit.training.objectives.mulclip import MulClip
from glit.training.objectives.siglip import Siglip

OBJECTIVES: dict[str, type[Objective]] = {
    "clip": Clip,
    "local": Local,
    "global+local": GlobalLocal,
    "fast-goal": FastGoal,
    "goal": FastGoal,
    "top3-uniform": Top3Uniform,
    "top3-weighted": Top3Weighted,
    "hard-negatives": HardNegatives,
    "siglip": Siglip,
    "long-clip": LongClip,
    "finelip": FineLip,
    "mulclip": MulClip,
    "beta-clip": BetaClip,
    "f-cast": FCast,
    "fg-clip": FgClip,
    "glit": Glit,
}
"""By the name that ``train.objective`` takes; ``goal`` is ``fast-goal`` under its first name."""
