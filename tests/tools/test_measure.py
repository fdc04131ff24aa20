"""The benchmark's two steps do the same work, and its tables are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from glit.bench.random_clip import TINY
from tools.measure import train as bench
from tools.measure.parts import in_turn


def test_our_step_and_the_published_one_have_the_same_loss(tmp_path: Path) -> None:
    steps = bench.published_and_ours(TINY, 6, tmp_path)
    assert steps["glit"]() == pytest.approx(steps["published"](), abs=1e-4)


def test_a_step_of_an_objective_says_what_it_brings(tmp_path: Path) -> None:
    step, added = bench.step_of("mulclip", TINY, 4, tmp_path)
    assert added > 0 and step() > 0


def test_two_ways_in_turn() -> None:
    calls: list[str] = []
    ways = {"ours": lambda: calls.append("a"), "other": lambda: sum(range(100_000))}
    found = in_turn(ways, repeats=3)
    assert len(calls) == 4 and found["other_over_ours_cpu"]["median"] > 1
    assert found["cpu_s"]["other"] > found["cpu_s"]["ours"]
