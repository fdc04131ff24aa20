"""Rank a gallery for queries: Recall@K, and mean average precision at K.

A block of queries meets the whole gallery, each query once: 167 queries of 100,000 items are 64 MB.

Shapes: Q queries, C gallery items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glit.evaluation.relevance import Relevance

Scores = Callable[[slice], Float[Tensor, "q c"]]
"""Scores of some queries (their numbers) against the whole gallery, higher for a better fit."""


def query_blocks(num_queries: int, num_gallery: int, chunk: int) -> Iterator[slice]:
    """Blocks of queries that have at most ``chunk`` x ``chunk`` scores; one query or more each."""
    step = max(1, chunk * chunk // max(1, num_gallery))
    return (slice(low, min(low + step, num_queries)) for low in range(0, num_queries, step))


def first_hit_rank(
    scores: Scores, *, num_gallery: int, relevance: Relevance, chunk: int = 4096
) -> Int[np.ndarray, " q"]:
    """Rank (from 0) of the best relevant item of every query.

    The rank is the number of items before it, so nothing is sorted; of equal scores the lower
    item number comes first.

    Worked case: scores (0.9, 0.5, 0.7) with item 2 relevant give rank 1.

    Args:
        scores: of the queries.
        num_gallery: items.
        relevance: of every query.
        chunk: side of the square of scores that is in memory.
    """
    ranks = np.empty(len(relevance), dtype=np.int64)
    for queries in query_blocks(len(relevance), num_gallery, chunk):
        score_QC = scores(queries)
        right_QC = _mask(relevance[queries], num_gallery).to(score_QC.device)
        best_Q1 = score_QC.masked_fill(~right_QC, -torch.inf).amax(dim=1, keepdim=True)
        equal_QC = score_QC == best_Q1
        first_Q1 = (right_QC & equal_QC).byte().argmax(dim=1, keepdim=True)
        earlier_QC = torch.arange(num_gallery, device=score_QC.device) < first_Q1
        before_QC = (score_QC > best_Q1) | (equal_QC & earlier_QC)
        ranks[queries] = before_QC.sum(dim=1).cpu().numpy()
    return ranks


def _mask(relevance: Relevance, num_gallery: int) -> Bool[Tensor, "q c"]:
    """Which items are relevant to each query."""
    assert all(relevance), "every query needs a relevant item"
    mask_QC = torch.zeros(len(relevance), num_gallery, dtype=torch.bool)
    for row_C, items in zip(mask_QC, relevance, strict=True):
        row_C[torch.as_tensor(items)] = True
    return mask_QC


def recall_at(rank_Q: Int[np.ndarray, " q"], ks: Sequence[int]) -> dict[int, float]:
    """Share of queries whose best relevant item is among the first K, per K.

    >>> recall_at(np.array([0, 3, 9, 10]), [1, 5, 10])
    {1: 0.25, 5: 0.5, 10: 0.75}
    """
    return {k: float((rank_Q < k).mean()) for k in ks}


def best_items(
    score_QC: Float[Tensor, "q c"], k: int
) -> tuple[Int[np.ndarray, "q k"], Float[np.ndarray, "q k"]]:
    """The K items of the highest scores, best first, of equal scores the lower number first; and
    their scores."""
    score, item = score_QC.sort(dim=1, descending=True, stable=True)
    return item[:, :k].cpu().numpy(), score[:, :k].cpu().numpy()


def average_precision(
    scores: Scores, *, num_gallery: int, relevance: Relevance, k: int, chunk: int = 4096
) -> Float[np.ndarray, " q"]:
    """Average precision of every query over its first K items (GOAL's measure on its joint set).

    The sum of the precisions at the hits, over the number of hits there could be:
    min(relevant items, K). GOAL's script divides by all relevant items, which is the same as long
    as there are no more than K.

    Worked case: relevant items at ranks 1 and 3 give (1/1 + 2/3) / 2 = 0.833.

    Args:
        scores: of the queries.
        num_gallery: items.
        relevance: of every query.
        k: depth; at most the gallery counts.
        chunk: side of the square of scores that is in memory.
    """
    found = np.empty(len(relevance))
    for queries in query_blocks(len(relevance), num_gallery, chunk):
        items_QK, _ = best_items(scores(queries), k)
        right_QC = _mask(relevance[queries], num_gallery).numpy()
        hit_QK = np.take_along_axis(right_QC, items_QK, axis=1)
        depth = items_QK.shape[1]
        precision_QK = np.cumsum(hit_QK, axis=1) / np.arange(1, depth + 1)
        possible_Q = np.minimum(right_QC.sum(axis=1), depth)
        found[queries] = (precision_QK * hit_QK).sum(axis=1) / possible_Q
    return found
