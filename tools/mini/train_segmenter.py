"""Train the mini segmenter, a small segment-anything model, on procedural scenes.

``python -m tools.mini.train_segmenter --run build/mini/segmenter``

Each picture is encoded once and asked about several points: on objects and on the background,
whose mask is everything that is no object.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import SamConfig

from glit.bench.lism_flism.published_sam import build_published
from glit.importers.sam import DECODER_NORM_EPS, sam_model, sam_processor, sam_weights
from tools.mini.crops import to_tensor
from tools.mini.heads import DenseHead, grid_points, sine_positions
from tools.mini.loop import LossAndMetrics, Training, TrainSettings, run_trainer
from tools.mini.pool import IMAGE_PX, MAX_OBJECTS, fresh_scenes, painted
from tools.mini.save import NORMALISATION, save_model

DEFAULTS = TrainSettings(steps=3000, lr=1.0e-3, warmup=150)

_SIZES = {"image_size": IMAGE_PX, "patch_size": 8}
CONFIG = SamConfig(
    vision_config={
        **_SIZES,
        "hidden_size": 160,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "global_attn_indexes": [],
        "window_size": 0,
        "use_rel_pos": False,
        "output_channels": 128,
        "num_pos_feats": 64,
    },
    prompt_encoder_config={**_SIZES, "hidden_size": 128},
    mask_decoder_config={
        "hidden_size": 128,
        "mlp_dim": 256,
        "num_attention_heads": 4,
        "iou_head_hidden_dim": 128,
        "layer_norm_eps": DECODER_NORM_EPS,
    },
)
_BATCH = 16
_POINTS = 4
_BACKGROUND_POINTS = 1
_LOW_RES = 2
"""Pixels of the picture per pixel of the decoder's masks."""


class SegmenterTraining(Training):
    """The model and the head that only training needs."""

    def __init__(self) -> None:
        super().__init__()
        vision: Any = CONFIG.vision_config
        self.sam = build_published(CONFIG)
        self.dense = DenseHead(vision.output_channels)
        side = vision.image_size // vision.patch_size
        codes = 0.5 * sine_positions(grid_points(side), vision.hidden_size)
        positions = self.sam.image_encoder.pos_embed
        assert positions is not None
        with torch.no_grad():
            positions[0] = codes.view(side, side, -1)

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Masks at a few points of every picture, attributes of every patch."""
        batch = painted(fresh_scenes(rng, _BATCH, max_objects=MAX_OBJECTS))
        ids = batch.object_ids
        drawn = [draw_points(picture, rng) for picture in ids]
        points = torch.from_numpy(np.stack([p for p, _ in drawn]))
        wanted = np.stack([k for _, k in drawn])
        full = torch.from_numpy(ids[:, None] == wanted[:, :, None, None]).float()
        targets = functional.avg_pool2d(full, _LOW_RES).flatten(0, 1)
        embeddings = self.sam.image_encoder(to_tensor(batch.pixels))
        logits, ious = self.masks(embeddings, points)
        loss, iou = mask_loss(logits.flatten(0, 1), targets, ious.flatten(0, 1))
        patch = self.sam.image_encoder.img_size // embeddings.shape[-1]
        at_patches = ids[:, patch // 2 :: patch, patch // 2 :: patch].reshape(_BATCH, -1)
        dense, metrics = self.dense(
            embeddings.flatten(2).transpose(1, 2),
            torch.from_numpy(at_patches.astype(np.int64)),
            torch.from_numpy(batch.attributes),
        )
        on_objects = torch.from_numpy(wanted.reshape(-1) > 0)
        result = {
            "iou": float(iou[on_objects].mean()),
            "background_iou": float(iou[~on_objects].mean()),
            "patch_shape": metrics["patch_shape"],
        }
        return loss + 0.1 * dense, result

    def export(self, folder: Path) -> None:
        """A SamModel with the paper's thresholds; ``fit_thresholds`` fits them."""
        save_model(sam_model(CONFIG, sam_weights(self.sam.state_dict())), folder)
        sam_processor(CONFIG, **NORMALISATION).save_pretrained(folder)

    def masks(self, embeddings_BCHW: Tensor, points_BP2: Tensor) -> tuple[Tensor, Tensor]:
        """Mask logits ``[B, P, 4, 64, 64]`` and predicted IoUs ``[B, P, 4]``.

        The published decoder takes one picture with many prompts; the same parts run here on many
        pictures with many prompts each.
        """
        batch, points = points_BP2.shape[:2]
        prompts, decoder = self.sam.prompt_encoder, self.sam.mask_decoder
        flat = points_BP2.flatten(0, 1)[:, None]
        with torch.autocast("cpu", enabled=False):  # bf16 is too coarse for coordinates
            sparse, dense = prompts((flat, torch.ones(flat.shape[:2])), None, None)
            positions = prompts.get_dense_pe()
        own = torch.cat([decoder.iou_token.weight, decoder.mask_tokens.weight])
        tokens = torch.cat([own.expand(len(flat), -1, -1), sparse], dim=1)
        source = embeddings_BCHW.repeat_interleave(points, dim=0) + dense
        places = positions.expand(len(flat), -1, -1, -1)
        answered, image = decoder.transformer(source, places, tokens)
        count = decoder.num_mask_tokens
        upscaled = decoder.output_upscaling(image.transpose(1, 2).view_as(source))
        filters = torch.stack(
            [mlp(answered[:, 1 + i]) for i, mlp in enumerate(decoder.output_hypernetworks_mlps)],
            dim=1,
        )
        logits = filters @ upscaled.flatten(2)
        ious = decoder.iou_prediction_head(answered[:, 0])
        return (
            logits.view(batch, points, count, *upscaled.shape[-2:]),
            ious.view(batch, points, count),
        )


