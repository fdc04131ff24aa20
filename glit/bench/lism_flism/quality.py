"""How good the choices are where the truth is known: scenes with their own captions.

A sentence about an object is *right* when the region chosen for it overlaps the object's box with
an IoU of 0.5 or more. LISM gives no region where the whole image matches best; such a sentence
is not right, and counts as a global win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.bench.lism_flism.inputs import Truth
from glit.bench.lism_flism.job import XYXY
from glit.data.geometry import iou
from glit.data.records import Sample

RIGHT_IOU = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Choices of one column over all scenes."""

    num_object_sentences: int
    right: float
    """Share of the sentences about an object whose chosen region is the right one."""
    mean_iou: float
    """Of the chosen region with the true box, over the object sentences that got a region."""
    global_wins: float
    """Share of all sentences that the whole image wins."""
    global_wins_object: float
    """The same among the sentences about an object."""


def judge(
    samples: Sequence[Sample],
    choices: Sequence[Sequence[XYXY | None]],
    truth: Sequence[Truth],
) -> Quality:
    """Compare chosen regions with the truth.

    Args:
        samples: with sentences.
        choices: for each sample the chosen box of each sentence; None where there is none.
        truth: for each sample what its sentences tell of.
    """
    overlaps: list[float] = []
    objects = wins = total = 0
    for sample, boxes, true in zip(samples, choices, truth, strict=True):
        starts = [sentence.char_start for sentence in sample.sentences or ()]
        chosen = dict(zip(starts, boxes, strict=True))
        total += len(boxes)
        wins += sum(box is None for box in boxes)
        objects += len(true.boxes)
        for start, wanted in true.boxes.items():
            box = chosen.get(start)
            if box is not None:
                overlaps.append(
                    float(iou(np.array([box], dtype=float), np.array([wanted], dtype=float))[0, 0])
                )
    return Quality(
        num_object_sentences=objects,
        right=sum(overlap >= RIGHT_IOU for overlap in overlaps) / max(1, objects),
        mean_iou=float(np.mean(overlaps)) if overlaps else 0.0,
        global_wins=wins / max(1, total),
        global_wins_object=(objects - len(overlaps)) / max(1, objects),
    )
