"""Pick queries that succeed and queries that fail, with their top results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from glit.evaluation.collection import Collection
from glit.evaluation.ranking import Scores, best_items
from glit.evaluation.relevance import Relevance
from glit.images.thumbnails import data_url, thumbnail

NEAREST = 3
_PICTURE_SIDE = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """A query: its correct result, that result's rank, and the first results."""

    query: int
    rank: int
    """Rank of the best right item, from 0."""
    right: tuple[int, ...]
    """The items that it should find."""
    nearest: tuple[int, ...]
    """The first items, best first."""
    scores: tuple[float, ...]
    """Theirs."""


def examples(
    scores: Scores, rank_Q: Int[np.ndarray, " q"], relevance: Relevance, *, most: int
) -> tuple[list[Neighbours], list[Neighbours]]:
    """Pick queries whose first result is correct, and the worst ranked queries, worst first.

    Right ones are taken from all over the queries.

    Args:
        scores: of the queries.
        rank_Q: of every query's best right item.
        relevance: of every query.
        most: of each kind.
    """
    good = np.flatnonzero(rank_Q == 0)
    spread = good[np.linspace(0, len(good) - 1, min(most, len(good))).astype(int)]
    bad = np.flatnonzero(rank_Q > 0)
    worst = bad[np.argsort(-rank_Q[bad], kind="stable")][:most]

    def one(query: int) -> Neighbours:
        items_1K, scores_1K = best_items(scores(slice(query, query + 1)), NEAREST)
        return Neighbours(
            query=query,
            rank=int(rank_Q[query]),
            right=tuple(relevance[query]),
            nearest=tuple(items_1K[0].tolist()),
            scores=tuple(scores_1K[0].tolist()),
        )

    return [one(query) for query in spread.tolist()], [one(query) for query in worst.tolist()]


def as_dicts(
    found: Sequence[Neighbours], *, by: str, texts: Sequence[str], collection: Collection
) -> list[dict[str, Any]]:
    """Neighbours with their texts, and with small pictures inside.

    Args:
        found: the queries.
        by: ``text`` where texts look for images, ``image`` for the reverse.
        texts: of all captions.
        collection: whose images they are.

    Raises:
        ImageError: an image is damaged.
    """

    def picture(number: int) -> dict[str, str]:
        webp = thumbnail(collection.image(number), max_side=_PICTURE_SIDE)
        return {"name": collection.names[number], "image": data_url(webp)}

    def text(number: int) -> dict[str, str]:
        return {"text": texts[number]}

    asked, item = (text, picture) if by == "text" else (picture, text)
    return [
        {
            "query": asked(each.query),
            "rank": each.rank,
            "right": item(each.right[0]),
            "nearest": [
                {**item(number), "score": round(score, 5), "right": number in each.right}
                for number, score in zip(each.nearest, each.scores, strict=True)
            ],
        }
        for each in found
    ]
