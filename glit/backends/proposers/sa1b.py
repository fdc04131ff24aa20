"""The masks SA-1B ships beside its images, as LISM's regions; nothing is computed by a model.

``NAME.json`` beside ``NAME.jpg`` holds ``annotations``, each with a run-length ``segmentation``,
its ``predicted_iou`` and more that is not needed (Segment Anything, Kirillov et al. 2023,
section 5). The masks are SAM ViT-H's own, so they are filtered and scored as SAM's are here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.proposers.regions import make_regions
from glit.backends.protocols import ProposerConfig
from glit.backends.weights import Resolved
from glit.records import Region
from glit.rle import read_rle, rle_area, rle_box


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """What is kept of a mask."""

    box: tuple[int, int, int, int]
    """Tight, in the mask's own pixels, ends exclusive."""
    width: int
    """Pixels of the frame the mask was made in."""
    height: int
    """Pixels of the frame the mask was made in."""
    share: float
    """Of the frame that the mask covers."""
    predicted_iou: float


class Sa1bReader:
    """See :class:`glit.backends.protocols.RegionReader`.

    A mask must cover between ``min_area`` and ``max_area`` of its frame. Boxes and areas are
    those of the run lengths; the file's own ``bbox`` and ``area`` are not looked at. The frame
    may be larger or smaller than the image, as when images were made smaller after download.
    """

    def __init__(self, config: ProposerConfig, model: Resolved | None = None) -> None:
        self._config = config

    def read(self, text: str, *, width: int, height: int) -> list[Region]:
        """Regions of the masks, best predicted IoU first.

        Masks are taken to be of the upright image. SA-1B's files have no EXIF orientation; for
        others, masks of an image lying on its side do not have its shape and are refused.

        Raises:
            ValueError: the text is damaged, or belongs to an image of another shape.
        """
        masks = [
            mask
            for mask in read_masks(text)
            if self._config.min_area <= mask.share <= self._config.max_area
        ]
        for mask in masks:
            _check_shape(mask, width=width, height=height)
        scale = np.array([[width / m.width, height / m.height] * 2 for m in masks]).reshape(-1, 4)
        return make_regions(
            np.array([mask.box for mask in masks]).reshape(-1, 4) * scale,
            np.array([min(max(mask.predicted_iou, 0.0), 1.0) for mask in masks]),
            [""] * len(masks),
            width=width,
            height=height,
            source="sam",
        )


def read_masks(text: str) -> list[Mask]:
    """Every mask of a file in SA-1B's layout that is not empty, in file order.

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
    )


def _check_shape(mask: Mask, *, width: int, height: int) -> None:
    """The image is the mask's frame scaled, but for a pixel of rounding on either side."""
    apart = abs(width / mask.width - height / mask.height)
    if apart > 1 / mask.width + 1 / mask.height:
        raise ValueError(
            f"masks of a picture of {mask.width} x {mask.height} pixels, "
            f"the image has {width} x {height}"
        )


SA1B = Backend(
    make=Sa1bReader,
    reads="file",
    beside=".json",
    measures_area=True,
    needs_model=False,
    process_bytes=PLAIN_BYTES,
)
