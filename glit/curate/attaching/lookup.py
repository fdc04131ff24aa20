"""Find the published pictures that a user's picture may be: by name, looks and local features.

Looks are a hash of the picture in each of the eight ways it can be turned and mirrored, with its
even border and without. Features are signs of random projections of SIFT's descriptors (Charikar
2002), looked up in tables by parts of their bits; pictures that share most are proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.align import Looks, even_border
from glit.curate.attaching.features import Features
from glit.data.hash_index import HashIndex
from glit.images.likeness import look

if TYPE_CHECKING:
    from jaxtyping import Int32, Int64, UInt8, UInt64

    from glit.images import Pixels

_TABLES, _KEY_BITS, _FEWEST_BITS = 4, 24, 14
BYTES = _TABLES * _KEY_BITS // 8
"""Length of a signature."""
_STRONGEST = 100
"""Points of a picture that are looked up."""
_LEAST_VOTES, _MOST = 3, 6
"""Shared points of a proposal, and proposals a picture."""
_MOST_BITS = 7
_PROJECTIONS = np.random.default_rng(2024).standard_normal((128, 8 * BYTES)).astype(np.float32)


def signatures(features: Features) -> UInt8[np.ndarray, "N 12"]:
    """Return the bits by which points of a picture are looked up."""
    values = features.descriptors[:_STRONGEST].astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)
    return np.packbits(values @ _PROJECTIONS > 0, axis=1)


def hashes(pixels: Pixels) -> UInt64[np.ndarray, " H"]:
    """Return the hashes of a picture as it is, turned, mirrored, and without its border."""
    found = []
    border = even_border(pixels)
    inside = (
        [pixels]
        if border is None
        else [pixels, pixels[border[1] : border[3], border[0] : border[2]]]
    )
    for each in inside:
        for flipped in (each, each[:, ::-1]):
            for turns in range(4):
                value = look(np.ascontiguousarray(np.rot90(flipped, turns))).hash
                if value is not None:
                    found.append(value)
    return np.unique(np.array(found, np.int64).view(np.uint64))


def describe_published(looks: Looks) -> Described:
    """Return what a published picture is looked up by: its hash as it is, and its points."""
    value = look(looks.pixels).hash
    own = np.array([] if value is None else [value], np.int64).view(np.uint64)
    return Described(hashes=own, signatures=signatures(looks.features))


def describe_found(looks: Looks) -> Described:
    """Return by what a user's picture is looked up: its hashes, and its points both ways."""
    both = looks.features, looks.features.mirrored()
    signed = np.concatenate([signatures(each) for each in both])
    return Described(hashes=hashes(looks.pixels), signatures=signed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described:
    """Features by which the index finds a picture."""

    hashes: UInt64[np.ndarray, " H"]
    signatures: UInt8[np.ndarray, "N 12"]
    """Signatures of its points; of a user's picture also of those of the mirrored one."""


class Index:
    """Published pictures, by what they are looked up by.

    Args:
        pictures: the first hash of each, as it is, and the signatures.
    """

    def __init__(self, pictures: Sequence[Described]) -> None:
        owners = [np.full(len(each.hashes), n) for n, each in enumerate(pictures)]
        self._owner = np.concatenate([*owners, np.empty(0, np.int64)]).astype(np.int64)
        own = np.concatenate([*(each.hashes for each in pictures), np.empty(0, np.uint64)])
        self._hashes = HashIndex(own) if len(own) else None
        self._number = len(pictures)
        counts = [len(each.signatures) for each in pictures]
        signed = np.concatenate([*(e.signatures for e in pictures), np.empty((0, BYTES), np.uint8)])
        # as many bits as tell the points apart: a point shares a key with a sixteenth of another
        self._bits = int(np.clip(np.log2(max(len(signed), 1)) + 4, _FEWEST_BITS, _KEY_BITS))
        owner = np.repeat(np.arange(len(pictures)), counts).astype(np.int32)
        self._tables = []
        for table in range(_TABLES):
            keys = _keys(signed, table, self._bits)
            order = np.argsort(keys, kind="stable")
            self._tables.append((keys[order], owner[order]))

    def propose(self, picture: Described) -> list[int]:
        """Return the numbers of the published pictures that a picture may be, best match first."""
        votes = np.zeros(self._number, np.int64)
        for table, (keys, owner) in enumerate(self._tables):
            own = np.unique(_keys(picture.signatures, table, self._bits))
            start, stop = np.searchsorted(keys, own), np.searchsorted(keys, own, side="right")
            number = stop - start
            place = np.repeat(stop - np.cumsum(number), number) + np.arange(number.sum())
            asked = np.repeat(np.arange(len(own)), number)
            # a picture that repeats a point has one vote
            pairs = np.unique(asked * self._number + owner[place])
            votes += np.bincount(pairs % self._number, minlength=self._number)
        found = [int(n) for n in self._alike(picture)]
        order = np.argsort(-votes, kind="stable")[:_MOST]
        return [
            *dict.fromkeys([*found[:_MOST], *(int(n) for n in order if votes[n] >= _LEAST_VOTES)])
        ]

    def _alike(self, picture: Described) -> Int64[np.ndarray, " P"]:
        if self._hashes is None or not len(picture.hashes):
            return np.empty(0, np.int64)
        _, entries = self._hashes.near(picture.hashes, most_bits=_MOST_BITS)
        return np.unique(self._owner[entries])


def _keys(signed: UInt8[np.ndarray, "N 12"], table: int, bits: int) -> Int32[np.ndarray, " N"]:
    part = signed[:, 3 * table : 3 * table + 3].astype(np.int32)
    return (part[:, 0] << 16 | part[:, 1] << 8 | part[:, 2]) >> (_KEY_BITS - bits)
