"""Crops of one image as an image encoder takes them; pixels differ from those of the model's own
image processor by at most one grey level.

CLIP's image processor resizes the shorter side to S with antialiased bicubic interpolation and
cuts the middle S x S; SigLIP's squeezes the crop into S x S. Here all crops are taken from one
tensor of the image, on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glit.data.geometry import Boxes
from glit.images import Pixels
from glit.models.clip.image_processor import Preprocessing
from glit.models.gpu.copies import upload_image

MAX_ASPECT = 16
"""Longest crop that is resized, as a multiple of its shorter side; see :func:`_middle`."""
MAX_SHRINKING = 40
"""Largest factor by which a crop is shrunk on another device than a CPU. CUDA's kernel keeps its
weights in 48 KiB and refuses more than about 47 times: a crop of 10,500 pixels at an input of 224,
one of 3,000 at an input of 64."""


def cut_crops(
    image: Pixels, boxes: Boxes, spec: Preprocessing, *, side: int, device: Any
) -> Float[Tensor, "n 3 side side"]:
    """All crops of one image as the encoder's input.

    On a CPU crops are resized as uint8, for which torch has a vectorised kernel; on other devices
    as float32, then rounded to whole grey levels. Those that are shrunk very much are resized on
    the CPU in any case (:data:`MAX_SHRINKING`).

    Args:
        image: uint8 RGB [height, width, 3].
        boxes: [N, 4] xyxy pixels; grown to whole pixels.
        spec: how the model's images are prepared.
        side: of the encoder's square input, pixels.
        device: where crops are cut and resized.

    Returns:
        float32 [N, 3, side, side] on ``device``, normalised.
    """
    here = torch.from_numpy(image).permute(2, 0, 1).unsqueeze(0)
    whole = upload_image(image, device).unsqueeze(0)
    if whole.device.type != "cpu":
        whole = whole.to(torch.float32, memory_format=torch.contiguous_format)
    shift = torch.tensor(spec.mean, device=whole.device).view(3, 1, 1) * 255
    scale = 1 / (torch.tensor(spec.std, device=whole.device).view(3, 1, 1) * 255)
    found = torch.empty(len(boxes), 3, side, side, device=whole.device)
    with torch.inference_mode():
        for crop, box in zip(found, whole_pixel_boxes(image, boxes), strict=True):
            shrunk = (max if spec.fit == "resize" else min)(_size(box))
            source = here if shrunk > MAX_SHRINKING * side else whole
            crop.copy_(_resized(source, box, spec, side)[0])
        # for all crops at once: on a GPU what is small costs its launch
        if whole.device.type != "cpu":
            found.round_().clamp_(0, 255)
        return found.sub_(shift).mul_(scale)


def whole_pixel_boxes(image: Pixels, boxes: Boxes) -> list[tuple[int, int, int, int]]:
    """Boxes grown to whole pixels inside the image, at least 1 x 1 pixel."""
    height, width = image.shape[:2]
    result = []
    for x0, y0, x1, y1 in boxes.tolist():
        left = min(max(int(np.floor(x0)), 0), width - 1)
        top = min(max(int(np.floor(y0)), 0), height - 1)
        right = max(min(int(np.ceil(x1)), width), left + 1)
        bottom = max(min(int(np.ceil(y1)), height), top + 1)
        result.append((left, top, right, bottom))
    return result


def _size(box: tuple[int, int, int, int]) -> tuple[int, int]:
    """Width and height."""
    return box[2] - box[0], box[3] - box[1]


def _resized(
    whole: Tensor, box: tuple[int, int, int, int], spec: Preprocessing, side: int
) -> Tensor:
    """The squeezed crop, or the resized crop's middle square, grey levels [1, 3, side, side]; of
    floating point they are not rounded yet."""
    if spec.fit == "resize":
        return resized(whole, box, (side, side), mode=spec.mode)
    box = _middle(box)
    width, height = _size(box)
    short = spec.shortest or side
    if width <= height:
        size = (int(short * height / width), short)
    else:
        size = (short, int(short * width / height))
    y, x = (size[0] - side) // 2, (size[1] - side) // 2
    return resized(whole, box, size, mode=spec.mode)[:, :, y : y + side, x : x + side]


def resized(
    whole: Tensor, box: tuple[int, int, int, int], size: tuple[int, int], *, mode: str
) -> Tensor:
    """A box of an image [1, 3, H, W] resized to height and width, antialiased."""
    left, top, right, bottom = box
    crop = whole[:, :, top:bottom, left:right]
    if crop.device.type == "cpu":  # whose kernel of uint8 is fastest on channels last
        crop = crop.contiguous(memory_format=torch.channels_last)
    return F.interpolate(crop, size=size, mode=mode, antialias=True, align_corners=False)


def _middle(box: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The box with its longer side cut, around the middle, to 16 times the shorter one.

    CLIP's centre crop keeps only the middle square of a resized crop. The cut bounds the memory
    and time of boxes such as 10 x 4,000 pixels; boxes up to 1:16 are not changed.
    """
    left, top, right, bottom = box
    width, height = _size(box)
    most = MAX_ASPECT * min(width, height)
    if width > most:
        left += (width - most) // 2
        right = left + most
    if height > most:
        top += (height - most) // 2
        bottom = top + most
    return left, top, right, bottom
