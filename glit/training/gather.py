"""Gather features of all processes on every process, with gradients."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from glit.training.features import Features


class _Gather(torch.autograd.Function):
    """All-gather along the first dimension; backward keeps this rank's part, times the ranks.

    Every rank computes the same loss from the same gathered tensor, so the gradients that would be
    summed over ranks are equal and need no second exchange. Averaging parameter gradients over
    ranks afterwards (what DistributedDataParallel does) gives exactly the one-process gradient.
    """

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        part = grads[0].chunk(dist.get_world_size())[dist.get_rank()]
        return part * dist.get_world_size()


def num_ranks() -> int:
    """Processes of the run; 1 outside a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_features(features: Features) -> Features:
    """The features of all ranks, in rank order; the same on every rank.

    Two exchanges: embeddings in one (with gradients), masks and similarities in another. Every
    rank must hold equally many samples (the loader sees to it).
    """
    if num_ranks() == 1:
        return features
    embeddings = _exchange(features.embeddings(), with_gradients=True)
    return features.with_rows(embeddings | _exchange(features.others(), with_gradients=False))


def _exchange(tensors: dict[str, Tensor], *, with_gradients: bool) -> dict[str, Tensor]:
    """Every tensor with the rows of all ranks, all of them in one exchange of float32."""
    num_samples = next(iter(tensors.values())).shape[0]
    joined = torch.cat([t.reshape(num_samples, -1).float() for t in tensors.values()], dim=1)
    if with_gradients:
        gathered = cast(Tensor, _Gather.apply(joined))
    else:
        parts = [torch.empty_like(joined) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, joined)
        gathered = torch.cat(parts)
    widths = [math.prod(tensor.shape[1:]) for tensor in tensors.values()]
    return {
        name: column.reshape(len(gathered), *tensor.shape[1:]).to(tensor.dtype)
        for (name, tensor), column in zip(
            tensors.items(), gathered.split(widths, dim=1), strict=True
        )
    }
