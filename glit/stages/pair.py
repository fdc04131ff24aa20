"""Pair: a rule makes pairs of stored cosines. No model: another rule takes seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from glit import rows
from glit.config import Choice
from glit.records import Sample
from glit.rules import RULES
from glit.rules.protocol import Rule
from glit.schema import PAIR
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """Which rule chooses pairs of sentences and regions."""

    rule: str = "argmax"
    """``argmax`` is FLISM's, ``lism`` is LISM's: there the whole image competes."""
    options: Any = None
    """Keys of the rule's own."""
    choice: ClassVar[Choice] = Choice(key="rule", options=lambda: dict(RULES))

    def make_rule(self) -> Rule:
        """The rule with its options."""
        return self.options or RULES[self.rule]()


class PairStage(Stage):
    """Pairs of every sample, best first."""

    name = "pair"
    version = 1
    needs = ("score",)
    config = PairConfig
    columns = (("pairs", pa.list_(PAIR)),)

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    @classmethod
    def open(cls, plan: Plan) -> PairStage:
        """See :class:`Stage`."""
        return cls(plan.config(PairConfig).make_rule())

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        """See :class:`Stage`."""
        for sample in samples:
            assert sample.scores is not None and sample.regions is not None
            yield dataclasses.replace(sample, pairs=self._rule(sample.scores, sample.regions))

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        """See :class:`Stage`."""
        return {"pairs": [rows.pair_row(pair) for pair in sample.pairs or ()]}

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        """See :class:`Stage`."""
        return dataclasses.replace(sample, pairs=tuple(map(rows.pair, row["pairs"])))
