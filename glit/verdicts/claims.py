"""Claims about the share of wrong items: whether they hold, and how many verdicts they want."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from glit.plain import limited
from glit.verdicts.bets import log_wealth
from glit.verdicts.draw import Population

MOST_VERDICTS = 20_000
"""The largest number of verdicts that a plan proposes."""
_STEPS = 40
"""The number of limits among which a bound is searched."""
_FIRST_PART = 0.5
"""The share of the predicted part that is tested first."""
_FIRST_VERDICTS = 1.5
"""Planned verdicts of the first part, as a multiple of :func:`fewest_verdicts`."""
_MOST_PARTS = 12
_POWER = 0.9
_ASSUMED = 0.5
"""The share of the claimed error that a plan assumes where probabilities do not tell."""
_TRUSTED = 0.6
"""The share of the claimed error below which predictions are believed by a plan."""
_SIMULATED_ITEMS, _SIMULATED_AUDITS = 20_000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the population that a claim is tested on."""

    most_predicted: float = limited(least=0, most=1)
    """The part holds the items whose predicted chance to be wrong is at most this, in [0, 1]."""
    verdicts: int = limited(least=1)
    """The planned number of verdicts on its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The result of testing a claim on a part."""

    part: Part
    items: int
    judged: int
    wrong: int
    proved_after: int | None
    """The number of verdicts on the part that proved the claim; None if it is not proved."""


def audit(
    population: Population,
    order: Int[np.ndarray, " t"],
    wrong: Bool[np.ndarray, " t"],
    part: Part,
    *,
    error: float,
    alpha: float,
) -> Audited:
    """Test the claim that at most a share ``error`` of a part's items is wrong.

    Args:
        population: all items, or those of the part.
        order: the items that were judged, in the order of the draw.
        wrong: the verdicts on them.
        part: of which items.
        error: what is claimed.
        alpha: 1 minus the confidence.
    """
    own = inside(population, order, wrong, part)
    number, judged, found = len(own.population), len(own.order), int(own.wrong.sum())
    if judged == number:  # all are judged: no chance is left
        proved = judged if judged and found <= error * number else None
    elif judged:
        wealth = log_wealth(
            own.population, own.order, own.wrong, limit=error, alpha=alpha, deadline=part.verdicts
        )
        proved = _first(wealth[0] >= -math.log(alpha))
    else:
        proved = None
    return Audited(part=part, items=number, judged=judged, wrong=found, proved_after=proved)


class Inside(NamedTuple):
    """A part as a population, and the verdicts on it."""

    population: Population
    order: Int[np.ndarray, " t"]
    wrong: Bool[np.ndarray, " t"]


def inside(
    population: Population,
    order: Int[np.ndarray, " t"],
    wrong: Bool[np.ndarray, " t"],
    part: Part,
) -> Inside:
    """Return the items of a part as a population, and the verdicts on them.

    Args: as :func:`audit`.
    """
    chosen = population.predicted <= part.most_predicted
    own = chosen[order]
    place = np.cumsum(chosen) - 1
    return Inside(population.part(chosen), place[order[own]], wrong[own])


def _first(reached: Bool[np.ndarray, " t"]) -> int | None:
    return int(reached.argmax()) + 1 if reached.any() else None


def largest_part(
    population: Population,
    order: Int[np.ndarray, " t"],
    wrong: Bool[np.ndarray, " t"],
    parts: Sequence[Part],
    *,
    error: float,
    alpha: float,
) -> list[Audited]:
    """Test growing parts until one is not proved; return the results in order.

    As each is tested only if all before it are proved, the chance that any of the claims is false
    stays at most ``alpha`` (fixed-sequence testing; Angelopoulos et al. 2021, "Learn then Test",
    section 3.3).

    Args:
        parts: fixed before any verdict.
        population, order, wrong, error, alpha: see :func:`audit`.
    """
    found: list[Audited] = []
    for part in parts:
        found.append(audit(population, order, wrong, part, error=error, alpha=alpha))
        if found[-1].proved_after is None:
            break
    return found


