"""Pair: a rule makes pairs of stored cosines. No model: another rule takes seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from glit.data import rows
from glit.data.records import Sample
from glit.data.schema import PAIR
from glit.errors import RecipeError
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.matchers.clip import own_scale
from glit.models.weights import Resolved
from glit.plain import limited
from glit.recipes.config import Choice, RecipeTable, as_table, file_name, identity, require_value
from glit.rules import RULES
from glit.rules.calibration import Calibration, identity_of_scores
from glit.rules.evidence import LOGPROBS
from glit.rules.pairing import Pairing
from glit.rules.protocol import OPENAI_SCALE, Rule, Weighed
from glit.stages.base import Outcome, Stage
from glit.stages.caption import CaptionConfig
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.stages.score import ScoreConfig, is_from_file


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig(RecipeTable):
    """The rule that assigns a region to each sentence."""

    table: ClassVar = "pair"
    rule: str = "argmax"
    """``argmax`` is FLISM's rule; ``lism`` is LISM's, where a sentence that matches the whole image
    better than any region gets none. ``centred``, ``dual-softmax``, ``sinkhorn`` and ``mutual`` are
    described in docs/pairs.md."""
    calibration: str = file_name("")
    """The calibration that gives every pair a probability: the name of a built-in one, or a
    file."""
    min_probability: float = limited(0.0, least=0, below=1)
    """A sentence whose best pair is less probable than this gets no region; above 0 needs a
    calibration."""
    min_support: float = limited(0.0, least=0, below=1)
    """A sentence that is true of the image with a lower probability than this gets no region; above
    0 needs a calibration with support."""
    options: Any = None
    """Keys of the rule's own."""
    follows: ClassVar[str] = "propose"
    choice: ClassVar[Choice] = Choice(key="rule", options=lambda: dict(RULES))

    def check(self) -> None:
        for name in ("min_probability", "min_support"):
            require_value(
                not getattr(self, name) or bool(self.calibration),
                f"[pair] {name}: wants pair.calibration, which gives the probabilities",
            )

    def with_scale(self, scale: float | None) -> PairConfig:
        """With the matcher's own scale, where the rule wants one and none was given."""
        rule = self.make_rule()
        wanted = scale or OPENAI_SCALE
        if not isinstance(rule, Weighed) or rule.logit_scale is not None:
            return self
        if self.options is None and wanted == OPENAI_SCALE:
            return self  # as it always was
        return dataclasses.replace(self, options=dataclasses.replace(rule, logit_scale=wanted))

    def make_rule(self) -> Rule:
        """The rule with its options."""
        return self.options or RULES[self.rule]()

    def make_pairing(self, calibration: Calibration | None) -> Pairing:
        """The rule, calibrated."""
        return Pairing(
            rule=self.make_rule(),
            calibration=calibration,
            min_probability=self.min_probability,
            min_support=self.min_support,
        )

    def rule_table(self) -> dict[str, Any]:
        """The rule and all its options, by which a calibration knows it."""
        rule = self.make_rule()
        scale = {"logit_scale": rule.scale} if isinstance(rule, Weighed) else {}
        return {"rule": self.rule, **identity(rule), **scale, **_rule_version(rule)}

    def check_scored(self, *, phrases: bool, grounded: bool, compared: bool) -> None:
        """Refuse head phrases where they were not scored, a grounder where none was asked, and
        rules that choose among cosines where boxes came with their sentences.

        Raises:
            RecipeError: see above.
        """
        if not compared and self.rule != "lism":
            raise RecipeError(
                f"[pair] rule = {self.rule!r} compares cosines, but these boxes came with their "
                "sentences, and one without a box belongs to the whole image; use rule = 'lism'"
            )
        rule = self.make_rule()
        if getattr(rule, "grounding_weight", 0) and not grounded:
            raise RecipeError(
                "[pair] grounding_weight: wants a build with ground.enabled = true; without, add "
                "--set pair.grounding_weight=0"
            )
        if getattr(rule, "phrase_weight", 0) and not phrases:
            raise RecipeError(
                "[pair] phrase_weight: wants a build with score.phrases = true; without, add "
                "--set pair.phrase_weight=0"
            )

    def check_calibration(self, calibration: Calibration, scores: Mapping[str, Any]) -> None:
        """Refuse a calibration that was fitted to something else.

        Args:
            calibration: the one of these settings.
            scores: what gives the scores; see :func:`identity_of_scores`.

        Raises:
            RecipeError: it is another rule's, or for other scores, or has no support to ask for.
        """
        if self.min_support and calibration.support is None:
            raise RecipeError(
                f"[pair] min_support: the calibration {self.calibration!r} says nothing of "
                "sentences; fit one with glit pairs calibrate"
            )
        if dict(calibration.rule) != self.rule_table():
            raise RecipeError(
                f"[pair] calibration {self.calibration!r} is of {_in_words(calibration.rule)}, not "
                f"of {_in_words(self.rule_table())}; fit one with glit pairs calibrate"
            )
        if _without_licence(calibration.scores) != _without_licence(scores):
            raise RecipeError(
                f"[pair] calibration {self.calibration!r} is for scores of the matcher "
                f"{_in_words(calibration.scores)}, not for those of {_in_words(scores)}; fit one "
                "with glit pairs calibrate"
            )


