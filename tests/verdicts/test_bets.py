"""Bets are fair, claims are rarely false, and few verdicts are enough."""

from __future__ import annotations

import itertools
import math
from math import comb

import numpy as np
import pytest
from scipy import stats

from glit.verdicts.agreement import cohens_kappa
from glit.verdicts.bets import log_wealth
from glit.verdicts.claims import (
    bounds,
    exact_at_most,
    fewest_verdicts,
    growing_parts,
    largest_part,
    needed,
)
from glit.verdicts.draw import Population
from tools.measure.audits import drawn, population, proved_after

AUDITS = 400


def claims(of: Population, wrong: np.ndarray, *, limit: float, deadline: int, most: int):
    """After how many verdicts each audit claims that fewer than the limit are wrong."""
    return proved_after(of, wrong, limit=limit, deadline=deadline, most=most, audits=AUDITS)


@pytest.mark.parametrize("deadline", [2, 5, None])
def test_every_bet_is_fair_over_all_orders(deadline):
    """At a limit that is the truth the expected wealth stays 1, at each verdict."""
    of = population(np.array([0.05, 0.3, 0.6, 0.9, 0.2]))
    wrong = np.array([False, True, False, True, False])
    total = np.zeros(5)
    for order in itertools.permutations(range(5)):
        chosen, left = 1.0, of.weight.sum()
        for at in order:
            chosen *= of.weight[at] / left
            left -= of.weight[at]
        numbers = np.array(order)
        made = log_wealth(of, numbers, wrong[numbers], limit=0.4, alpha=0.05, deadline=deadline)
        total += chosen * np.exp(made[0])
    np.testing.assert_allclose(total, 1, atol=1e-9)


@pytest.mark.parametrize("kind", ["calibrated", "of another level", "constant", "reversed"])
@pytest.mark.parametrize("error", [0.02, 0.1])
def test_a_false_claim_passes_in_one_of_twenty_audits_at_most(kind, error):
    """Whatever predictions are worth, and though each audit stops when it likes."""
    of, wrong = drawn(error, kind, items=4000)
    after = claims(of, wrong, limit=error, deadline=200, most=300)
    slack = 3 * math.sqrt(0.05 * 0.95 / AUDITS)
    assert np.isfinite(after).mean() <= 0.05 + slack


def test_worthless_predictions_want_no_more_than_the_exact_test():
    """The exact binomial test of 311 verdicts accepts 2 % against 5 % in 90 % of audits."""
    allowed = stats.binom.ppf(0.05, 311, 0.05) - 1
    assert stats.binom.cdf(allowed, 311, 0.02) > 0.9
    of, wrong = drawn(0.02, "constant")
    after = claims(of, wrong, limit=0.05, deadline=343, most=343)
    assert np.isfinite(after).mean() > 0.85


def test_good_predictions_want_half():
    """The exact binomial test wants 832 verdicts for 3 % against 5 %."""
    of, wrong = drawn(0.03, "calibrated", 0.99, items=4000)
    after = claims(of, wrong, limit=0.05, deadline=416, most=416)
    assert np.isfinite(after).mean() > 0.9


def test_items_are_drawn_by_their_weights_and_parts_by_the_same_order():
    predicted = np.array([0.0, 0.5] * 50)
    of = population(predicted)
    first = np.array([of.order(seed=seed, num=1)[0] for seed in range(4000)])
    share = of.weight[1] / (of.weight[0] + of.weight[1])
    assert abs(predicted[first].mean() * 2 - share) < 0.03
    inside = predicted < 0.4
    whole = of.order(seed=3, num=100)
    numbers = np.flatnonzero(inside)
    assert numbers[of.part(inside).order(seed=3, num=50)].tolist() == [
        at for at in whole.tolist() if inside[at]
    ]
    assert of.order(seed=3, num=10).tolist() == whole[:10].tolist()
    assert of.order(seed=4, num=10).tolist() != whole[:10].tolist()


