"""Recall@K in blocks: 100,000 queries against 100,000 items in a few hundred megabytes.

Shapes: Q queries, G gallery items, D embedding width. Embeddings are L2-normalised.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glit.evaluate.relevance import Relevance


def first_hit_rank(
    query_QD: Float[Tensor, "q d"],
    gallery_GD: Float[Tensor, "g d"],
    relevance: Relevance,
    *,
    chunk: int = 4096,
) -> Int[np.ndarray, " q"]:
    """Rank (from 0) of the best relevant item of every query.

    The rank is the number of items before it, so nothing is sorted; of equal similarities the
    lower item number comes first. Memory is that of one ``chunk`` x ``chunk`` block; every block
    is computed twice.

    Worked case: similarities (0.9, 0.5, 0.7) with item 2 relevant give rank 1.
    """
    ranks = np.empty(len(relevance), dtype=np.int64)
    for low in range(0, len(relevance), chunk):
        high = min(low + chunk, len(relevance))
        ranks[low:high] = _ranks_of(query_QD[low:high], gallery_GD, relevance, low, high, chunk)
    return ranks


def _ranks_of(
    query_QD: Tensor, gallery_GD: Tensor, relevance: Relevance, low: int, high: int, chunk: int
) -> np.ndarray:
    device = query_QD.device
    start, end = relevance.start[low], relevance.start[high]
    item_M = torch.from_numpy(relevance.item[start:end]).to(device)
    lengths = np.diff(relevance.start[low : high + 1])
    owner_M = torch.from_numpy(np.repeat(np.arange(high - low), lengths)).to(device)

    best_Q = torch.full((high - low,), -torch.inf, device=device)
    best_item_Q = torch.zeros(high - low, dtype=torch.long, device=device)
    for first in range(0, len(gallery_GD), chunk):
        block_QC = query_QD @ gallery_GD[first : first + chunk].T
        here_M = (item_M >= first) & (item_M < first + block_QC.shape[1])
        owner, item = owner_M[here_M], item_M[here_M]
        for k in range(int(lengths.max())):
            # the k-th of each query's relevant items inside this block, so that no index repeats
            place = _nth_of_group(owner, k)
            similarity = block_QC[owner[place], item[place] - first]
            better = similarity > best_Q[owner[place]]
            best_Q[owner[place][better]] = similarity[better]
            best_item_Q[owner[place][better]] = item[place][better]
            if not len(place):
                break

    rank_Q = torch.zeros(high - low, dtype=torch.long, device=device)
    for first in range(0, len(gallery_GD), chunk):
        block_QC = query_QD @ gallery_GD[first : first + chunk].T
        number_C = torch.arange(first, first + block_QC.shape[1], device=device)
        before = block_QC > best_Q[:, None]
        before |= (block_QC == best_Q[:, None]) & (number_C < best_item_Q[:, None])
        rank_Q += before.sum(dim=1)
    return rank_Q.cpu().numpy()


def _nth_of_group(owner_M: Tensor, n: int) -> Tensor:
    """Positions of the n-th entry of every run of equal owners (owners are sorted)."""
    if not len(owner_M):
        return owner_M
    counts = torch.unique_consecutive(owner_M, return_counts=True)[1]
    first = torch.cumsum(counts, dim=0) - counts
    return (first + n)[counts > n]


def recall_at(rank_Q: Int[np.ndarray, " q"], ks: Sequence[int]) -> dict[int, float]:
    """Share of queries whose best relevant item is among the first K, per K.

    >>> recall_at(np.array([0, 3, 9, 10]), [1, 5, 10])
    {1: 0.25, 5: 0.5, 10: 0.75}
    """
    return {k: float((rank_Q < k).mean()) for k in ks}
