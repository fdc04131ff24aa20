"""Compute Recall@K in blocks: 100,000 × 100,000 in a few hundred megabytes.

Shapes: Q queries, C gallery items of a block, M relevant items of all queries together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glit.evaluation.relevance import Relevance

Block = Callable[[slice, slice], Float[Tensor, "q c"]]
"""Scores of some queries (their numbers) against some gallery items, higher for a better fit."""


def first_hit_rank(
    block: Block, *, num_gallery: int, relevance: Relevance, chunk: int = 4096
) -> Int[np.ndarray, " q"]:
    """Rank (from 0) of the best relevant item of every query.

    The rank is the number of items before it, so nothing is sorted; of equal scores the lower
    item number comes first. Memory is that of one ``chunk`` x ``chunk`` block; every block is
    computed twice.

    Worked case: scores (0.9, 0.5, 0.7) with item 2 relevant give rank 1.

    Args:
        block: of scores.
        num_gallery: items.
        relevance: of every query.
        chunk: side of a block.
    """
    ranks = np.empty(len(relevance), dtype=np.int64)
    for low in range(0, len(relevance), chunk):
        queries = slice(low, min(low + chunk, len(relevance)))
        ranks[queries] = _ranks_of(block, queries, num_gallery, relevance, chunk)
    return ranks


def _ranks_of(
    block: Block, queries: slice, num_gallery: int, relevance: Relevance, chunk: int
) -> np.ndarray:
    low, high = queries.start, queries.stop
    item_M = torch.from_numpy(relevance.item[relevance.start[low] : relevance.start[high]])
    lengths = np.diff(relevance.start[low : high + 1])
    owner_M = torch.from_numpy(np.repeat(np.arange(high - low), lengths))

    best_Q = torch.full((high - low,), -torch.inf)
    best_item_Q = torch.zeros(high - low, dtype=torch.long)
    for first in range(0, num_gallery, chunk):
        items = slice(first, min(first + chunk, num_gallery))
        block_QC = block(queries, items)
        here_M = (item_M >= items.start) & (item_M < items.stop)
        owner, item = owner_M[here_M], item_M[here_M]
        for k in range(int(lengths.max())):
            # the k-th of each query's relevant items inside this block, so that no index repeats
            place = _nth_of_group(owner, k)
            score = block_QC[owner[place], item[place] - first]
            better = score > best_Q[owner[place]]
            best_Q[owner[place][better]] = score[better]
            best_item_Q[owner[place][better]] = item[place][better]
            if not len(place):
                break

    rank_Q = torch.zeros(high - low, dtype=torch.long)
    for first in range(0, num_gallery, chunk):
        items = slice(first, min(first + chunk, num_gallery))
        block_QC = block(queries, items)
        number_C = torch.arange(items.start, items.stop)
        before = block_QC > best_Q[:, None]
        before |= (block_QC == best_Q[:, None]) & (number_C < best_item_Q[:, None])
        rank_Q += before.sum(dim=1)
    return rank_Q.numpy()


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
