"""Negatives: false sentences of every sentence, for objectives that learn from them.

No model and no image: words are exchanged by a lexicon (:mod:`glit.text.negatives`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from glit.data.records import Sample
from glit.data.schema import NEGATIVE
from glit.recipes.config import require_value
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe
from glit.text.negatives import negatives


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativesConfig:
    """False sentences for training."""

    enabled: bool = False
    """Whether the dataset gets a column ``negatives``; needs the extra ``phrases``."""
    per_sentence: int = 8
    """Most false sentences of a sentence. Attribute, count, object, position and relation take
    turns."""

    def __post_init__(self) -> None:
        require_value(
            self.per_sentence >= 1,
            f"[negatives] per_sentence: found {self.per_sentence}, want >= 1",
        )


class NegativesStage(Stage):
    """Makes false sentences; the same sentence of the same image always gets the same ones."""

    name = "negatives"
    version = 1
    reads = ("sentences",)
    makes = ("negatives",)
    title, shows = "False sentences", "per_sentence"
    config = NegativesConfig
    columns = dataset_columns = (("negatives", pa.list_(NEGATIVE)),)

    def __init__(self, most: int) -> None:
        self._most = most

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        return {"phrases": "negatives.enabled = true"}

    @classmethod
    def open(cls, plan: Plan) -> NegativesStage:
        return cls(plan.config(NegativesConfig).per_sentence)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            assert sample.sentences is not None
            caption = [sentence.text for sentence in sample.sentences]
            made = [
                {"sentence": number, "kind": false.kind, "text": false.text}
                for number, text in enumerate(caption)
                for false in negatives(
                    text, caption, most=self._most, draw=_draw(sample.sample_id, text)
                )
            ]
            yield dataclasses.replace(sample, extra={**sample.extra, "negatives": made})


def _draw(sample_id: str, sentence: str) -> random.Random:
    return random.Random(hashlib.sha256(f"{sample_id} {sentence}".encode()).digest())
