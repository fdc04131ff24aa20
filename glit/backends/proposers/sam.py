"""SAM by segment-anything: automatic masks, filtered by area, as boxes (GOAL, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from glit.backends.device import pick_device, require_torch
from glit.backends.proposers.yolos import make_regions
from glit.backends.sam.model import PRESETS, MaskThresholds, build_sam, load_sam
from glit.backends.weights import Resolved
from glit.config import ProposeConfig
from glit.errors import MissingExtraError, WeightsError
from glit.images import Pixels
from glit.records import Region

LARGE = (4000, 3000)
"""Images above this width or height are shrunk before SAM sees them, as GOAL's code does."""
SHRUNK = (2048, 1536)
"""They are fitted into this."""


class SamDetector:
    """segment-anything's own ``SamAutomaticMaskGenerator`` with the thresholds of the weights.

    A mask must cover between ``min_area`` and ``max_area`` of the image; it is the mask that
    counts here, not its box. The score of a region is SAM's predicted IoU.
    """

    def __init__(self, config: ProposeConfig, model: Resolved) -> None:
        require_torch("propose.backend = 'sam'")
        try:
            from segment_anything import SamAutomaticMaskGenerator
        except ImportError as error:
            raise MissingExtraError(
                "segment-anything", extra="sam", needed_for="propose.backend = 'sam'"
            ) from error
        self._config = config
        sam, thresholds = _load(config, model)
        self.generator: Any = SamAutomaticMaskGenerator(
            sam.to(pick_device(config.device)),
            points_per_side=thresholds.points_per_side,
            pred_iou_thresh=thresholds.pred_iou_thresh,
            stability_score_thresh=thresholds.stability_score_thresh,
            stability_score_offset=thresholds.stability_score_offset,
            box_nms_thresh=thresholds.box_nms_thresh,
        )

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        """See :class:`glit.backends.protocols.Detector`; one image at a time."""
        return [self._one(image) for image in images]

    def _one(self, image: Pixels) -> list[Region]:
        shrunk = shrink_large(image)
        whole = shrunk.shape[0] * shrunk.shape[1]
        scale = np.array([image.shape[1] / shrunk.shape[1], image.shape[0] / shrunk.shape[0]] * 2)
        masks = [
            mask
            for mask in self.generator.generate(shrunk)
            if self._config.min_area <= mask["area"] / whole <= self._config.max_area
        ]
        boxes = np.array([_exclusive(mask["bbox"]) for mask in masks]).reshape(-1, 4) * scale
        scores = np.clip([mask["predicted_iou"] for mask in masks], 0, 1)
        return make_regions(boxes, scores, [""] * len(masks), image=image, source="sam")


def shrink_large(image: Pixels) -> Pixels:
    """Images wider than 4000 or higher than 3000 pixels, fitted into 2048 x 1536."""
    height, width = image.shape[:2]
    if width <= LARGE[0] and height <= LARGE[1]:
        return image
    scale = min(SHRUNK[0] / width, SHRUNK[1] / height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))


def _exclusive(xywh: list[float]) -> list[float]:
    """SAM's box, whose far edges are the mask's last pixels, with exclusive ends."""
    x, y, w, h = xywh
    return [x, y, x + w + 1, y + h + 1]


def _load(config: ProposeConfig, model: Resolved) -> tuple[Any, MaskThresholds]:
    if model.path.is_dir():
        sam, _, thresholds = load_sam(model.path)
        return sam, thresholds
    if not config.allow_pickle:
        raise WeightsError(
            f"model {model.name!r}: segment-anything checkpoints are pickles; if you trust the "
            "file, set propose.allow_pickle = true (it is still read without running code)"
        )
    return _load_checkpoint(model.path), MaskThresholds()


def _load_checkpoint(path: Path) -> Any:
    """A published ``sam_vit_{b,l,h}*.pth``, its size told by its own weights."""
    import pickle

    import torch

    broken = (OSError, RuntimeError, KeyError, StopIteration, TypeError, AttributeError)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        width = int(weights["image_encoder.patch_embed.proj.weight"].shape[0])
        preset = next(config for config in PRESETS.values() if config.embed_dim == width)
        sam = build_sam(preset)
        sam.load_state_dict(weights)
    except (*broken, pickle.UnpicklingError) as error:
        raise WeightsError(
            f"{path}: not a published segment-anything checkpoint of ViT-B, L or H ({error!r})"
        ) from error
    return sam