def growing_parts(
    population: Population, *, error: float, alpha: float, verdicts: int
) -> tuple[Part, ...]:
    """Return the parts that :func:`largest_part` tests.

    The first is half of the part that probabilities promise to meet the claim; the last is all.
    """
    predicted = np.sort(population.predicted)
    number = len(predicted)
    promised = int((np.cumsum(predicted) <= error * np.arange(1, number + 1)).sum())
    fewest = fewest_verdicts(error=error, alpha=alpha) * _FIRST_VERDICTS / verdicts
    first = min(1.0, max(fewest, _FIRST_PART * promised / number))
    places = np.ceil(np.geomspace(first, 1.0, _MOST_PARTS) * number).astype(int)
    limits = dict.fromkeys(predicted[np.clip(places, 1, number) - 1].tolist())
    total, found = population.weight.sum(), []
    for limit in limits:
        share = float(population.weight[population.predicted <= limit].sum() / total)
        found.append(Part(most_predicted=limit, verdicts=max(1, round(verdicts * share))))
    return tuple(found)


def fewest_verdicts(*, error: float, alpha: float, items: int | None = None) -> int:
    """Return the least number of verdicts that can prove a claim: all of them right.

    Args:
        error: what is claimed.
        alpha: 1 minus the confidence.
        items: their number, of which a share is judged; None if they are beyond number.
    """
    most = math.ceil(math.log(alpha) / math.log1p(-error))
    if items is None:
        return most
    right = items - math.floor(error * items + 1e-9) - 1  # at most, if the claim is false
    drawn = np.arange(min(most, max(right, 0)))
    log_chance = np.cumsum(np.log((right - drawn) / (items - drawn)))  # that all drawn are right
    proved = np.flatnonzero(log_chance <= math.log(alpha) + 1e-12)
    return int(proved[0]) + 1 if len(proved) else len(drawn) + (right < most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The share of wrong items: an estimate and bounds, each of which holds with the confidence."""

    estimate: float
    at_most: float
    at_least: float
    plain_at_most: float
    """By the exact binomial (Clopper and Pearson 1934), as if items had been drawn evenly and their
    number fixed before: to compare with, not to rely on."""


def bounds(
    population: Population,
    order: Int[np.ndarray, " t"],
    wrong: Bool[np.ndarray, " t"],
    *,
    alpha: float,
    deadline: int,
) -> Bounds:
    """Bound the share of wrong items from both sides; see :func:`audit`."""
    n, judged, found = len(population), len(order), int(wrong.sum())
    surely, left = found / n, (n - judged) / n
    inverse = population.weight.sum() / n / population.weight[order]
    estimate = float(np.clip((wrong * inverse).sum() / max(inverse.sum(), 1e-12), surely, 1))
    reach = 8 * math.sqrt(estimate * (1 - estimate) / max(judged, 1)) + 12 / max(judged, 1)
    higher = np.linspace(estimate, min(1.0, estimate + reach), _STEPS + 1)[1:]
    lower = np.linspace(max(0.0, estimate - reach), estimate, _STEPS, endpoint=False)

    def refuted(limits: Float[np.ndarray, " k"], until: int | None) -> Bool[np.ndarray, " k"]:
        wealth = log_wealth(population, order, wrong, limit=limits, alpha=alpha, deadline=until)
        return np.any(wealth >= -math.log(alpha), axis=1)

    # the outermost limits that are refuted with all beyond them
    at_most = _last(higher[::-1], refuted(higher, deadline)[::-1], otherwise=1.0)
    at_least = _last(lower, refuted(lower, None), otherwise=0.0)
    at_most, at_least = min(at_most, surely + left), max(at_least, surely)
    return Bounds(
        estimate=min(max(estimate, at_least), at_most),
        at_most=at_most,
        at_least=at_least,
        plain_at_most=exact_at_most(found, judged, alpha=alpha),
    )


def _last(
    limits: Float[np.ndarray, " k"], refuted: Bool[np.ndarray, " k"], *, otherwise: float
) -> float:
    number = len(refuted) if refuted.all() else int(np.argmin(refuted))
    return float(limits[number - 1]) if number else otherwise


def exact_at_most(wrong: int, judged: int, *, alpha: float) -> float:
    """Return the upper bound of Clopper and Pearson (1934) on a share, from independent verdicts.

    >>> round(exact_at_most(0, 59, alpha=0.05), 4)
    0.0495
    """
    if wrong >= judged:
        return 1.0
    low, high = wrong / max(judged, 1), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most_wrong(wrong, judged, middle) > alpha:
            low = middle
        else:
            high = middle
    return high


def _at_most_wrong(wrong: int, judged: int, chance: float) -> float:
    """Return the binomial chance of at most ``wrong`` wrong ones among ``judged``."""
    log_ways, total = 0.0, 0.0
    for k in range(wrong + 1):
        if k:
            log_ways += math.log((judged - k + 1) / k)
        total += math.exp(log_ways + k * math.log(chance) + (judged - k) * math.log1p(-chance))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The number of verdicts that a claim needs."""

    verdicts: int
    """The deadline of the plan."""
    predicted: float
    """The share of wrong items that probabilities tell; NaN if they tell nothing."""
    expected: int | None
    """Verdicts after which half of all audits prove the claim, if probabilities are true."""
    chance: float
    """The share of audits that prove it by the deadline, if probabilities are true."""


def needed(population: Population, *, error: float, alpha: float, verdicts: int = 0) -> Needed:
    """Estimate how many verdicts prove with a chance of 90 % that at most ``error`` is wrong.

    Probabilities that promise at most 60 % of that share are believed; else half of it is assumed.

    Args:
        population: of the items.
        error: what is claimed.
        alpha: 1 minus the confidence.
        verdicts: their number, if it is given.
    """
    predicted = float(population.predicted.mean())
    is_known = float(np.ptp(population.predicted)) > 0
    share, jump = _ASSUMED * error, 1.0
    if is_known and predicted <= _TRUSTED * error:
        noise = float((population.predicted * (1 - population.predicted)).mean())
        share, jump = max(predicted, error / 20), max(noise / max(predicted, 1e-9), 2 * error)
    most = min(len(population), MOST_VERDICTS)
    deadline = min(verdicts, most) or min(
        most, verdicts_of_test(share / jump, error / jump, alpha=alpha * 0.8)
    )
    some = population
    if len(some) > _SIMULATED_ITEMS:
        chosen = np.zeros(len(some), bool)
        chosen[np.random.default_rng(0).permutation(len(some))[:_SIMULATED_ITEMS]] = True
        some = some.part(chosen)
    assumed = some.predicted if is_known else np.full(len(some), share)
    while True:
        after = _simulated(some, assumed, error=error, alpha=alpha, deadline=deadline)
        chance = sum(each is not None for each in after) / len(after)
        if verdicts or chance >= _POWER or predicted > _TRUSTED * error or deadline >= most:
            break
        deadline = min(most, math.ceil(deadline * 1.2))
    done = sorted(each for each in after if each is not None)
    return Needed(
        verdicts=deadline,
        predicted=predicted if is_known else math.nan,
        expected=done[len(after) // 2] if len(done) > len(after) // 2 else None,
        chance=chance,
    )


def _simulated(
    population: Population,
    chance_wrong: Float[np.ndarray, " n"],
    *,
    error: float,
    alpha: float,
    deadline: int,
) -> list[int | None]:
    """Simulate audits; return after how many verdicts each proves the claim, or None."""
    num = min(deadline, len(population))
    orders = np.stack([population.order(seed=s, num=num) for s in range(_SIMULATED_AUDITS)])
    wrong = np.random.default_rng(0).random(orders.shape) < chance_wrong[orders]
    limits = np.full(len(orders), error)
    wealth = log_wealth(population, orders, wrong, limit=limits, alpha=alpha, deadline=deadline)
    return [_first(each) for each in wealth >= -math.log(alpha)]


def verdicts_of_test(share: float, limit: float, *, alpha: float) -> int:
    """Return the size of the exact binomial test of ``limit`` that ``share`` passes in 90 %."""
    judged = math.ceil(math.log(alpha) / math.log1p(-limit))
    while judged < MOST_VERDICTS:
        allowed = int(np.searchsorted(_binomial_tail(judged, limit), alpha, side="right"))
        if allowed and _binomial_tail(judged, share)[allowed - 1] >= _POWER:
            return judged
        judged = math.ceil(judged * 1.05)
    return MOST_VERDICTS


def _binomial_tail(number: int, share: float) -> np.ndarray:
    """The chances of at most 0, 1, … ``number`` hits of a share in so many draws, summed in
    logarithms: the first of them are below what a float holds."""
    if share <= 0:
        return np.ones(number + 1)
    hits = np.arange(1, number + 1)
    steps = np.log((number - hits + 1) / hits) + math.log(share) - math.log1p(-share)
    log_mass = number * math.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    return np.cumsum(np.exp(log_mass))
