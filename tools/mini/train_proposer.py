"""Train the mini proposer, a small YOLOS, on procedural scenes.

``python -m tools.mini.train_proposer --run build/mini/proposer``

One detection token stands for each of the nine places a scene knows. The tokens and the patches
start with the same sine-cosine positions, so each token begins by looking near its place; and as
a place holds at most one object, token and truth are matched by place instead of by a search
(DETR's Hungarian matching), which makes training steady and short.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoModelForObjectDetection,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessor,
)

from tools.mini.crops import to_tensor
from tools.mini.heads import DenseHead, box_loss, grid_points, sine_positions
from tools.mini.loop import LossAndMetrics, Training, TrainSettings, run_trainer
from tools.mini.pool import IMAGE_PX, PATCH_PX, Painted, load_pool
from tools.mini.save import NORMALISATION, SQUARE, save_model

DEFAULTS = TrainSettings(steps=1400, lr=1.0e-3, warmup=150)

_BATCH = 96
_PLACES = 9
_OBJECT, _NOTHING = 0, 1


def proposer_config() -> YolosConfig:
    """192 wide, 6 layers, patch 16 on 128 px, nine detection tokens, one class."""
    return YolosConfig(
        image_size=[IMAGE_PX, IMAGE_PX],
        patch_size=PATCH_PX,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_detection_tokens=_PLACES,
        use_mid_position_embeddings=False,
        id2label={0: "object"},
        label2id={"object": 0},
    )


class ProposerTraining(Training):
    """The model and the head that only training needs."""

    def __init__(self, pool: Painted) -> None:
        super().__init__()
        self.pool, config = pool, proposer_config()
        self.yolos: YolosForObjectDetection = AutoModelForObjectDetection.from_config(
            config, attn_implementation="eager"
        )
        self.dense = DenseHead(config.hidden_size)
        positions = self.yolos.vit.embeddings.position_embeddings
        codes = [grid_points(IMAGE_PX // PATCH_PX), grid_points(3)]
        with torch.no_grad():
            positions[0, 1:] = 0.5 * sine_positions(torch.cat(codes), config.hidden_size)

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Presence and box of every place, attributes of every patch."""
        pool = self.pool
        indices = np.sort(rng.choice(len(pool), size=_BATCH, replace=False))
        tokens = self.yolos.vit(pixel_values=to_tensor(pool.pixels[indices])).last_hidden_state
        detection = tokens[:, -_PLACES:]
        loss, metrics = detection_loss(
            self.yolos.class_labels_classifier(detection),
            self.yolos.bbox_predictor(detection).sigmoid(),
            targets_by_place(pool, indices),
        )
        dense, patch_metrics = self.dense(
            tokens[:, 1:-_PLACES],
            torch.from_numpy(pool.patch_objects[indices]),
            torch.from_numpy(pool.attributes[indices]),
        )
        metrics["patch_shape"] = patch_metrics["patch_shape"]
        return loss + 0.2 * dense, metrics

    def export(self, folder: Path) -> None:
        """``YolosForObjectDetection`` and ``YolosImageProcessor`` files."""
        save_model(self.yolos, folder)
        YolosImageProcessor(size=SQUARE, do_pad=False, **NORMALISATION).save_pretrained(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionTargets:
    """Truth of a batch by place."""

    present: Tensor
    """bool ``[B, 9]``."""
    boxes: Tensor
    """float32 ``[B, 9, 4]``: x0, y0, x1, y1 as fractions; undefined where nothing is."""


def targets_by_place(pool: Painted, indices: np.ndarray) -> DetectionTargets:
    """Boxes of the scenes' objects, each in the row of its place."""
    present = np.zeros((len(indices), _PLACES), dtype=bool)
    boxes = np.zeros((len(indices), _PLACES, 4), dtype=np.float32)
    rows, slots = np.nonzero(pool.places[indices] >= 0)
    places = pool.places[indices][rows, slots]
    present[rows, places] = True
    boxes[rows, places] = pool.boxes[indices][rows, slots] / IMAGE_PX
    return DetectionTargets(present=torch.from_numpy(present), boxes=torch.from_numpy(boxes))


def detection_loss(
    logits_BQ2: Tensor, centre_boxes_BQ4: Tensor, targets: DetectionTargets
) -> LossAndMetrics:
    """Cross-entropy of presence, and the loss of the boxes that exist."""
    labels = torch.where(targets.present, _OBJECT, _NOTHING)
    presence = functional.cross_entropy(logits_BQ2.float().flatten(0, 1), labels.flatten())
    found, wanted = centre_boxes_BQ4.float()[targets.present], targets.boxes[targets.present]
    boxes, giou = box_loss(found, wanted)
    called = logits_BQ2.argmax(-1) == _OBJECT
    metrics = {
        "recall": float(called[targets.present].float().mean()),
        "precision": float(targets.present[called].float().mean()) if called.any() else 0.0,
        "giou": giou,
    }
    return 2 * presence + boxes, metrics


def main() -> None:
    """Train and export; run again to resume."""
    parser = argparse.ArgumentParser(description="train the mini proposer")
    run_trainer(parser, DEFAULTS, lambda _: ProposerTraining(load_pool()))


if __name__ == "__main__":
    main()
