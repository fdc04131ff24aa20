"""Near-duplicates by embeddings, as SemDeDup finds them (arXiv 2303.09540).

k-means puts images into clusters; within one, images whose cosine is high enough are the same, and
the best of them stays. Up to :data:`CLUSTER` images there is one cluster, and all pairs are
compared. Which images stay does not depend on threads: what is near the threshold is computed anew
in float64, without a library that adds up in an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Float64, Int64

CLUSTER = 65_536
"""Images of a cluster, about."""
_BLOCK, _COLUMNS = 1024, 8192
_SAMPLE, _ROUNDS = 256, 10
"""Images a cluster of which centres are made, and how often they move."""
_SLACK = 1e-3
"""More than float32 products are off."""
_DECIMALS = 6


def near_duplicates(
    embeddings: Float32[np.ndarray, "N D"], *, least: float
) -> dict[int, tuple[int, float]]:
    """Return for every image that repeats an earlier one: that one, which repeats none; the cosine.

    Args:
        embeddings: L2-normalised, the best image first.
        least: cosine from which two images are the same.

    >>> near_duplicates(np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32), least=0.7)
    {2: (1, 0.8)}
    """
    found: dict[int, tuple[int, float]] = {}
    clusters = _clusters(embeddings)
    for cluster in range(clusters.max(initial=-1) + 1):
        members = np.flatnonzero(clusters == cluster)
        for repeat, kept, cosine in _within(embeddings, members, least):
            found[repeat] = kept, cosine
    return found


def most_alike(
    embeddings: Float32[np.ndarray, "N D"],
    references: Float32[np.ndarray, "R D"],
    *,
    least: float,
) -> list[tuple[int, float] | None]:
    """Return the most similar reference of every image, and the cosine, where it is high enough.

    >>> images = np.array([[1, 0], [0.6, 0.8]], np.float32)
    >>> most_alike(images, np.array([[0, 1]], np.float32), least=0.7)
    [None, (0, 0.8)]
    """
    best: list[tuple[int, float] | None] = [None] * len(embeddings)
    for start in range(0, len(references), _COLUMNS):
        cosines = embeddings @ references[start : start + _COLUMNS].T
        close = cosines >= np.maximum(cosines.max(axis=1, keepdims=True), least) - _SLACK
        for row in np.flatnonzero(close.any(axis=1)).tolist():
            places = start + np.flatnonzero(close[row])
            exact = _exact(embeddings[row], references[places])
            first, known = int(exact.argmax()), best[row]
            if exact[first] >= (least if known is None else np.nextafter(known[1], 2)):
                best[row] = int(places[first]), float(exact[first])
    return best


def _within(
    embeddings: Float32[np.ndarray, "N D"], members: Int64[np.ndarray, " M"], least: float
) -> Iterator[tuple[int, int, float]]:
    """Repeats in a cluster: itself, what it repeats, the cosine."""
    kept = np.empty(0, np.int64)
    for start in range(0, len(members), _BLOCK):
        block = members[start : start + _BLOCK]
        repeated: dict[int, tuple[int, float]] = {}
        for first in range(0, len(kept), _COLUMNS):
            block = np.array([each for each in block if each not in repeated], np.int64)
            columns = kept[first : first + _COLUMNS]
            close = embeddings[block] @ embeddings[columns].T >= least - _SLACK
            for row in np.flatnonzero(close.any(axis=1)):
                _note(embeddings, int(block[row]), columns[close[row]], least, repeated)
        block = np.array([each for each in block if each not in repeated], np.int64)
        close = embeddings[block] @ embeddings[block].T >= least - _SLACK
        new = np.ones(len(block), bool)
        for row in np.flatnonzero(np.tril(close, -1).any(axis=1)):
            others = block[:row][close[row, :row] & new[:row]]
            new[row] = not _note(embeddings, int(block[row]), others, least, repeated)
        kept = np.concatenate([kept, block[new]])
        yield from ((repeat, other, cosine) for repeat, (other, cosine) in repeated.items())


def _note(
    embeddings: Float32[np.ndarray, "N D"],
    number: int,
    others: Int64[np.ndarray, " M"],
    least: float,
    repeated: dict[int, tuple[int, float]],
) -> bool:
    """Note the first of the others that an image repeats; whether there is one."""
    cosines = _exact(embeddings[number], embeddings[others])
    same = np.flatnonzero(cosines >= least)
    if len(same):
        repeated[number] = int(others[same[0]]), float(cosines[same[0]])
    return len(same) > 0


def _exact(
    own: Float32[np.ndarray, " D"], others: Float32[np.ndarray, "N D"]
) -> Float64[np.ndarray, " N"]:
    """Cosines of an image with others."""
    return (others.astype(np.float64) * own).sum(axis=1).round(_DECIMALS)


def _clusters(embeddings: Float32[np.ndarray, "N D"]) -> Int64[np.ndarray, " N"]:
    """The cluster of every image, by spherical k-means over a part of them."""
    number = -(-len(embeddings) // CLUSTER)
    if number < 2:
        return np.zeros(len(embeddings), np.int64)
    some = embeddings[:: max(1, len(embeddings) // (_SAMPLE * number))]
    centres = some[np.linspace(0, len(some) - 1, number).astype(int)].astype(np.float64)
    for _ in range(_ROUNDS):
        sums = np.zeros_like(centres)
        np.add.at(sums, _nearest(some, centres), some.astype(np.float64))
        sizes = np.linalg.norm(sums, axis=1, keepdims=True)
        moved = np.divide(sums, sizes, out=centres.copy(), where=sizes > 0)
        centres = moved.round(_DECIMALS)
    return _nearest(embeddings, centres)


def _nearest(
    embeddings: Float32[np.ndarray, "N D"], centres: Float64[np.ndarray, "K D"]
) -> Int64[np.ndarray, " N"]:
    parts = [
        (embeddings[start : start + _COLUMNS].astype(np.float64) @ centres.T).argmax(axis=1)
        for start in range(0, len(embeddings), _COLUMNS)
    ]
    return np.concatenate(parts)
