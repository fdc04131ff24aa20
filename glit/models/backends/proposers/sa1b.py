"""Read regions from SA-1B's mask files, for LISM without running SAM.

``NAME.json`` beside ``NAME.jpg`` holds ``annotations``, each with a run-length ``segmentation``
and its ``predicted_iou``; the other keys are not read (Segment Anything, Kirillov et al. 2023,
section 5). The masks were made by SAM ViT-H, so they are filtered and scored as those of
:mod:`glit.models.backends.proposers.sam`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.data.frames import Frame, fit_frame, upright_orientation
from glit.data.records import Region
from glit.data.rle import Runs, decode_rle, mask_text, read_rle, rle_area, rle_box
from glit.models.backends.base import PLAIN_BYTES, Backend
from glit.models.backends.proposers.regions import make_regions
from glit.models.backends.protocols import ProposerConfig
from glit.models.weights import Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A mask's box, area and score."""

    box: tuple[int, int, int, int]
    """x0, y0, x1, y1 of the tight box in pixels of the mask, exclusive ends."""
    width: int
    """Width of the mask in pixels, background included."""
    height: int
    """Height of the mask in pixels, background included."""
    share: float
    """Foreground pixels of the mask divided by all its pixels."""
    predicted_iou: float
    runs: Runs
    """Its run lengths."""

    def text(self, frame: Frame) -> str:
        """The mask in the upright image, as COCO's compressed run lengths."""
        mask = decode_rle(self.runs.tolist(), height=self.height, width=self.width)
        width, height = map(int, frame.size)
        return mask_text(frame.mask(mask), height=height, width=width)


class Sa1bReader:
    """See :class:`glit.models.backends.protocols.RegionReader`.

    Masks with a ``share`` between ``min_area`` and ``max_area`` are kept. Boxes and areas are
    computed from the run lengths; the file's ``bbox`` and ``area`` are not read. Masks may be
    larger or smaller than the image, as when images were resized after the download.
    """

    def __init__(self, config: ProposerConfig, model: Resolved | None = None) -> None:
        self._config = config

    def read(
        self,
        text: str,
        *,
        width: int,
        height: int,
        orientation: Callable[[], int] = upright_orientation,
    ) -> list[Region]:
        """Regions of the masks, best predicted IoU first.

        Masks of the image before its EXIF orientation are turned with it.

        Raises:
            ValueError: the text is damaged, or belongs to an image of another aspect ratio.
        """
        masks = [
            mask
            for mask in read_masks(text)
            if self._config.min_area <= mask.share <= self._config.max_area
        ]
        size = (width, height)
        frames = [fit_frame((mask.width, mask.height), size, orientation) for mask in masks]
        boxes = [scaled(frame, mask.box) for frame, mask in zip(frames, masks, strict=True)]
        return make_regions(
            np.array(boxes, dtype=np.float64).reshape(-1, 4),
            np.array([min(max(mask.predicted_iou, 0.0), 1.0) for mask in masks]),
            [""] * len(masks),
            width=width,
            height=height,
            source="sam",
            masks=[mask.text(frame) for mask, frame in zip(masks, frames, strict=True)]
            if self._config.keep_masks
            else None,
        )


def scaled(frame: Frame, box: Sequence[float]) -> list[float]:
    """A box in the upright image; tight boxes of masks follow the size by a pixel too."""
    if frame.change == "turned":
        return list(frame.box(box))
    across, down = (a / b for a, b in zip(frame.size, frame.stated, strict=True))
    return [edge * by for edge, by in zip(box, (across, down, across, down), strict=True)]


def read_masks(text: str) -> list[Mask]:
    """The masks of a file in SA-1B's layout, in file order, without empty ones.

    Raises:
        ValueError: it is not JSON in this layout, or a mask's run lengths are damaged.
    """
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("annotations"), list):
        raise ValueError("no list of 'annotations', as in SA-1B's files")
    masks = []
    for number, annotation in enumerate(found["annotations"]):
        try:
            mask = _mask(annotation)
        except KeyError as error:
            raise ValueError(f"annotation {number} has no {error}") from error
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"annotation {number}: {error}") from error
        if mask is not None:
            masks.append(mask)
    return masks


def _mask(annotation: dict[str, Any]) -> Mask | None:
    segmentation = annotation["segmentation"]
    height, width = segmentation["size"]
    if not (type(height) is type(width) is int and height > 0 and width > 0):
        raise ValueError(f"size {segmentation['size']}, want [height, width] in pixels")
    predicted_iou = annotation["predicted_iou"]
    if not isinstance(predicted_iou, int | float) or not math.isfinite(predicted_iou):
        raise ValueError(f"predicted_iou {predicted_iou!r}, want a number")
    runs = read_rle(segmentation["counts"], height=height, width=width)
    area = rle_area(runs)
    if not area:
        return None
    return Mask(
        box=rle_box(runs, height=height),
        width=width,
        height=height,
        share=area / (width * height),
        predicted_iou=predicted_iou,
        runs=runs,
    )


SA1B = Backend(
    make=Sa1bReader,
    reads="file",
    beside=".json",
    measures_area=True,
    keeps_masks=True,
    needs_model=False,
    process_bytes=PLAIN_BYTES,
)
