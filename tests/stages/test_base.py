"""Batches, and samples that take no others with them."""

from __future__ import annotations

import pytest

from glit.data.records import Drop
from glit.errors import RunError
from glit.runtime.prefetch import batched
from glit.stages.base import isolate


def test_batches_are_consecutive_and_the_last_is_what_is_left():
    assert list(batched(iter(range(7)), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(batched([], 3)) == []


class Model:
    """Doubles numbers; fails on negative ones, and on batches that are too large."""

    def __init__(self, most: int = 100) -> None:
        self.most, self.batches = most, []

    def __call__(self, numbers):
        self.batches.append(list(numbers))
        if len(numbers) > self.most:
            raise MemoryError("too many")
        if min(numbers) < 0:
            raise ValueError(f"bad {min(numbers)}")
        return [2 * number for number in numbers]


def test_a_sample_that_fails_becomes_a_drop_alone_and_in_its_place():
    model = Model()
    found = isolate([1, 2, -3, 4, 5], model)
    bad = Drop(reason="model_error", message="ValueError: bad -3")
    assert found == [2, 4, bad, 8, 10]
    assert model.batches == [[1, 2, -3, 4, 5], [1, 2], [-3, 4, 5], [-3], [4, 5]]


def test_a_batch_too_large_is_done_in_smaller_ones():
    model = Model(most=2)
    assert isolate([1, 2, 3, 4], model) == [2, 4, 6, 8]
    assert model.batches == [[1, 2, 3, 4], [1, 2], [3, 4]]


def test_nothing_asks_no_model():
    model = Model()
    assert isolate([], model) == [] and model.batches == []


def test_errors_of_the_run_pass_through():
    def full(numbers):
        raise RunError("the disk is full")

    with pytest.raises(RunError, match="the disk is full"):
        isolate([1, 2], full)


def test_a_model_that_answers_too_little_is_a_mistake_of_ours():
    with pytest.raises(AssertionError, match="1 results for 2 items"):
        isolate([1, 2], lambda numbers: [0])
