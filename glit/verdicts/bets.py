"""Bet against the claim's opposite: that at least a share ``limit`` of all items is wrong.

Every verdict is a bet at fair odds under that opposite. Whoever bets so cannot come from 1 to
1 / alpha with a chance above alpha, however the stakes are chosen, whatever the probabilities are
worth, and whenever it ends (Ville 1939). Wealth of 1 / alpha therefore proves the claim with
confidence 1 - alpha. Odds are those of drawing without replacement with known chances, with the
probabilities as control variates:

    Z_t = wrong(I) / (n q(I)),   U_t = control(I) / (n q(I)) - mean of what is left
    X_t = Z_t - b U_t,           E[X_t | before] = (wrong items that are left) / n
    wealth *= 1 + stake (limit - (wrong items seen) / n - X_t)

for item I of n, drawn with chance q(I) from those left (Waudby-Smith and Ramdas 2024, section 5;
Shekhar, Xu, Lipton, Liang and Ramdas 2023 for chances and control variates; b is learned from the
verdicts before, as in prediction-powered inference, Angelopoulos et al. 2023).

Only the stakes are a matter of taste. Four fifths of the wealth bet towards a deadline, the number
of verdicts that was planned: as if wealth were the price of an option that pays if the claim is
proved by then (Browne 1999). That needs no more verdicts than the exact binomial test of that
number. One fifth bets constant fractions, so that a claim that holds by far is proved early, and
one that was planned too tightly is proved later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from glit.verdicts.draw import Population

_TOWARDS_DEADLINE = 0.8
_FRACTIONS = np.array([0.03, 0.06, 0.1, 0.15, 0.22, 0.3, 0.4, 0.52, 0.66, 0.8, 0.92, 1.0])
"""The constant stakes, as fractions of the highest stake."""
_LONGER = 1.5
"""The next deadline, as a multiple of the one that passed."""
_BELOW_RUIN = 0.999
"""The highest stake, as a part of the one that a verdict could ruin."""
_SLOPE, _SLOPE_VERDICTS = 0.5, 20.0
"""The prior of ``b``, and the number of verdicts that it counts as."""
_SPREAD_VERDICTS, _SHARE_VERDICTS = 50.0, 100.0
"""The number of verdicts that the predicted variance and the predicted share count as."""
_SAME = 1e-12
"""Variance below which all items have the same probability."""
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sums:
    """Sums and extremes over a population that odds and stakes need."""

    items: int
    weight: float
    control: float
    inverse: float
    """The greatest value of 1 / weight over all items."""
    surprise: float
    """The greatest value of (1 - control) / weight."""
    promise: float
    """The greatest value of control / weight."""
    spread: float
    """Variance of U_t in the first draw."""
    noise: float
    """Variance of X in it with b = 1, if predictions are true."""

    @classmethod
    def of(cls, found: Population) -> _Sums:
        weight, control = found.weight, found.control
        relative = weight.mean() / weight
        mean = float(control.mean())
        return cls(
            items=len(found),
            weight=float(weight.sum()),
            control=float(control.sum()),
            inverse=float((1 / weight).max()),
            surprise=float(((1 - control) / weight).max()),
            promise=float((control / weight).max()),
            spread=float((relative * control**2).mean()) - mean**2,
            noise=float((relative * control * (1 - control)).mean()),
        )


def log_wealth(
    population: Population,
    order: Int[np.ndarray, "*audits t"],
    wrong: Bool[np.ndarray, "*audits t"],
    *,
    limit: float | Float[np.ndarray, " rows"],
    alpha: float,
    deadline: int | None,
) -> Float[np.ndarray, "rows t"]:
    """Return the natural logarithm of the wealth after every verdict.

    Args:
        population: of the items.
        order: the items that were judged, in the order of the draw.
        wrong: the verdicts on them.
        limit: the share of wrong items that is bet against; a row of the result each. Of several
            audits one row each.
        alpha: wealth is wanted to reach its inverse.
        deadline: after how many verdicts. Without one, all bets are that *more* items are wrong
            than the limit.
    """
    sums = _Sums.of(population)
    n = sums.items
    limit = np.atleast_1d(np.asarray(limit, np.float64))
    order, wrong = np.atleast_2d(order), np.atleast_2d(wrong).astype(np.float64)
    rows = max(len(limit), len(order))
    weight, control = population.weight[order], population.control[order]
    left_weight = sums.weight - _before(weight)
    left_control = (sums.control - _before(control)) / n
    seen = _before(wrong) / n
    inverse = left_weight / (n * weight)
    z, u = wrong * inverse, control * inverse - left_control
    slope = _slope(z, u, sums.spread)
    x = z - slope * u
    mean = limit[:, None] - seen
    if deadline is None:
        least = slope * (left_control - left_weight / n * sums.promise)
        highest = _BELOW_RUIN / np.maximum(mean - least, 1e-9)
        gain = np.where(mean > least, x - mean, 1.0)  # as many are wrong already
        return _evenly(highest * gain)
    most = left_weight / n * ((1 - slope) * sums.inverse + slope * sums.surprise)
    most = most + slope * left_control
    highest = _BELOW_RUIN / np.maximum(most - mean, 1e-9)
    gain = np.where(mean > 0, mean - x, 0.0)
    jump = _jump(x, sums)
    goal = np.full(rows, np.log(_TOWARDS_DEADLINE))
    found = np.log(1 - _TOWARDS_DEADLINE) + _evenly(highest * gain)
    for t in range(order.shape[1]):
        while t >= deadline:
            deadline = max(deadline + 1, round(deadline * _LONGER))
        odds = mean[:, t]
        price = np.exp(np.minimum(goal + np.log(alpha), 0.0))
        jumps = np.broadcast_to(jump[:, t], rows)
        chance = np.clip(odds / np.maximum(jumps, odds * 1.5), 1e-9, 0.9)
        worth = _gain_of_option(np.clip(price, _TINY, 1 - 1e-12), deadline - t, chance)
        stake = np.minimum(worth / np.maximum(odds, 1e-12), highest[:, t])
        goal = goal + np.log1p(np.where(price < 1, stake, 0.0) * gain[:, t])
        found[:, t] = np.logaddexp(goal, found[:, t])
    return found


def _evenly(gain: Float[np.ndarray, "rows t"]) -> Float[np.ndarray, "rows t"]:
    """Wealth that is split evenly among constant fractions of the highest stake."""
    total = np.full(gain.shape, -np.inf)
    for fraction in _FRACTIONS:
        total = np.logaddexp(total, np.cumsum(np.log1p(fraction * gain), axis=1))
    return total - np.log(len(_FRACTIONS))


def _before(values: Float[np.ndarray, "audits t"]) -> Float[np.ndarray, "audits t"]:
    """Return the sum of the values before each verdict."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, 1)[:, :-1]], axis=1)


