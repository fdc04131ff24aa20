"""Fit decoded images and their boxes into the model's square input.

Resizing is torch's antialiased bicubic on uint8 pixels: within one grey level of Pillow's, which
CLIP was trained with, and about ten times faster. Pixels are normalised later, on the device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from glit.errors import WeightsError
from glit.models.clip.image_fit import ImageFit
from glit.models.clip.pooling import EDGE_TOLERANCE_PX

if TYPE_CHECKING:
    from transformers import CLIPModel


def fit_image(
    image_HWC: UInt8[np.ndarray, "h w 3"],
    *,
    side: int,
    fit: ImageFit,
    shortest: int = 0,
    mode: str = "bicubic",
) -> UInt8[Tensor, "3 side side"]:
    """The image squeezed into the model's square (``resize``), or its middle (``centre-crop``).

    Args:
        image_HWC: RGB.
        side: of the square, pixels.
        fit: how the image becomes the square.
        shortest: with ``centre-crop``, the shorter side before the crop, pixels; 0 is ``side``.
        mode: interpolation, as torch calls it.
    """
    pixels_CHW = image_HWC.transpose(2, 0, 1)  # torch's views give the interpreter lock away
    height, width = fitted_size(
        image_HWC.shape[1], image_HWC.shape[0], side=side, fit=fit, shortest=shortest
    )
    if (height, width) != pixels_CHW.shape[1:]:
        one_1CHW = torch.from_numpy(pixels_CHW[None])
        resized = F.interpolate(one_1CHW, (height, width), mode=mode, antialias=True)
        pixels_CHW = resized.numpy()[0]
    top, left = (height - side) // 2, (width - side) // 2
    return torch.from_numpy(pixels_CHW[:, top : top + side, left : left + side])


def write_fitted(
    image_HWC: UInt8[np.ndarray, "h w 3"], out_3SS: UInt8[Tensor, "3 side side"], *, fit: ImageFit
) -> None:
    """:func:`fit_image` into memory that is there already, such as a batch's.

    NumPy copies, since torch would start a team of threads in each of the caller's.
    """
    fitted = fit_image(image_HWC, side=out_3SS.shape[-1], fit=fit)
    np.copyto(out_3SS.numpy(), fitted.numpy())


def fitted_size(
    width: int, height: int, *, side: int, fit: ImageFit, shortest: int = 0
) -> tuple[int, int]:
    """Height and width after resizing, before the crop; arguments as of :func:`fit_image`.

    >>> fitted_size(200, 100, side=50, fit="centre-crop")
    (50, 100)
    """
    if fit == "resize":
        return side, side
    side = shortest or side
    if width < height:
        return max(side, int(side * height / width)), side
    return side, max(side, int(side * width / height))


def fit_boxes(
    boxes_K4: Float[np.ndarray, "k 4"],
    *,
    width: int,
    height: int,
    side: int,
    fit: ImageFit,
    shortest: int = 0,
) -> Float[np.ndarray, "k 4"]:
    """Boxes of a ``width`` x ``height`` image in pixels of the model's square.

    ``side``, ``fit`` and ``shortest`` are as of :func:`fit_image`. With ``centre-crop`` a box may
    lie partly or wholly outside the square; it is not clipped.

    >>> fit_boxes(np.array([[50.0, 0.0, 100.0, 100.0]]), width=200, height=100, side=50,
    ...           fit="centre-crop").tolist()
    [[0.0, 0.0, 25.0, 50.0]]
    """
    fitted_height, fitted_width = fitted_size(width, height, side=side, fit=fit, shortest=shortest)
    scale_x, scale_y = fitted_width / width, fitted_height / height
    left, top = (fitted_width - side) // 2, (fitted_height - side) // 2
    scale_4 = np.array([scale_x, scale_y, scale_x, scale_y])
    return boxes_K4 * scale_4 - np.array([left, top, left, top], dtype=np.float64)


def touched_patches(
    mask_HW: Bool[np.ndarray, "h w"], *, side: int, patch_size: int, fit: ImageFit
) -> Bool[np.ndarray, " p"]:
    """Return which patches of the model's square a mask of the image touches, row-major.

    A patch counts if any pixel of the mask reaches into it, as with boxes in
    :func:`glit.models.clip.pooling.patch_mask`: a mask that fills its box touches the box's
    patches, and no mask is too small for a patch. What ``centre-crop`` cuts off touches none.

    Args:
        mask_HW: at the image's size.
        side: of the model's input square, pixels.
        patch_size: side of a patch, pixels; what is left of ``side`` belongs to no patch.
        fit: how the image becomes the square.

    >>> mask = np.array([[True, False, False, False]] + 3 * [4 * [False]])
    >>> touched_patches(mask, side=32, patch_size=16, fit="resize").tolist()
    [True, False, False, False]
    """
    height, width = mask_HW.shape
    fitted = fitted_size(width, height, side=side, fit=fit)
    rows, columns = (
        _pixels_of_patches(size, fitted_to, side=side, patch_size=patch_size)
        for size, fitted_to in zip(mask_HW.shape, fitted, strict=True)
    )
    touched_nW = np.array([mask_HW[low:high].any(axis=0) for low, high in rows])
    return np.array([touched_nW[:, low:high].any(axis=1) for low, high in columns]).T.ravel()


def _pixels_of_patches(
    size: int, fitted: int, *, side: int, patch_size: int
) -> list[tuple[int, int]]:
    """Along one edge of an image, the pixels that reach into each patch: first, and end."""
    scale, cut = fitted / size, (fitted - side) // 2
    starts = np.arange(side // patch_size) * patch_size + cut
    first = np.floor((starts + EDGE_TOLERANCE_PX) / scale).astype(int)
    end = np.ceil((starts + patch_size - EDGE_TOLERANCE_PX) / scale).astype(int)
    return list(zip(first.clip(0, size).tolist(), end.clip(0, size).tolist(), strict=True))


def crop(
    image_HWC: UInt8[np.ndarray, "h w 3"], box_xyxy: Float[np.ndarray, 4]
) -> UInt8[np.ndarray, "ch cw 3"]:
    """The pixels that a box touches, at least 1 x 1: a view of the image."""
    height, width = image_HWC.shape[:2]
    low_x, low_y, high_x, high_y = box_xyxy.tolist()
    x0 = min(max(math.floor(low_x), 0), width - 1)
    y0 = min(max(math.floor(low_y), 0), height - 1)
    x1 = min(max(math.ceil(high_x), x0 + 1), width)
    y1 = min(max(math.ceil(high_y), y0 + 1), height)
    return image_HWC[y0:y1, x0:x1]


def vision_side(model: CLIPModel) -> tuple[int, int]:
    """Side of the model's input square and side of a patch, in pixels.

    Raises:
        WeightsError: the input is smaller than a patch.
    """
    vision: Any = model.config.vision_config
    side, patch = int(vision.image_size), int(vision.patch_size)
    if side < patch:
        raise WeightsError(
            f"model {model.config.name_or_path or 'CLIPModel'}: image size {side} is smaller "
            f"than its patch of {patch} pixels; check its config.json"
        )
    return side, patch
