"""Scorers, registered by the names that ``evaluate.scorer`` accepts."""

from __future__ import annotations

from glit.evaluation.scorers.cosine import Cosine
from glit.evaluation.scorers.finelip import FineLipScore
from glit.evaluation.scorers.protocol import Scorer
from glit.evaluation.scorers.sentence_average import SentenceAverage
from glit.evaluation.scorers.sentence_patches import SentencePatches

SCORERS: dict[str, type[Scorer]] = {
    "cosine": Cosine,
    "sentence-average": SentenceAverage,
    "sentence-patches": SentencePatches,
    "finelip": FineLipScore,
}
