"""How an image and a text are compared, by the name that ``evaluate.scorer`` takes."""

from __future__ import annotations

from glit.evaluate.scorers.cosine import Cosine
from glit.evaluate.scorers.finelip import FineLipScore
from glit.evaluate.scorers.protocol import Scorer
from glit.evaluate.scorers.sentence_average import SentenceAverage
from glit.evaluate.scorers.sentence_patches import SentencePatches

SCORERS: dict[str, type[Scorer]] = {
    "cosine": Cosine,
    "sentence-average": SentenceAverage,
    "sentence-patches": SentencePatches,
    "finelip": FineLipScore,
}
