"""Hashes that differ in few bits, against all pairs compared."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from glit.data import hash_index
from glit.data.hash_index import HashIndex, near_groups


def made(number: int, seed: int) -> np.ndarray:
    """Random hashes, each of which has others that differ in up to 12 bits; some twice."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 2**64, number // 4, dtype=np.uint64)
    found = [*base]
    for value in base:
        for _ in range(3):
            flips = rng.choice(64, rng.integers(0, 13), replace=False)
            found.append(
                value ^ np.bitwise_or.reduce(np.uint64(1) << flips.astype(np.uint64), initial=0)
            )
    return np.array(found, np.uint64)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("at_once", [1 << 22, 50])
def test_all_pairs_within_seven_bits(flipped, at_once, monkeypatch):
    monkeypatch.setattr(hash_index, "_MOST_AT_ONCE", at_once)
    hashes = made(400, 0)
    own, entries = hashes[::3], hashes
    found = [*zip(*HashIndex(entries, flipped=flipped).near(own, most_bits=7), strict=True)]
    bits = np.bitwise_count(own[:, None] ^ entries)
    assert found == [*zip(*np.nonzero(bits <= 7), strict=True)] and len(found) > 200


@pytest.mark.parametrize("bits", [0, 3, 7])
def test_groups_are_those_of_a_graph(bits):
    hashes = made(300, 1)
    group = list(range(len(hashes)))
    for a, b in itertools.combinations(range(len(hashes)), 2):
        if int(hashes[a] ^ hashes[b]).bit_count() <= bits:
            first, second = sorted((group[a], group[b]))
            group = [first if each == second else each for each in group]
    assert near_groups(hashes, most_bits=bits).tolist() == group
    assert len({*group}) < len(group)


def test_none_and_one():
    assert near_groups(np.empty(0, np.uint64), most_bits=6).tolist() == []
    assert near_groups(np.array([7], np.uint64), most_bits=6).tolist() == [0]


def test_groups_of_confirmed_pairs():
    """Equal hashes too are asked for."""
    hashes = np.array([5, 5, 5, 4], np.uint64)
    kinds = np.array([0, 1, 0, 1])
    found = near_groups(hashes, most_bits=1, confirm=lambda one, other: kinds[one] == kinds[other])
    assert found.tolist() == [0, 1, 0, 1]
