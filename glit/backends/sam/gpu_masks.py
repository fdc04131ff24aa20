"""When SAM's masks are measured by one GPU kernel from their logits, and not made in full."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glit.backends.sam.masks import area_px, mask_to_box, upscale
from glit.gpu.probe import chosen
from glit.runtime.verified_paths import agrees, probe_input

FAST_PATH = "measuring SAM's masks"
_SMALL: dict[str, Any] = {"factor": 4, "input_size": (192, 150), "original_size": (333, 260)}
_LARGE: dict[str, Any] = {"factor": 4, "input_size": (768, 1024), "original_size": (768, 1024)}
_THRESHOLDS = (0.0, 1.0, -1.0)


def measures_at_once(device: torch.device) -> bool:
    """Return whether the kernel gives what full masks give on this GPU, and is faster."""

    def ways() -> tuple[Any, Any]:
        logits_Khw = probe_input(64, 256, 256, like=torch.empty(0, device=device))
        return lambda: _by_kernel(logits_Khw, _LARGE), lambda: _in_full(logits_Khw, _LARGE)

    return chosen(FAST_PATH, device, is_right=lambda: _is_right(device), ways=ways)


def _is_right(device: torch.device) -> bool:
    """Round random masks of an image that is not square, one of them empty."""

    def logits() -> Tensor:
        coarse = probe_input(1, 8, 6, 6, like=torch.empty(0, device=device))
        fine = functional.interpolate(coarse, (48, 48), mode="bicubic")[0]
        return (fine - torch.tensor([9.0] + [0.2] * 7, device=device)[:, None, None]).contiguous()

    return agrees(
        FAST_PATH,
        package="torch",
        kind=device.type,
        fast=lambda: _by_kernel(logits(), _SMALL),
        plain=lambda: _in_full(logits(), _SMALL),
    )


def _in_full(logits_Khw: Tensor, geometry: dict[str, Any]) -> list[Tensor]:
    full = upscale(logits_Khw, **geometry)
    areas = torch.stack([area_px(full, each) for each in _THRESHOLDS], dim=1)
    return [areas.float(), mask_to_box(full, _THRESHOLDS[0]).float()]


def _by_kernel(logits_Khw: Tensor, geometry: dict[str, Any]) -> list[Tensor]:
    from glit.backends.sam.mask_kernel import measure_masks

    measured = measure_masks(logits_Khw, thresholds=_THRESHOLDS, **geometry)
    return [measured.above_K3.float(), measured.boxes_K4.float()]
