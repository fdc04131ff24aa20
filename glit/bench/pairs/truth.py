"""Which pairs of a dataset of scenes are right.

A sentence about an object is right with every region that overlaps the object's box with an IoU of
0.5 or more. Any other pair is wrong; a sentence about the background or the light is *ambient*: not
false, but it tells of nothing local.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Bool

from glit.data.geometry import iou
from glit.data.records import Region, Scores, Sentence
from glit.dataset.reader import Dataset
from glit.errors import InputError

RIGHT_IOU = 0.5
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
