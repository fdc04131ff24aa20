"""Steps of objectives, and two ways of the same work in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from glit.models.clip.random_clip import TINY
from tools.measure import train as bench


@pytest.mark.slow
def test_a_step_of_an_objective_says_what_it_brings(tmp_path: Path) -> None:
    step, added = bench.step_of("mulclip", TINY, 4, tmp_path)
    assert added > 0 and step() > 0


def test_two_ways_in_turn() -> None:
    calls: list[str] = []
    ways = {"ours": lambda: calls.append("a"), "other": lambda: sum(range(100_000))}
    found = bench.in_turn(ways, repeats=3)
    assert len(calls) == 4 and found["other_over_ours_cpu"]["median"] > 1
    assert found["cpu_s"]["other"] > found["cpu_s"]["ours"]