def _slope(
    z: Float[np.ndarray, "audits t"], u: Float[np.ndarray, "audits t"], spread: float
) -> Float[np.ndarray, "audits t"]:
    """Return how much of the control variate is taken before every verdict: the regression of ``z``
    on ``u`` over the verdicts so far, in [0, 1]."""
    if spread < _SAME:
        return np.zeros_like(z)
    prior = _SLOPE_VERDICTS * spread
    return np.clip((_before(z * u) + _SLOPE * prior) / (_before(u * u) + prior), 0, 1)


def _jump(x: Float[np.ndarray, "audits t"], sums: _Sums) -> Float[np.ndarray, "audits t"]:
    """Return how much a wrong item moves ``x``, before every verdict: variance over mean, as of a
    process that is 0 but for jumps of that size."""
    if sums.spread < _SAME:
        return np.ones_like(x)
    t = np.arange(x.shape[1])
    expected = max(sums.control / sums.items, 1e-3)
    share = (_SHARE_VERDICTS * expected + _before(x)) / (_SHARE_VERDICTS + t)
    after = (_SHARE_VERDICTS * expected + np.cumsum(x, 1)) / (_SHARE_VERDICTS + t + 1)
    noise = max(sums.noise, expected / 10)
    variance = _SPREAD_VERDICTS * noise + _before((x - after) ** 2)
    return variance / (_SPREAD_VERDICTS + t) / np.maximum(share, 1e-9)


def _gain_of_option(
    price: Float[np.ndarray, " rows"], left: int, chance: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """Return how much an option rises, as a share of its price, when the next of ``left``
    verdicts is right.

    It pays 1 if few enough verdicts are wrong, each with a ``chance``; the number allowed is the
    one for which the option has this price, a part of a verdict being drawn by lot (the exact
    binomial test, bought with wealth).
    """
    most = float((left * chance).max())
    k = np.arange(min(left, int(most + 7 * np.sqrt(most) + 12)) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, left + 1)))])
    ways = log_factorial[left] - log_factorial[k] - log_factorial[left - k]
    p = chance[:, None]
    mass = np.exp(ways + k * np.log(p) + (left - k) * np.log1p(-p))
    below = np.cumsum(mass, 1)
    allowed = np.minimum((below < price[:, None]).sum(1), len(k) - 1)
    row = np.arange(len(price))
    before = np.where(allowed > 0, below[row, allowed - 1], 0.0)
    part = np.clip((price - before) / np.maximum(mass[row, allowed], _TINY), 0, 1)
    decisive = mass * (left - k) / (left * (1 - p))
    """Chance that the other verdicts allow no further wrong one: it is this verdict that counts."""
    last = np.where(allowed > 0, decisive[row, allowed - 1], 0.0)
    return chance * ((1 - part) * last + part * decisive[row, allowed]) / price
