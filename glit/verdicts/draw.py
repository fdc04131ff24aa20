"""Draw items to judge: without replacement, with known chances, the uncertain ones more often.

The order is fixed before any verdict is seen. Every part of the population is drawn by the same
order: what is drawn of a part is a draw from the part, with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

_EVENLY = 0.8
"""The share of a weight that is the same for all items; the rest follows the uncertainty of the
item's probability. So no verdict counts more than 1.25 times as much as in an even draw."""
_BITS = 53
"""Bits of a float's fraction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Items, with what is known of them before any is judged."""

    key: UInt64[np.ndarray, " n"]
    """A number of every item that depends on its name alone."""
    predicted: Float[np.ndarray, " n"]
    """The chance that the item is wrong, in [0, 1], by its probability; it need not be true."""
    weight: Float[np.ndarray, " n"]
    """Proportional to the chance of being drawn next."""
    control: Float[np.ndarray, " n"]
    """The chance to be wrong that narrows bounds: ``predicted``, or with a model's opinion."""

    def __len__(self) -> int:
        return len(self.key)

    def part(self, chosen: Bool[np.ndarray, " n"]) -> Population:
        """The items that are chosen, as a population."""
        return Population(
            key=self.key[chosen], predicted=self.predicted[chosen], weight=self.weight[chosen],
            control=self.control[chosen],
        )  # fmt: skip

    def order(self, *, seed: int, num: int) -> Int[np.ndarray, " num"]:
        """The first ``num`` items of the draw: those with the shortest waiting times, which are
        exponential with the weights as rates (Efraimidis and Spirakis 2006)."""
        waiting = -np.log(_uniform(self.key, seed)) / self.weight
        num = min(num, len(self))
        first = np.argpartition(waiting, num - 1)[:num] if num < len(self) else np.arange(num)
        return first[np.lexsort((self.key[first], waiting[first]))]


def uncertainty(predicted: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The standard deviation of a verdict, were the predicted chance true."""
    return np.sqrt(predicted * (1 - predicted))


def weights(predicted: Float[np.ndarray, " n"], *, typical: float) -> Float[np.ndarray, " n"]:
    """Weights of items: most for those of which nobody knows whether they are wrong.

    Args:
        predicted: the chance that the item is wrong.
        typical: the mean uncertainty of the whole population.
    """
    relative = uncertainty(predicted) / typical if typical > 0 else np.ones_like(predicted)
    return _EVENLY + (1 - _EVENLY) * relative


def mixed(value: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """Scatter numbers over 64 bits (the last steps of SplitMix64, Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value ^ (value >> np.uint64(31))


def _uniform(key: UInt64[np.ndarray, " n"], seed: int) -> Float[np.ndarray, " n"]:
    """Numbers above 0, at most 1, of keys and a seed."""
    start = mixed(np.array([seed], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    bits = mixed(key ^ start) >> np.uint64(64 - _BITS)
    return (bits + np.uint64(1)).astype(np.float64) / float(1 << _BITS)