def draw_points(object_ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on random objects and on the background, and the id each lies on.

    :param object_ids: uint8 ``[H, W]``
    :returns: float32 ``[P, 2]`` (x, y in pixels) and int64 ``[P]``
    """
    ids = np.concatenate(
        [
            rng.integers(1, object_ids.max() + 1, size=_POINTS - _BACKGROUND_POINTS),
            np.zeros(_BACKGROUND_POINTS, dtype=np.int64),
        ]
    )
    points = np.zeros((_POINTS, 2), dtype=np.float32)
    for i, wanted in enumerate(ids):
        inside = np.flatnonzero(object_ids == wanted)
        y, x = divmod(int(inside[rng.integers(len(inside))]), object_ids.shape[1])
        points[i] = x, y
    return points, ids


def mask_loss(logits: Tensor, targets: Tensor, ious: Tensor) -> tuple[Tensor, Tensor]:
    """Balanced cross-entropy + dice + squared error of the predicted IoU; and the true IoUs.

    Every output learns the same mask: a point in these scenes is never ambiguous.

    :param logits: ``[N, 4, h, w]``
    :param targets: ``[N, h, w]``, the share of each pixel the mask covers
    """
    logits = logits.float()
    wanted = targets[:, None].expand_as(logits)
    share = targets.mean(dim=(1, 2)).clamp(min=0.02)[:, None, None, None]
    weight = wanted * (0.5 / share) + (1 - wanted) * (0.5 / (1 - share).clamp(min=0.02))
    entropy = functional.binary_cross_entropy_with_logits(logits, wanted, weight=weight)
    soft = logits.sigmoid()
    shared = (soft * wanted).sum(dim=(2, 3))
    dice = 1 - (2 * shared + 1) / (soft.sum(dim=(2, 3)) + wanted.sum(dim=(2, 3)) + 1)
    with torch.no_grad():
        said, true = logits > 0, wanted > 0.5
        iou = (said & true).sum(dim=(2, 3)) / (said | true).sum(dim=(2, 3)).clamp(min=1)
    return entropy + dice.mean() + functional.mse_loss(ious.float(), iou), iou


def main() -> None:
    """Train and export; run again to resume."""
    parser = argparse.ArgumentParser(description="train the mini segmenter")
    run_trainer(parser, DEFAULTS, lambda _: SegmenterTraining())


if __name__ == "__main__":
    main()
