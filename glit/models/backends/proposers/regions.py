"""Convert detections (arrays of boxes, scores and labels) to regions."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from glit.data.geometry import Boxes
from glit.data.records import Box, Region


def make_regions(
    boxes: Boxes,
    scores: Float[np.ndarray, " N"],
    labels: list[str],
    *,
    width: int,
    height: int,
    source: str,
    masks: list[str] | None = None,
) -> list[Region]:
    """Detections as regions: clipped to the image, best score first, without empty boxes.

    Coordinates are rounded to 0.01 pixels and scores to 1e-4, which is coarser than the
    differences between batch sizes.

    Args:
        boxes: [N, 4] xyxy in the image's pixels.
        scores: [N] in [0, 1].
        labels: a class name for each.
        width: of the image, pixels.
        height: of the image, pixels.
        source: ``Region.source``, the name of the proposer.
        masks: for each ``Region.mask``, where they are kept.
    """
    regions = []
    for index in np.lexsort((np.arange(len(scores)), -scores)):
        x0, y0, x1, y1 = np.round(
            np.clip(boxes[index], 0, [width, height, width, height]).astype(np.float64), 2
        ).tolist()
        if x0 < x1 and y0 < y1:
            regions.append(
                Region(
                    box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
                    score=round(float(scores[index]), 4),
                    label=labels[index],
                    source=source,
                    mask=masks[index] if masks else "",
                )
            )
    return regions
