"""Fit the segmenter's automatic-mask thresholds on validation scenes and write them beside it.

``python -m tools.mini.fit_thresholds FOLDER``
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import torch

from glit.backends.sam_model import MaskThresholds, load_sam, save_sam
from tools.mini.evaluate import (
    VALIDATION_SEED,
    Sample,
    automatic_boxes,
    inner_boxes,
    mask_generator,
    num_matched,
    samples,
)

_NUM_SCENES = 40
_START = MaskThresholds(points_per_side=10, stability_score_offset=1.0, box_nms_thresh=0.7)
_PRED_IOU = (0.5, 0.6, 0.7, 0.8)
_STABILITY = (0.5, 0.65, 0.8, 0.9)


def quality(folder: Path, thresholds: MaskThresholds, tests: list[Sample]) -> tuple[float, float]:
    """Recall and precision of automatic boxes at IoU 0.5 under some thresholds."""
    generator = mask_generator(load_sam(folder)[0], thresholds)
    matched = found = true = 0
    for sample in tests:
        boxes = inner_boxes(automatic_boxes(generator.generate(sample.rendering.pixels)), sample)
        matched += num_matched(boxes, sample.boxes())
        found += len(boxes)
        true += len(sample.scene.objects)
    return matched / true, matched / max(1, found)


def fit(folder: Path) -> MaskThresholds:
    """The thresholds with the best recall; among those within 0.01 of it, the best precision."""
    tests = samples(_NUM_SCENES, seed=VALIDATION_SEED)
    tried: list[tuple[float, float, MaskThresholds]] = []
    for iou, stability in itertools.product(_PRED_IOU, _STABILITY):
        thresholds = replace(_START, pred_iou_thresh=iou, stability_score_thresh=stability)
        recall, precision = quality(folder, thresholds, tests)
        print(f"iou {iou} stability {stability}: recall {recall:.3f} precision {precision:.3f}")
        tried.append((recall, precision, thresholds))
    best = max(recall for recall, _, _ in tried)
    return max((t for t in tried if t[0] >= best - 0.01), key=lambda t: t[1])[2]


def main() -> None:
    """Fit and save."""
    parser = argparse.ArgumentParser(description="fit the segmenter's automatic-mask thresholds")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    thresholds = fit(folder)
    model, config, _ = load_sam(folder)
    save_sam(model, config, folder, thresholds=thresholds)
    print(thresholds)


if __name__ == "__main__":
    main()