def test_growing_parts_are_claimed_falsely_in_one_of_twenty_audits_at_most():
    of, wrong = drawn(0.2, "of another level", items=3000)
    parts = growing_parts(of, error=0.05, alpha=0.05, verdicts=150)
    assert parts[-1].most_predicted == of.predicted.max() and len(parts) > 4
    assert [each.verdicts for each in parts] == sorted(each.verdicts for each in parts)
    false = proved = 0
    audits = 30
    for seed in range(audits):
        order = of.order(seed=seed, num=150)
        tested = largest_part(of, order, wrong[order], parts, error=0.05, alpha=0.05)
        held = [each.part for each in tested if each.proved_after is not None]
        proved += bool(held)
        false += any(wrong[of.predicted <= each.most_predicted].mean() > 0.05 for each in held)
    assert proved > 5
    assert false / audits <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / audits)


def test_bounds_hold_and_narrow():
    of, wrong = drawn(0.04, "calibrated", items=3000)
    truth, widths, missed = wrong.mean(), [], 0
    for seed in range(12):
        order = of.order(seed=seed, num=300)
        near, far = (
            bounds(of, order[:n], wrong[order[:n]], alpha=0.05, deadline=300) for n in (300, 75)
        )
        assert near.at_least <= near.estimate <= near.at_most
        missed += not near.at_least <= truth <= near.at_most
        widths.append((near.at_most - near.at_least) / (far.at_most - far.at_least))
    assert missed <= 4 and np.mean(widths) < 0.7


def test_when_all_are_judged_nothing_is_left_to_chance():
    of = population(np.full(40, 0.1))
    wrong = np.arange(40) < 2
    order = of.order(seed=0, num=40)
    found = bounds(of, order, wrong[order], alpha=0.05, deadline=40)
    assert found.at_least == found.estimate == found.at_most == 0.05
    for limit, held in ((0.05, True), (0.049, False)):
        parts = growing_parts(of, error=limit, alpha=0.05, verdicts=40)
        (tested,) = largest_part(of, order, wrong[order], parts, error=limit, alpha=0.05)
        assert (tested.proved_after is not None) is held


@pytest.mark.parametrize(("wrong", "judged"), [(0, 59), (3, 100), (50, 400), (7, 7)])
def test_the_plain_bound_is_that_of_clopper_and_pearson(wrong, judged):
    wanted = 1.0 if wrong == judged else stats.beta.ppf(0.95, wrong + 1, judged - wrong)
    assert exact_at_most(wrong, judged, alpha=0.05) == pytest.approx(wanted, abs=1e-9)


def test_a_plan_is_large_enough_where_predictions_are_true():
    of, _ = drawn(0.02, "calibrated", auc=0.99, items=4000)
    plan = needed(of, error=0.05, alpha=0.05)
    assert plan.chance >= 0.9 and plan.expected is not None
    assert 59 < plan.expected < plan.verdicts < 311
    assert needed(of, error=0.05, alpha=0.05, verdicts=80).verdicts == 80
    nothing = needed(population(np.full(4000, 0.5)), error=0.05, alpha=0.05)
    assert 300 < nothing.verdicts < 1000


def test_kappa_is_agreement_beyond_chance():
    """20 both yes, 5 and 10 apart, 15 both no: agreed .7, by chance .5."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohens_kappa(first, second) == pytest.approx(0.4)
    assert cohens_kappa(first, first) == 1
    assert cohens_kappa(["yes", "no"], ["no", "yes"]) == -1
    assert cohens_kappa(["yes"] * 3, ["yes"] * 3) == 1
    assert math.isnan(cohens_kappa([], []))


@pytest.mark.parametrize("error", [0.001, 0.01, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("items", [1, 2, 5, 20, 70, 300])
def test_the_fewest_verdicts_are_those_of_a_draw_without_replacement(items, error):
    wrong = int(error * items + 1e-9) + 1  # if the claim is false
    all_right = [comb(items - wrong, num) / comb(items, num) for num in range(items + 1)]
    by_hand = next(num for num, chance in enumerate(all_right) if chance <= 0.05)
    assert fewest_verdicts(error=error, alpha=0.05, items=items) == by_hand
    assert fewest_verdicts(error=error, alpha=0.05, items=10**8) == fewest_verdicts(
        error=error, alpha=0.05
    )
