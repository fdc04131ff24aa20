"""The training objectives, by the name a recipe gives them."""

from __future__ import annotations

from glit.train.objective import Objective
from glit.train.objectives.beta_clip import BetaClip
from glit.train.objectives.clip import Clip
from glit.train.objectives.f_cast import FCast
from glit.train.objectives.fast_goal import FastGoal
from glit.train.objectives.finelip import FineLip
from glit.train.objectives.global_local import GlobalLocal
from glit.train.objectives.hard_negatives import HardNegatives
from glit.train.objectives.local import Local
from glit.train.objectives.long_clip import LongClip
from glit.train.objectives.mulclip import MulClip
from glit.train.objectives.siglip import Siglip
from glit.train.objectives.top_k import Top3Uniform, Top3Weighted

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
}
"""By the name that ``train.objective`` takes; ``goal`` is ``fast-goal`` under its first name."""
