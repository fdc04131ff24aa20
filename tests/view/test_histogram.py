"""Bins with round edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.view.histogram import histogram


def test_by_hand():
    found = histogram([(0.1, 1), (0.105, 2), (0.2, 7)], smallest_step=0.005)
    assert found is not None
    assert (found.step, found.start, found.total) == (0.005, pytest.approx(0.1), 10)
    assert (found.counts[:2], found.counts[-1]) == ((1, 2), 7)
    assert (found.low, found.median, found.high) == (0.1, 0.2, 0.2)


def test_of_nothing():
    assert histogram([], smallest_step=1) is None


@given(
    st.dictionaries(st.integers(-5000, 5000), st.integers(1, 9), min_size=1),
    st.sampled_from([1, 0.005, 0.01]),
)
def test_every_value_is_in_its_bin(numbers, step):
    values = [(number * step, numbers[number]) for number in sorted(numbers)]
    found = histogram(values, smallest_step=step)
    assert found is not None
    assert sum(found.counts) == found.total == sum(numbers.values())
    assert len(found.counts) <= 30
    assert found.counts[0] and found.counts[-1]
    assert found.start <= values[0][0] + 1e-6
    assert found.start + len(found.counts) * found.step > values[-1][0] - 1e-6
    assert round(found.step / step) == pytest.approx(found.step / step)
