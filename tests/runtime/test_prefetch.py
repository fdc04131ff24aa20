"""Work done ahead by threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from glit.runtime.prefetch import map_ahead


def ahead(items, **limits):
    """What comes out, and how many were begun and not yet taken, at most."""
    begun, most, taken, lock = 0, 0, 0, threading.Lock()

    def work(item):
        nonlocal begun, most
        with lock:
            begun += 1
            most = max(most, begun - taken)
        return -item

    found = []
    with ThreadPoolExecutor(4) as pool:
        for result in map_ahead(pool, work, iter(items), **limits):
            found.append(result)
            taken += 1
    return found, most


def test_results_come_in_order_and_a_few_are_ahead():
    found, most = ahead(range(20), most=3)
    assert found == [-n for n in range(20)] and most <= 4
    assert ahead([], most=3) == ([], 0)


def test_heavy_items_are_done_with_fewer_ahead():
    found, most = ahead([4] * 9, most=8, weight=abs, heaviest=9)
    assert found == [-4] * 9 and most <= 3
    found, most = ahead([99, 1, 99, 99], most=8, weight=abs, heaviest=9)
    assert found == [-99, -1, -99, -99] and most <= 2


def test_once_one_has_failed_no_other_is_begun():
    begun = []

    def work(item):
        begun.append(item)
        raise OSError(f"item {item}")

    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="item 0"):
        list(map_ahead(pool, work, range(9), most=5))
    assert begun == [0]


def test_when_nobody_takes_results_no_other_is_begun():
    begun, go_on = [], threading.Event()

    def work(item):
        begun.append(item)
        assert item == 0 or go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        results = map_ahead(pool, work, range(9), most=5)
        next(results)
        results.close()
        go_on.set()
    assert len(begun) <= 2
