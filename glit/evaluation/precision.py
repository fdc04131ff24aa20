"""Mean average precision at K (GOAL's measure on its joint test set)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glit.evaluation.relevance import Relevance


def best_items(
    query_QD: Float[Tensor, "q d"],
    gallery_GD: Float[Tensor, "g d"],
    *,
    k: int,
    chunk: int = 4096,
) -> Int[np.ndarray, "q k"]:
    """The K most similar items of every query, best first, in blocks of queries and items.

    Of equal scores the item with the lower number comes first, whatever the blocks are.
    """
    k = min(k, len(gallery_GD))
    found = np.empty((len(query_QD), k), dtype=np.int64)
    for low in range(0, len(query_QD), chunk):
        query = query_QD[low : low + chunk]
        score = query.new_full((len(query), k), -torch.inf)
        item = torch.zeros(len(query), k, dtype=torch.long, device=query.device)
        for first in range(0, len(gallery_GD), chunk):
            block = query @ gallery_GD[first : first + chunk].T
            number = torch.arange(first, first + block.shape[1], device=query.device)
            score = torch.cat([score, block], dim=1)
            item = torch.cat([item, number.expand(len(query), -1)], dim=1)
            place = _first_of_best(score, k)
            score, item = score.gather(1, place), item.gather(1, place)
        found[low : low + chunk] = item.cpu().numpy()
    return found


def _first_of_best(score_QN: Float[Tensor, "q n"], k: int) -> Int[Tensor, "q k"]:
    """The places of the K highest scores, best first, and of equal ones the first."""
    least_Q1 = score_QN.topk(k, dim=1).values[:, -1:]
    above, equal = score_QN > least_Q1, score_QN == least_Q1
    room_Q1 = k - above.sum(dim=1, keepdim=True)
    kept = above | (equal & (equal.cumsum(dim=1) <= room_Q1))
    place_QK = kept.nonzero()[:, 1].view(-1, k)
    order_QK = score_QN.gather(1, place_QK).sort(dim=1, descending=True, stable=True).indices
    return place_QK.gather(1, order_QK)


def average_precision(
    items_QK: Int[np.ndarray, "q k"], relevance: Relevance
) -> Float[np.ndarray, " q"]:
    """Average precision of every query over its first K items.

    The sum of the precisions at the hits, over the number of hits there could be:
    min(relevant items, K). GOAL's script divides by all relevant items, which is the same as long
    as there are no more than K.

    Worked case: relevant items at ranks 1 and 3 give (1/1 + 2/3) / 2 = 0.833.
    """
    depth = items_QK.shape[1]
    result = np.zeros(len(relevance))
    for query, items in enumerate(items_QK):
        relevant = relevance.item[relevance.start[query] : relevance.start[query + 1]]
        hit_K = np.isin(items, relevant)
        precision_K = np.cumsum(hit_K) / np.arange(1, depth + 1)
        result[query] = (precision_K * hit_K).sum() / min(len(relevant), depth)
    return result
