"""Sine-cosine starts for position embeddings: neighbours are alike from the first step."""

from __future__ import annotations

import torch
from torch import Tensor


def sine_positions(points_N2: Tensor, width: int) -> Tensor:
    """Sine-cosine codes of points in the unit square: ``[N, width]`` (as DETR, half x, half y)."""
    quarter = width // 4
    frequencies = torch.pi * 2.0 ** torch.linspace(0, 4, quarter)
    angles = points_N2[:, :, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)


def grid_points(side: int) -> Tensor:
    """Centres of the cells of a ``side`` by ``side`` grid in reading order: ``[side², 2]``."""
    axis = (torch.arange(side) + 0.5) / side
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], dim=1)
