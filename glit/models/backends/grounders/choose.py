"""Choose the detections of each phrase of an image from a model's boxes and scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from glit.data.geometry import Boxes, clip_boxes, suppress_duplicates
from glit.models.backends.protocols import GrounderConfig, PhraseDetections

BOX_DECIMALS, SCORE_DECIMALS = 2, 4
"""Coarser than the differences between batch sizes."""


def best_of_each(
    boxes: Boxes,
    scores: Float[np.ndarray, "N P"],
    *,
    width: int,
    height: int,
    config: GrounderConfig,
    mask_of: Callable[[int], str] | None = None,
) -> list[PhraseDetections]:
    """The detections of each of P phrases: those over the threshold, one of each near-duplicate.

    Args:
        boxes: xyxy pixels [N, 4].
        scores: how sure the model is that each box shows each phrase.
        width: of the image, pixels.
        height: of the image, pixels.
        config: threshold, and how many of a phrase.
        mask_of: gives the mask of a box by its number, as run lengths; asked for those that stay.

    Raises:
        FloatingPointError: the model answered NaN or infinity.
    """
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise FloatingPointError("the detector answered NaN or infinity")
    inside = np.round(
        clip_boxes(boxes.astype(np.float64), width=width, height=height), BOX_DECIMALS
    )
    real = (inside[:, 2:] > inside[:, :2]).all(axis=1)
    rounded = np.round(scores.astype(np.float64), SCORE_DECIMALS)
    result = []
    for column in rounded.T:
        (some,) = np.nonzero(real & (column >= config.threshold))
        kept = some[suppress_duplicates(inside[some], column[some], max_iou=config.nms_iou)]
        kept = kept[: config.max_boxes]
        masks = tuple(mask_of(int(number)) for number in kept) if mask_of else ()
        scored = column[kept].astype(np.float32)
        result.append(PhraseDetections(boxes=inside[kept], scores=scored, masks=masks))
    return result
