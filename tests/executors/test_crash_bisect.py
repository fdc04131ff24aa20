"""The search for a sample that kills, and how long a silent worker is waited for."""

from __future__ import annotations

import math

import pytest

from glit.backends.captioners.endpoint import ENDPOINT
from glit.backends.protocols import CaptionerConfig
from glit.executors.crash_bisect import HangTimeout, first_killer


@pytest.mark.parametrize("size", [1, 2, 3, 16, 64, 100])
def test_every_killer_is_found_with_few_tries(size):
    for killer in range(size):
        tried = []

        def kills(low, high, killer=killer, tried=tried):
            tried.append((low, high))
            return low <= killer < high

        assert first_killer(0, size, kills) == killer
        assert len(tried) <= math.ceil(math.log2(size)) + 1
        assert (killer, killer + 1) in tried or size == 1


def test_of_several_the_first_is_found():
    assert first_killer(0, 64, lambda low, high: low <= 50 < high or low <= 9 < high) == 9
    assert first_killer(10, 64, lambda low, high: low <= 50 < high) == 50


def test_many_that_kill_together_are_nobodys_fault():
    assert first_killer(0, 64, lambda low, high: high - low > 8) is None
    assert first_killer(0, 64, lambda low, high: False) is None


def test_patience_follows_what_was_heard():
    patience = HangTimeout()
    assert patience.limit_s == 3600
    patience.heard(2.0)
    assert patience.limit_s == 300
    patience.heard(40.0)
    patience.heard(1.0)
    assert patience.limit_s == 800


def test_a_wait_that_ends_by_itself_is_never_taken_for_a_loss():
    patience = HangTimeout(2000.0)
    assert patience.limit_s == 4000
    patience.heard(2.0)
    assert patience.limit_s == 4000


def test_an_endpoint_says_how_long_its_tries_may_take():
    config = CaptionerConfig(endpoint="http://localhost:1/v1", timeout_s=600.0, retries=5)
    assert ENDPOINT.longest_wait_s(config) == 2 * (1 + 5 + 1) * (600 + 60)
