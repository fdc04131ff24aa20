"""Features of all processes on every process, with gradients through the exchange."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from glit.train.features import EMBEDDINGS, Features


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
    embeddings = _exchange(features, EMBEDDINGS, with_gradients=True)
    others = tuple(f.name for f in fields(Features) if f.name not in EMBEDDINGS)
    return replace(features, **embeddings, **_exchange(features, others, with_gradients=False))


def _exchange(
    features: Features, names: tuple[str, ...], *, with_gradients: bool
) -> dict[str, Tensor]:
    tensors = [getattr(features, name) for name in names]
    num_samples = tensors[0].shape[0]
    packed = torch.cat([t.reshape(num_samples, -1).float() for t in tensors], dim=1)
    if with_gradients:
        gathered: Tensor = _Gather.apply(packed)  # pyright: ignore[reportAssignmentType]
    else:
        parts = [torch.empty_like(packed) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, packed)
        gathered = torch.cat(parts)
    columns = gathered.split([t[0].numel() for t in tensors], dim=1)
    return {
        name: column.reshape(-1, *tensor.shape[1:]).to(tensor.dtype)
        for name, column, tensor in zip(names, columns, tensors, strict=True)
    }
