"""Which pairs of a dataset of scenes are right, and figures of a pairing over them.

A sentence about an object is right with every region that overlaps the object's box with an IoU of
0.5 or more. Any other pair is wrong; a sentence about the background or the light is *ambient*: not
false, but it tells of nothing local.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Bool

from glit.bench.scenes import RIGHT_IOU
from glit.data.geometry import iou
from glit.data.records import Region, Scores, Sentence
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.rules.calibration import Calibration
from glit.rules.evidence import AGREEMENT, PAIR_EVIDENCE, Evidence, pair_evidence, stacked
from glit.rules.logistic import fit
from glit.rules.metrics import average_precision, calibration_error, removed_at
from glit.rules.pairing import Pairing
from glit.rules.protocol import Rule

_AMBIENT = ("background", "light")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A sample's scores, and which of its pairs are right."""

    scores: Scores
    sentences: tuple[Sentence, ...]
    regions: tuple[Region, ...]
    right: Bool[np.ndarray, "S R"]
    ambient: Bool[np.ndarray, " S"]


def judged(dataset: Dataset, ground_truth: Path) -> Iterator[Judged]:
    """Every sample of a dataset of scenes with their own captions.

    Args:
        dataset: built from the scenes.
        ground_truth: the scenes' ``ground_truth.parquet``.

    Raises:
        InputError: a sample is not of these scenes, or has another caption.
    """
    columns = ["path", "caption", "sentences"]
    try:
        truth = {
            row["path"]: row for row in pq.read_table(ground_truth, columns=columns).to_pylist()
        }
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{ground_truth}: not the ground truth of scenes ({error})") from error
    for row in dataset.rows(images=False):
        known = truth.get(row.source_path)
        if known is None or known["caption"] != row.caption.text:
            what = "is not one of its scenes" if known is None else "has another caption than there"
            raise InputError(f"{ground_truth}: {row.source_path} {what}")
        told = {each["char_start"]: each for each in known["sentences"]}
        boxes = np.array([region.box.xyxy for region in row.regions])
        right = np.zeros(row.similarity.shape, dtype=bool)
        ambient = np.zeros(len(row.sentences), dtype=bool)
        for index, sentence in enumerate(row.sentences):
            own = told.get(sentence.char_start, {"kind": "", "box": None})
            ambient[index] = own["kind"] in _AMBIENT
            if own["box"] is not None:
                wanted = np.array([own["box"]], dtype=np.float64)
                right[index] = iou(boxes, wanted)[:, 0] >= RIGHT_IOU
        yield Judged(
            scores=row.scores,
            sentences=row.sentences,
            regions=row.regions,
            right=right,
            ambient=ambient,
        )


def measure(
    samples: Sequence[Judged], rule: Rule, calibration: Calibration | None
) -> dict[str, float | None]:
    """Figures of a rule; every sentence has a pair here, with a region or without.

    Shares of 1:

    - ``best_right``: images whose best pair is right;
    - ``average_precision``: over all pairs of all images, ranked by probability, without one by
      value;
    - ``removed``: wrong pairs that fall away while 95 % of the right ones are kept;
    - ``right``: pairs that are right;
    - ``ambient``: pairs that are wrong, but tell of background or light;
    - ``calibration_error``: over 15 bins of equal width (Guo et al. 2017, Eq. 3).
    """
    pairing = Pairing(rule=rule, calibration=calibration)
    ranks: list[float] = []
    right: list[bool] = []
    ambient: list[bool] = []
    best: list[bool] = []
    for sample in samples:
        pairs = pairing(sample.scores, sample.regions, sample.sentences)
        value = rule(sample.scores, sample.regions)
        own = [bool(sample.right[pair.sentence, pair.region]) for pair in pairs]
        for pair in pairs:
            rank = pair.probability
            if rank is None:  # those that the rule takes the region away from come last
                rank = float(value.value[pair.sentence, pair.region]) - 1e3 * pair.global_wins
            ranks.append(rank)
            ambient.append(bool(sample.ambient[pair.sentence]))
        right += own
        best.append(own[0])
    found, true = np.array(ranks), np.array(right)
    return {
        "best_right": float(np.mean(best)),
        "average_precision": average_precision(found, true),
        "removed": removed_at(found, true),
        "right": float(true.mean()),
        "ambient": float(np.mean(~true & np.array(ambient))),
        "calibration_error": None if calibration is None else calibration_error(found, true),
    }


def calibrated(
    samples: Sequence[Judged], rule: Rule, *, table: dict[str, object], scores: dict[str, Any]
) -> Calibration:
    """A calibration of a rule, fitted on samples whose right pairs are known.

    Args:
        samples: what to fit on.
        rule: whose values are calibrated.
        table: the rule and its options, as in ``[pair]``.
        scores: what gave the scores; see :func:`glit.rules.calibration.identity_of_scores`.

    Raises:
        RecipeError: all pairs are right, or all wrong.
    """
    pairs: list[Evidence] = []
    right: list[np.ndarray] = []
    for sample in samples:
        value = rule(sample.scores, sample.regions).value
        pairs.append(pair_evidence(value, sample.scores, sample.regions))
        right.append(sample.right[np.arange(len(value)), value.argmax(axis=1)])
    true = np.concatenate(right)
    names = [*PAIR_EVIDENCE, *({AGREEMENT} & set(pairs[0]))]
    return Calibration(
        rule=table,
        scores=scores,
        pair=fit(names, stacked(pairs, names), true),
        fitted_on={"pairs": len(true), "right": int(true.sum())},
    )