def _rule_version(rule: Rule) -> dict[str, int]:
    version = getattr(type(rule), "version", 1)
    return {} if version == 1 else {"rule_version": version}


def _without_licence(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name != "licence"}


def _check_logprobs(calibration: Calibration, plan: Plan) -> None:
    """Refuse a calibration that asks how sure the captioner was, where it does not say."""
    asked = calibration.support is not None and set(LOGPROBS) & set(calibration.support.evidence)
    caption = plan.config(CaptionConfig)
    if asked and not CAPTIONERS[caption.backend].tells_logprobs:
        raise RecipeError(
            f"[pair] calibration {plan.config(PairConfig).calibration!r}: its support asks how "
            f"sure the captioner was, which caption.backend = {caption.backend!r} does not say"
        )


def _in_words(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value!r}" for key, value in table.items())


class PairStage(Stage):
    """Pairs of every sample, best first."""

    name = "pair"
    version = 2
    reads = ("sentences", "regions", "scores")
    makes = ("pairs",)
    config = PairConfig
    columns = (("pairs", pa.list_(PAIR)),)
    as_rows = (rows.pair_row, rows.pair)

    def __init__(self, pairing: Pairing) -> None:
        self._pairing = pairing

    @classmethod
    def with_models(cls, config: PairConfig, models: Mapping[str, Resolved]) -> PairConfig:
        return config.with_scale(own_scale(models.get("matcher")))

    @classmethod
    def check(cls, plan: Plan) -> None:
        config, scored = plan.config(PairConfig), plan.config(ScoreConfig)
        compared = not is_from_file(scored.backend)
        grounded = "ground" in plan.flow.stages and compared
        config.check_scored(phrases=scored.phrases, grounded=grounded, compared=compared)
        if plan.calibration is not None:
            models = {role: model.identity() for role, model in plan.models.items()}
            config.check_calibration(plan.calibration, identity_of_scores(models, as_table(scored)))
            _check_logprobs(plan.calibration, plan)

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        return cls.identity_of(plan.config(PairConfig), plan.calibration)

    @classmethod
    def identity_of(cls, config: PairConfig, calibration: Calibration | None) -> Mapping[str, Any]:
        """Return the further inputs that decide the pairs: the calibration, the version of the
        rule."""
        return {
            **({} if calibration is None else {"calibration": calibration.as_dict()}),
            **_rule_version(config.make_rule()),
        }

    @classmethod
    def open(cls, plan: Plan) -> PairStage:
        return cls(plan.config(PairConfig).make_pairing(plan.calibration))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            scores, regions, sentences = sample.scores, sample.regions, sample.sentences
            assert scores is not None and regions is not None and sentences is not None
            yield dataclasses.replace(sample, pairs=self._pairing(scores, regions, sentences))
