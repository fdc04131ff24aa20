"""Fit a calibration of a rule to a person's verdicts, and measure its quality.

Verdicts are of the region that was shown. A rule that chooses another region for the sentence is
judged by them only where the verdict holds for every region (``none``, ``false``) or the regions
overlap with an IoU of 0.5 or more; other sentences are left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.data.geometry import iou
from glit.data.rows import pair_row, region_row
from glit.dataset.by_hand import by_hand_of
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import scores_of
from glit.dataset.row import Row
from glit.errors import InputError, RecipeError
from glit.review.corrections.precision import Judged, Precision, precision
from glit.review.label.verdicts import JudgedPair
from glit.rules.calibration import Calibration
from glit.rules.evidence import (
    AGREEMENT,
    LOGPROBS,
    PAIR_EVIDENCE,
    SUPPORT_EVIDENCE,
    Evidence,
    pair_evidence,
    stacked,
    support_evidence,
)
from glit.rules.logistic import Logistic, fit
from glit.rules.metrics import average_precision, calibration_error, removed_at
from glit.stages.pair import PairConfig

FEWEST = 20
"""Judged pairs below which nothing is fitted."""
_FOLDS = 5
_SAME_IOU = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of probabilities on held-out cases (five folds)."""

    cases: int
    right: int
    average_precision: float
    removed: float
    """Wrong cases that fall away while 95 % of the right ones are kept."""
    calibration_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A fitted calibration and its quality."""

    calibration: Calibration
    pairs: Quality
    sentences: Quality | None
    """None if no sentence, or every sentence, was judged false."""
    left_out: int
    """Verdicts on a region that the rule does not choose, which tell nothing of the one it does."""
    precision: Precision
    """The share of the dataset's own pairs that were called right."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Case:
    pair: dict[str, float]
    support: dict[str, float]
    right: bool | None
    true: bool


def calibrate(
    dataset: Dataset, verdicts: Mapping[tuple[str, int], JudgedPair], config: PairConfig
) -> CalibrationReport:
    """The work of :func:`glit.api.calibrate`, with verdicts by sample and sentence, and the rule.

    Raises:
        InputError: verdicts are of other samples, or too few.
        RecipeError: all pairs are right, or all wrong.
    """
    cases = list(_cases(dataset, verdicts, config))
    judged = [case for case in cases if case.right is not None]
    if len(judged) < FEWEST:
        raise InputError(
            f"{len(judged)} verdicts concern pairs of this dataset and rule; want {FEWEST} or more"
        )
    names = [*PAIR_EVIDENCE, *({AGREEMENT} & set(judged[0].pair))]
    pair, quality = _fitted([c.pair for c in judged], [bool(c.right) for c in judged], names)
    support, of_sentences = _support(cases)
    calibration = Calibration(
        rule=config.rule_table(),
        scores=scores_of(dataset.manifest),
        pair=pair,
        support=support,
        fitted_on={"pairs": quality.cases, "right": quality.right, "where": "verdicts of a person"},
    )
    return CalibrationReport(
        calibration=calibration,
        pairs=quality,
        sentences=of_sentences,
        left_out=len(cases) - len(judged),
        precision=precision(_judged(dataset, verdicts)),
    )


def _judged(dataset: Dataset, verdicts: Mapping[tuple[str, int], JudgedPair]) -> Iterator[Judged]:
    """The dataset's pairs on whose region there is a verdict."""
    samples = {sample_id for sample_id, _ in verdicts}
    for row in dataset.rows(images=False):
        by_hand = {each["sentence"] for each in by_hand_of(row.extra)}
        for pair in row.pairs if row.sample_id in samples else ():
            if pair.sentence in by_hand:
                continue
            said = verdicts.get((row.sample_id, pair.sentence))
            if said is not None and said.region == pair.region and not pair.global_wins:
                region = row.regions[pair.region]
                yield pair_row(pair), region_row(region), said.verdict == "right"


def _cases(
    dataset: Dataset, verdicts: Mapping[tuple[str, int], JudgedPair], config: PairConfig
) -> Sequence[_Case]:
    rule = config.make_rule()
    samples = {sample_id for sample_id, _ in verdicts}
    found: list[_Case] = []
    for row in dataset.rows(images=False):
        if row.sample_id not in samples:
            continue
        samples.discard(row.sample_id)
        value = rule(row.scores, row.regions).value
        evidence = pair_evidence(value, row.scores, row.regions)
        support = support_evidence(row.scores, row.sentences)
        for number in range(len(row.sentences)):
            said = verdicts.get((row.sample_id, number))
            if said is not None:
                found.append(
                    _Case(
                        pair=_at(evidence, number),
                        support=_at(support, number),
                        right=_is_right(row, said, int(value[number].argmax())),
                        true=said.verdict != "false",
                    )
                )
    if samples:
        raise InputError(
            f"{len(samples)} samples of the verdicts are not in {dataset.path} (first: "
            f"{min(samples)}); name the dataset whose pairs were judged"
        )
    return found


def _is_right(row: Row, said: JudgedPair, chosen: int) -> bool | None:
    if said.verdict in ("none", "false"):
        return False
    if said.region >= len(row.regions):
        raise InputError(f"{row.sample_id}: the verdict is of a region that it does not have")
    boxes = [np.array([row.regions[k].box.xyxy]) for k in (chosen, said.region)]
    if float(iou(boxes[0], boxes[1])[0, 0]) < _SAME_IOU:
        return None
    return said.verdict == "right"


def _support(cases: Sequence[_Case]) -> tuple[Logistic | None, Quality | None]:
    true = [case.true for case in cases]
    if all(true) or not any(true):
        return None, None
    names: list[str] = list(SUPPORT_EVIDENCE)
    if all(np.isfinite(case.support[name]) for case in cases for name in LOGPROBS):
        names += LOGPROBS
    return _fitted([case.support for case in cases], true, names)


def _fitted(
    cases: Sequence[Mapping[str, float]], right: Sequence[bool], names: Sequence[str]
) -> tuple[Logistic, Quality]:
    """The regression over all cases; its quality from others over four fifths each."""
    as_arrays: list[dict[str, Any]] = [
        {name: np.array([case[name]]) for name in names} for case in cases
    ]
    numbers, target = stacked(as_arrays, names), np.array(right)
    fold = np.random.default_rng(0).permutation(len(target)) % _FOLDS
    said = np.zeros(len(target), dtype=np.float32)
    for number in range(_FOLDS):
        held = fold == number
        try:
            made = fit(names, numbers[~held], target[~held])
        except RecipeError:  # one class alone is left: the share is all that is known
            said[held] = target[~held].mean()
            continue
        said[held] = made(dict(zip(names, numbers[held].T, strict=True)))
    quality = Quality(
        cases=len(target),
        right=int(target.sum()),
        average_precision=average_precision(said, target),
        removed=removed_at(said, target),
        calibration_error=calibration_error(said, target),
    )
    return fit(names, numbers, target), quality


def _at(evidence: Evidence, number: int) -> dict[str, float]:
    return {name: float(values[number]) for name, values in evidence.items()}
