"""SAM's automatic masks, filtered by area, as boxes (GOAL, section 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from PIL import Image

from glit.data.records import Region
from glit.data.rle import decode_rle, mask_text
from glit.images import Pixels
from glit.models.backends.base import Backend, refuse_other_kind
from glit.models.backends.proposers.regions import make_regions
from glit.models.backends.protocols import ProposerConfig
from glit.models.backends.sam.model import MODEL_TYPE, load_sam
from glit.models.device import pick_device, torch_dtype
from glit.models.files import weight_files
from glit.models.weights import Resolved
from glit.plain import limited
from glit.recipes.config import RecipeTable, require_value
from glit.recipes.extras import require

if TYPE_CHECKING:
    from glit.models.backends.sam.automatic import MaskBoxes

LARGE = (4000, 3000)
"""Width and height in pixels; larger images are shrunk before SAM, as in GOAL's code."""
SHRUNK = (2048, 1536)
"""Width and height in pixels that large images are shrunk to fit into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamOptions(RecipeTable):
    """Keys of SAM alone."""

    table: ClassVar[str] = "propose"

    points_per_side: int = limited(0, least=1, most=256, also=0)
    """Points along each side of the grid that SAM is asked at; 0 takes the model's own, 32 for
    published ones. 16 takes a quarter of the decoder's time and misses small things."""


class SamDetector:
    """Automatic masks, with the thresholds saved beside the weights.

    Masks (not boxes) whose area is between ``min_area`` and ``max_area`` of the image are kept.
    The score of a region is the predicted IoU of its mask.
    """

    def __init__(self, config: ProposerConfig, model: Resolved) -> None:
        require("models", needed_for="propose.backend = 'sam'")
        config = SAM.settled(config)
        _check(config, model)
        from glit.models.backends.sam.automatic import AutomaticMasks
        from glit.models.onednn import use_onednn

        sam = load_sam(model)
        if points := _points(config):
            thresholds = dataclasses.replace(sam.thresholds, points_per_side=points)
            sam = dataclasses.replace(sam, thresholds=thresholds)
        self._config = config
        sam.model.to(pick_device(config.device))
        if config.precision == "float32" and not (config.exact_masks or config.compile):
            use_onednn(sam.model.vision_encoder)
        self.masks = AutomaticMasks(
            sam,
            exact=config.exact_masks,
            dtype=torch_dtype(config.precision),
            compiled=config.compile,
            keep_masks=config.keep_masks,
        )

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        found = []
        for start in range(0, len(images), self._config.batch_size):
            batch = images[start : start + self._config.batch_size]
            shrunk = [shrink_large(image) for image in batch]
            for image, small, masks in zip(batch, shrunk, self.masks(shrunk), strict=True):
                found.append(self._regions(image, small.shape, masks))
        return found

    def _regions(
        self, image: Pixels, mask_shape: tuple[int, ...], masks: MaskBoxes
    ) -> list[Region]:
        height, width = mask_shape[:2]
        share = masks.area_px / (height * width)
        good = (share >= self._config.min_area) & (share <= self._config.max_area)
        scale = np.array([image.shape[1] / width, image.shape[0] / height] * 2)
        return make_regions(
            masks.boxes[good] * scale,
            np.clip(masks.predicted_iou[good], 0, 1),
            [""] * int(good.sum()),
            width=image.shape[1],
            height=image.shape[0],
            source="sam",
            masks=[
                _mask_text(masks.runs[at], mask_shape, image.shape) for at in np.flatnonzero(good)
            ]
            if masks.runs
            else None,
        )


def _mask_text(runs: list[int], found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The mask of an image that was perhaps shrunk, at the image's own size."""
    mask = decode_rle(runs, height=found[0], width=found[1])
    return mask_text(mask, height=wanted[0], width=wanted[1])


def shrink_large(image: Pixels) -> Pixels:
    """The image; one wider than 4000 or higher than 3000 pixels shrunk to fit 2048 x 1536."""
    height, width = image.shape[:2]
    if width <= LARGE[0] and height <= LARGE[1]:
        return image
    scale = min(SHRUNK[0] / width, SHRUNK[1] / height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))


def _points(config: ProposerConfig) -> int:
    return getattr(getattr(config, "options", None), "points_per_side", 0)


def cpu_seconds(config: ProposerConfig, model: Resolved) -> float:
    """CPU seconds an image, from the encoder's size and the points: ViT-H took 60
    (docs/results/lism-flism.md)."""
    weights = sum(file.stat().st_size for file in weight_files(model.path))
    return 16e-9 * weights + 22 * ((_points(config) or 32) / 32) ** 2


def _check(config: ProposerConfig, model: Resolved | None) -> None:
    if config.exact_masks:
        require_value(
            config.precision in ("auto", "float32"),
            f"[propose] precision: found {config.precision!r}, but exact_masks are float32; "
            "leave one of the two out",
        )
        require_value(
            not config.compile,
            "[propose] compile: exact_masks run SAM as transformers has it; "
            "leave one of the two out",
        )
    refuse_other_kind(model, {MODEL_TYPE}, loads="propose.backend = 'sam' loads SAM")


SAM = Backend(
    make=SamDetector,
    measures_area=True,
    keeps_masks=True,
    auto_precision={},  # bfloat16 changes one box in five by more than an IoU of 0.98 allows
    process_bytes=2_400_000_000,  # global attention of 1024 x 1024 inputs; docs/experiments.md
    gpu_bytes=16 << 30,
    cpu_seconds=cpu_seconds,
    options=SamOptions,
    check=_check,
    extras=("models",),
)
