"""Scores of captions with their own pictures, among those of captions with other pictures.

A score says how far a cosine is above that of the caption with other pictures, and of the picture
with other captions, in robust standard deviations. Why: docs/decisions/audit.md.

Shapes: N captions, S of the sample, M = S * (S - 1) captions with other pictures, D width of the
shared space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

_DEVIATIONS = 5.0
"""Robust standard deviations below the middle score, from which a caption is another picture's."""
_OTHERS = 0.99
"""Quantile of the scores of captions with other pictures, above which such a caption lies."""
_ROBUST = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""
_LEAST_DEVIATION = 1e-6
_NORMAL = 1.96
"""Standard deviations of an interval of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of captions with their own pictures, and with others."""

    own_N: Float[np.ndarray, " N"]
    others_M: Float[np.ndarray, " M"]
    least: float
    """Below it, a caption is of another picture."""
    recall: float
    """Share of ``others_M`` below it: captions of other pictures that are found."""


def scores(own_N: Float[np.ndarray, " N"], cosine_SS: Float[np.ndarray, "S S"]) -> Scores:
    """Choose the score below which a caption is of another picture.

    It is far below the scores of nearly all captions, and within those of other pictures.

    Args:
        own_N: of captions with their own pictures, by :func:`own_scores`.
        cosine_SS: of the sample's captions (rows) with its pictures (columns).
    """
    across, down = _robust(cosine_SS), _robust(cosine_SS.T)
    all_SS = (cosine_SS - across[0][:, None]) / across[1][:, None]
    all_SS += (cosine_SS - down[0]) / down[1]
    others_M = all_SS[~np.eye(len(all_SS), dtype=bool)]
    most, least = float(np.quantile(others_M, _OTHERS)), -math.inf
    for _ in range(2):  # those that are found first no longer widen the spread
        middle, deviation = _robust(own_N[None, own_N >= least])
        least = min(float(middle[0] - _DEVIATIONS * deviation[0]), most)
    return Scores(
        own_N=own_N, others_M=others_M, least=least, recall=float(np.mean(others_M < least))
    )


def own_scores(
    texts_ND: Float[np.ndarray, "N D"],
    pictures_ND: Float[np.ndarray, "N D"],
    texts_SD: Float[np.ndarray, "S D"],
    pictures_SD: Float[np.ndarray, "S D"],
) -> Float[np.ndarray, " N"]:
    """Scores of captions with their own pictures: for both, how many robust standard deviations
    their cosine is above the middle one with the sample.

    Args:
        texts_ND: embeddings of captions.
        pictures_ND: of their pictures.
        texts_SD: of the sample's captions.
        pictures_SD: of its pictures.
    """
    own_N = (texts_ND * pictures_ND).sum(axis=1)
    found_N = np.zeros(len(own_N))
    for each_ND, sample_SD in ((texts_ND, pictures_SD), (pictures_ND, texts_SD)):
        middle_N, deviation_N = _robust(each_ND @ sample_SD.T)
        found_N += (own_N - middle_N) / deviation_N
    return found_N


def _robust(
    values_NS: Float[np.ndarray, "N S"],
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Median and robust standard deviation of each row."""
    middle_N = np.median(values_NS, axis=1)
    apart_N = np.median(np.abs(values_NS - middle_N[:, None]), axis=1)
    return middle_N, np.maximum(_ROBUST * apart_N, _LEAST_DEVIATION)


def below_the_middle(
    cosine_SS: Float[np.ndarray, "S S"], other_SS: Bool[np.ndarray, "S S"]
) -> Bool[np.ndarray, " S"]:
    """Return for each row whether its own cosine, on the diagonal, is below half of the others.

    >>> cosine = np.array([[0.9, 0.1, 0.2], [0.5, 0.3, 0.4], [0.1, 0.2, 0.8]])
    >>> below_the_middle(cosine, ~np.eye(3, dtype=bool)).tolist()
    [False, True, False]
    """
    above_SS = other_SS & (cosine_SS >= cosine_SS.diagonal()[:, None])
    return 2 * above_SS.sum(axis=1) > other_SS.sum(axis=1)


def wilson(number: int, of: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share (Wilson 1927).

    >>> [round(end, 3) for end in wilson(5, 100)]
    [0.022, 0.112]
    """
    z2, share = _NORMAL**2, number / of
    middle = share + z2 / (2 * of)
    apart = _NORMAL * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max((middle - apart) / (1 + z2 / of), 0.0), min((middle + apart) / (1 + z2 / of), 1.0)
