"""Pair: a rule makes pairs of stored cosines. No model: another rule takes seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from glit import rows
from glit.config import Choice, added, as_table, need
from glit.errors import RecipeError
from glit.records import Sample
from glit.rules import RULES
from glit.rules.calibration import Calibration
from glit.rules.pairing import Pairing
from glit.rules.protocol import Rule
from glit.schema import PAIR
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.stages.score import ScoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """Which rule chooses pairs of sentences and regions."""

    rule: str = "argmax"
    """``argmax`` is FLISM's, ``lism`` is LISM's: there the whole image competes. ``centred``,
    ``dual-softmax``, ``sinkhorn`` and ``mutual`` are better: docs/pairs.md."""
    calibration: str = added("")
    """What gives every pair a probability: one that ships with glit, or a file."""
    min_probability: float = added(0.0)
    """A sentence whose best region is less probable has none; above 0 wants a calibration."""
    options: Any = None
    """Keys of the rule's own."""
    choice: ClassVar[Choice] = Choice(key="rule", options=lambda: dict(RULES))

    def __post_init__(self) -> None:
        probability = self.min_probability
        need(0 <= probability < 1, f"[pair] min_probability: found {probability}, want 0 to 1")
        need(
            not probability or bool(self.calibration),
            "[pair] min_probability: wants pair.calibration, which gives the probabilities",
        )

    def make_rule(self) -> Rule:
        """The rule with its options."""
        return self.options or RULES[self.rule]()

    def make_pairing(self, calibration: Calibration | None) -> Pairing:
        """The rule, calibrated."""
        return Pairing(
            rule=self.make_rule(), calibration=calibration, min_probability=self.min_probability
        )

    def rule_table(self) -> dict[str, Any]:
        """The rule and all its options, by which a calibration knows it."""
        return {"rule": self.rule, **as_table(self.make_rule())}

    def check_phrases(self, *, scored: bool) -> None:
        """Refuse head phrases where they were not scored.

        Raises:
            RecipeError: see above.
        """
        if getattr(self.make_rule(), "phrase_weight", 0) and not scored:
            raise RecipeError("[pair] phrase_weight: wants a build with score.phrases = true")

    def check_calibration(self, calibration: Calibration, matcher: Mapping[str, str]) -> None:
        """Refuse a calibration that was fitted to something else.

        Args:
            calibration: the one of these settings.
            matcher: identity of the model that gives the scores.

        Raises:
            RecipeError: it is another rule's, or another matcher's.
        """
        if dict(calibration.rule) != self.rule_table():
            raise RecipeError(
                f"[pair] calibration {self.calibration!r} is of {_in_words(calibration.rule)}, not "
                f"of {_in_words(self.rule_table())}; fit one with glit bench pairs"
            )
        if dict(calibration.matcher) != dict(matcher):
            raise RecipeError(
                f"[pair] calibration {self.calibration!r} is for scores of the matcher "
                f"{calibration.matcher.get('name')!r} (revision "
                f"{calibration.matcher.get('revision')!r}), not for those of "
                f"{matcher.get('name')!r} ({matcher.get('revision')!r}); fit one with "
                "glit bench pairs"
            )


def _in_words(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in table.items())


class PairStage(Stage):
    """Pairs of every sample, best first."""

    name = "pair"
    version = 1
    needs = ("score",)
    config = PairConfig
    columns = (("pairs", pa.list_(PAIR)),)

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    @classmethod
    def check(cls, plan: Plan) -> None:
        """See :class:`Step`."""
        config, scored = plan.config(PairConfig), plan.config(ScoreConfig)
        config.check_phrases(scored=scored.phrases)
        if plan.calibration is not None:
            config.check_calibration(plan.calibration, plan.models["matcher"].identity())

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        """See :class:`Step`."""
        return cls.identity_of(plan.config(PairConfig), plan.calibration)

    @classmethod
    def identity_of(cls, config: PairConfig, calibration: Calibration | None) -> Mapping[str, Any]:
        """What decides the pairs beside the table: the calibration, the version of the rule."""
        version = getattr(type(config.make_rule()), "version", 1)
        return {
            **({} if calibration is None else {"calibration": calibration.as_dict()}),
            **({} if version == 1 else {"rule_version": version}),
        }

    @classmethod
    def open(cls, plan: Plan) -> PairStage:
        """See :class:`Stage`."""
        return cls(plan.config(PairConfig).make_pairing(plan.calibration))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        """See :class:`Stage`."""
        for sample in samples:
            assert sample.scores is not None and sample.regions is not None
            yield dataclasses.replace(sample, pairs=self._pairing(sample.scores, sample.regions))

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        """See :class:`Stage`."""
        return {"pairs": [rows.pair_row(pair) for pair in sample.pairs or ()]}

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        """See :class:`Stage`."""
        return dataclasses.replace(sample, pairs=tuple(map(rows.pair, row["pairs"])))
