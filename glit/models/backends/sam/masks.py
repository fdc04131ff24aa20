"""Masks of one image: boxes, scores and areas, computed from full-size mask logits.

Shape suffixes: K masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """K masks of one image; ``masks[some]`` are some of them."""

    boxes_K4: Tensor
    """int64 x0, y0, x1, y1 in the image's pixels; ends are the last pixels, as published."""
    predicted_iou_K: Tensor
    stability_score_K: Tensor
    area_px_K: Tensor
    """int32."""
    logits_Khw: Tensor | None = None
    """The decoder's, where masks are kept."""

    def __getitem__(self, some: Tensor) -> Masks:
        return Masks(
            boxes_K4=self.boxes_K4[some],
            predicted_iou_K=self.predicted_iou_K[some],
            stability_score_K=self.stability_score_K[some],
            area_px_K=self.area_px_K[some],
            logits_Khw=None if self.logits_Khw is None else self.logits_Khw[some],
        )

    def cpu(self) -> Masks:
        """The same on the CPU, in one copy: a GPU is waited for once."""
        scores = torch.stack([self.predicted_iou_K, self.stability_score_K], dim=1).float()
        numbers = [self.boxes_K4.int(), self.area_px_K[:, None], scores.view(torch.int32)]
        copied = torch.cat(numbers, dim=1).cpu()
        scores = copied[:, 5:].contiguous().view(torch.float32)
        return Masks(
            boxes_K4=copied[:, :4].long(),
            predicted_iou_K=scores[:, 0],
            stability_score_K=scores[:, 1],
            area_px_K=copied[:, 4],
            logits_Khw=None if self.logits_Khw is None else self.logits_Khw.cpu(),
        )


def no_masks(device: torch.device) -> Masks:
    """K = 0."""
    empty = torch.zeros(0, device=device)
    return Masks(
        boxes_K4=torch.zeros(0, 4, dtype=torch.int64, device=device),
        predicted_iou_K=empty,
        stability_score_K=empty,
        area_px_K=torch.zeros(0, dtype=torch.int32, device=device),
    )


def concatenate(parts: Sequence[Masks]) -> Masks:
    """The masks of several batches of points."""
    logits = [part.logits_Khw for part in parts if part.logits_Khw is not None]
    return Masks(
        boxes_K4=torch.cat([part.boxes_K4 for part in parts]),
        predicted_iou_K=torch.cat([part.predicted_iou_K for part in parts]),
        stability_score_K=torch.cat([part.stability_score_K for part in parts]),
        area_px_K=torch.cat([part.area_px_K for part in parts]),
        logits_Khw=torch.cat(logits) if logits else None,
    )


def upscale(
    logits_Khw: Tensor, *, factor: int, input_size: tuple[int, int], original_size: tuple[int, int]
) -> Tensor:
    """Mask logits [K, height, width] of the original image, by two bilinear interpolations.

    The first is to the encoder's input size, as in segment-anything's ``postprocess_masks``. Only
    the rows and columns that the image's own pixels are interpolated from are computed, not the
    padding.

    Args:
        logits_Khw: the mask decoder's, for the encoder's square input.
        factor: the side of that input by that of the logits.
        input_size: height and width of the image in the encoder's input.
        original_size: height and width of the image.
    """
    rows, columns = (min(logits_Khw.shape[-1], side // factor + 2) for side in input_size)
    square = functional.interpolate(
        logits_Khw[None, :, :rows, :columns],
        (rows * factor, columns * factor),
        mode="bilinear",
        align_corners=False,
    )
    unpadded = square[..., : input_size[0], : input_size[1]]
    return functional.interpolate(unpadded, original_size, mode="bilinear", align_corners=False)[0]


def area_px(logits: Tensor, threshold: float) -> Tensor:
    """Pixels above a threshold, int32 [K].

    Rows are summed first, as int16; they have at most 4,000 pixels (``shrink_large``).
    """
    return (logits > threshold).sum(-1, dtype=torch.int16).sum(-1, dtype=torch.int32)


def mask_to_box(logits: Tensor, threshold: float) -> Tensor:
    """First and last column and row above the threshold, int64 [K, 4]; zeros for empty masks."""
    columns = (logits.amax(dim=-2) > threshold).int()  # [K, width]
    rows = (logits.amax(dim=-1) > threshold).int()  # [K, height]
    width, height = columns.shape[-1], rows.shape[-1]
    boxes = torch.stack(
        [
            columns.argmax(dim=-1),
            rows.argmax(dim=-1),
            width - 1 - columns.flip(-1).argmax(dim=-1),
            height - 1 - rows.flip(-1).argmax(dim=-1),
        ],
        dim=-1,
    )
    return boxes * rows.any(dim=-1, keepdim=True)
