"""Crops of pool scenes for the matcher: tight to loose objects, quadrants and centres."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tools.mini.pool import IMAGE_PX, Pool

_MAX_MARGIN = 0.25


def to_tensor(images: np.ndarray) -> Tensor:
    """uint8 ``[B, H, W, 3]`` to float32 ``[B, 3, H, W]`` in ``[-1, 1]``."""
    return torch.tensor(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1


def object_box(box_xyxy: np.ndarray, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A box around an object: from truly tight to a quarter larger, sides moved apart.

    Four times of ten made square, as CLIP's own preprocessing would crop it.
    """
    x0, y0, x1, y1 = (float(v) for v in box_xyxy)
    margin = _MAX_MARGIN * rng.random() ** 2
    width, height = x1 - x0, y1 - y0
    shifts = (rng.random(4) * 2 * margin - margin * 0.15) / 2
    x0, x1 = x0 - shifts[0] * width, x1 + shifts[1] * width
    y0, y1 = y0 - shifts[2] * height, y1 + shifts[3] * height
    if rng.random() < 0.4:
        half = max(x1 - x0, y1 - y0) / 2
        cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
        x0, x1, y0, y1 = cx - half, cx + half, cy - half, cy + half
    return _rounded(x0, y0, x1, y1)


def region_box(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A quadrant, the centre region or the whole picture, as FLISM's grid has them."""
    half = IMAGE_PX // 2
    corners = [(0, 0), (half, 0), (0, half), (half, half), (half // 2, half // 2)]
    if rng.random() < 0.2:
        return 0, 0, IMAGE_PX, IMAGE_PX
    x0, y0 = corners[rng.integers(len(corners))]
    return x0, y0, x0 + half, y0 + half


def cut(pool: Pool, index: int, box: tuple[int, int, int, int]) -> np.ndarray:
    """A crop warped to the model's input, bicubic: uint8 ``[128, 128, 3]``."""
    x0, y0, x1, y1 = box
    image = Image.fromarray(pool.pixels[index, y0:y1, x0:x1])
    return np.asarray(image.resize((IMAGE_PX, IMAGE_PX), Image.Resampling.BICUBIC))


def box_iou(a: tuple[int, ...], b: np.ndarray) -> np.ndarray:
    """IoU of one box with ``[K, 4]`` boxes: ``[K]``."""
    width = np.minimum(a[2], b[:, 2]) - np.maximum(a[0], b[:, 0])
    height = np.minimum(a[3], b[:, 3]) - np.maximum(a[1], b[:, 1])
    shared = np.clip(width, 0, None) * np.clip(height, 0, None)
    areas = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + areas - shared)


def _rounded(x0: float, y0: float, x1: float, y1: float) -> tuple[int, int, int, int]:
    left, top = max(0, round(x0)), max(0, round(y0))
    return (
        left,
        top,
        min(IMAGE_PX, max(left + 4, round(x1))),
        min(IMAGE_PX, max(top + 4, round(y1))),
    )
