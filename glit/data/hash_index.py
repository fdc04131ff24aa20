"""Hashes of 64 bits that differ in few: looked up in an index, and put into groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Int64, UInt64

_BANDS, _BAND_BITS = 4, 16
_SAME = np.array([0])
_FLIPS = np.array([0, *(1 << bit for bit in range(_BAND_BITS))])
"""Masks that flip one bit of a band, or none."""
SURE_BITS = 2 * _BANDS - 1
"""All hashes that differ in so many bits are found: of four bands, one then differs in at most one
(pigeonhole)."""
_BLOCK = 1024
_MOST_AT_ONCE = 1 << 22
"""Pairs that are compared at once, some 200 MB."""

Hashes = UInt64[np.ndarray, " N"]
Confirm = Callable[[np.ndarray, np.ndarray], np.ndarray]


class HashIndex:
    """Hashes in order of each of their bands.

    Args:
        hashes: N of them.
        flipped: whether a hash lies in every place where one bit of its band differs, so that one
            look finds all: for few hashes that many are compared with.
    """

    def __init__(self, hashes: Hashes, *, flipped: bool = False) -> None:
        self.hashes = hashes
        self._looked, kept = (_SAME, _FLIPS) if flipped else (_FLIPS, _SAME)
        self._order, self._sorted, self._first = [], [], []
        for band in range(_BANDS):
            keys = (_band(hashes, band)[:, None] ^ kept).ravel()
            order = np.argsort(keys, kind="stable")
            entries = (order // len(kept)).astype(np.int32)
            self._order.append(entries)
            self._sorted.append(hashes[entries])
            bounds = np.searchsorted(keys[order], np.arange(2**_BAND_BITS + 1))
            self._first.append(bounds.astype(np.int32))

    def near(
        self, own: UInt64[np.ndarray, " M"], *, most_bits: int
    ) -> tuple[Int64[np.ndarray, " P"], Int64[np.ndarray, " P"]]:
        """Return which hashes and which entries differ in few bits, in order: all pairs within
        :data:`SURE_BITS`, and some of the others.

        Args:
            own: M hashes.
            most_bits: in which a pair differs.
        """
        ranges = [self._ranges(own, band) for band in range(_BANDS)]
        total = sum(int((stop - start).sum(dtype=np.int64)) for start, stop in ranges)
        if total > _MOST_AT_ONCE and len(own) > 1:
            half = len(own) // 2
            first, second = (
                self.near(part, most_bits=most_bits) for part in (own[:half], own[half:])
            )
            return np.concatenate([first[0], second[0] + half]), np.concatenate(
                [first[1], second[1]]
            )
        found: list[np.ndarray] = []
        for band, (start, stop) in enumerate(ranges):
            number = stop - start
            place = np.repeat(stop - np.cumsum(number), number)
            place += np.arange(len(place))
            asked = np.repeat(np.arange(len(own)), number.reshape(len(own), -1).sum(axis=1))
            near = np.bitwise_count(own[asked] ^ self._sorted[band][place]) <= most_bits
            close = np.flatnonzero(near)
            found.append(np.stack([asked[close], self._order[band][place[close]]], axis=1))
        pairs = np.unique(np.concatenate(found), axis=0)
        return pairs[:, 0], pairs[:, 1]

    def _ranges(self, own: Hashes, band: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where the hashes of the same place start and stop in the order of a band."""
        keys = (_band(own, band)[:, None] ^ self._looked).ravel()
        return self._first[band][keys], self._first[band][keys + 1]


def near_groups(
    hashes: Hashes, *, most_bits: int, confirm: Confirm | None = None
) -> Int64[np.ndarray, " N"]:
    """Return for every hash the first of its group.

    Hashes that differ in few bits are of one group, and so are those that are each near a third.

    Args:
        hashes: N of them.
        most_bits: at most :data:`SURE_BITS`.
        confirm: tells of pairs of near hashes, by their numbers, whether they count; None takes
            them all.

    >>> near_groups(np.array([0, 0b1111, 0b11, 7 << 40], np.uint64), most_bits=2).tolist()
    [0, 0, 0, 3]
    """
    assert most_bits <= SURE_BITS, most_bits
    if confirm is None:
        values, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    else:
        values, first, inverse = hashes, np.arange(len(hashes)), np.arange(len(hashes))
    index, parent = HashIndex(values), list(range(len(values)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    for start in range(0, len(values), _BLOCK):
        asked, entry = index.near(values[start : start + _BLOCK], most_bits=most_bits)
        later = np.flatnonzero(entry > start + asked)
        pairs = start + asked[later], entry[later]
        if confirm is not None:
            counted = confirm(*pairs)
            pairs = pairs[0][counted], pairs[1][counted]
        for a, b in zip(*(each.tolist() for each in pairs), strict=True):
            parent[root(a)] = root(b)
    roots = np.array([root(number) for number in range(len(values))], np.int64)
    earliest = np.full(len(values), len(hashes))
    np.minimum.at(earliest, roots, first)
    return earliest[roots][inverse]


def _band(values: Hashes, band: int) -> Int64[np.ndarray, " N"]:
    mask = np.uint64(2**_BAND_BITS - 1)
    return ((values >> np.uint64(_BAND_BITS * band)) & mask).astype(np.int64)
