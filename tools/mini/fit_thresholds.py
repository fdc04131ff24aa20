"""Fit the segmenter's automatic-mask thresholds on validation scenes and write them beside it.

``python -m tools.mini.fit_thresholds FOLDER``
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torchvision.ops import nms

from glit.backends.sam.model import MaskThresholds, load_sam, write_thresholds
from glit.bench.lism_flism.published_sam import published_sam
from glit.models.weights import resolve
from tools.mini.evaluate import (
    VALIDATION_SEED,
    Sample,
    automatic_boxes,
    inner_boxes,
    mask_generator,
    recall_and_precision,
    samples,
)

_NUM_SCENES = 80
_START = MaskThresholds(points_per_side=10, stability_score_offset=1.0, box_nms_thresh=0.7)
_PRED_IOU = (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
_STABILITY = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
_BOX_NMS = (0.3, 0.5, 0.7)
_RECALL_SLACK = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Every mask a model answers in one picture, before any threshold; M masks."""

    sample: Sample
    boxes: np.ndarray
    """float64 ``[M, 4]``."""
    predicted_iou: np.ndarray
    stability: np.ndarray

    def kept(self, thresholds: MaskThresholds) -> np.ndarray:
        """Boxes that pass the thresholds, as segment-anything's generator filters: ``[N, 4]``."""
        good = self.predicted_iou > thresholds.pred_iou_thresh
        good &= self.stability >= thresholds.stability_score_thresh
        boxes, scores = self.boxes[good], self.predicted_iou[good]
        order = nms(torch.tensor(boxes), torch.tensor(scores), thresholds.box_nms_thresh)
        return inner_boxes(boxes[order.numpy()], self.sample)


def collect(folder: Path, tests: list[Sample]) -> list[Candidates]:
    """All masks of all pictures."""
    everything = replace(
        _START, pred_iou_thresh=0.0, stability_score_thresh=0.0, box_nms_thresh=1.0
    )
    generator = mask_generator(published_sam(load_sam(resolve(str(folder)))), everything)
    result: list[Candidates] = []
    for sample in tests:
        records = generator.generate(sample.rendering.pixels)
        result.append(
            Candidates(
                sample=sample,
                boxes=automatic_boxes(records),
                predicted_iou=np.array([r["predicted_iou"] for r in records]),
                stability=np.array([r["stability_score"] for r in records]),
            )
        )
    return result


def fit(folder: Path) -> MaskThresholds:
    """The thresholds with the best recall; among those within 0.03 of it, the best precision."""
    pictures = collect(folder, samples(_NUM_SCENES, seed=VALIDATION_SEED))
    tried: list[tuple[float, float, MaskThresholds]] = []
    for iou, stability, overlap in itertools.product(_PRED_IOU, _STABILITY, _BOX_NMS):
        thresholds = replace(
            _START,
            pred_iou_thresh=iou,
            stability_score_thresh=stability,
            box_nms_thresh=overlap,
        )
        found = ((picture.kept(thresholds), picture.sample) for picture in pictures)
        tried.append((*recall_and_precision(found), thresholds))
    best = max(recall for recall, _, _ in tried)
    recall, precision, chosen = max(
        (t for t in tried if t[0] >= best - _RECALL_SLACK), key=lambda t: t[1]
    )
    print(f"recall {recall:.3f} precision {precision:.3f} on {_NUM_SCENES} validation scenes")
    return chosen


def main() -> None:
    """Fit and save."""
    parser = argparse.ArgumentParser(description="fit the segmenter's automatic-mask thresholds")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    thresholds = fit(folder)
    write_thresholds(thresholds, folder)
    print(thresholds)


if __name__ == "__main__":
    main()
