"""Whether an image is one of a list of others: re-encoded, resized, turned, mirrored or cropped.

A reference is a grey thumbnail of 64 x 64. From it come difference hashes of the whole image and
of nine crops to 80 % of each side, in eight orientations. An image is compared with the references
whose hash differs from its own in at most 12 of 64 bits, by the correlation of both thumbnails, for
which the crop is moved until it fits best. Crops of the image are compared with whole references,
as they are and mirrored, the same way, so references that are crops are found too. Everything is
whole numbers but that correlation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float64, Int64, Real, UInt8, UInt64
from PIL import Image

from glit.images import Pixels

THUMBNAIL_PX = 64
MOST_BITS = 12
"""Of 64: hashes that differ in more are not compared further. All within 7 are found, and some of
those that differ in 8 to 12."""
LEAST_CORRELATION = 0.93
"""Of two thumbnails that are called the same picture."""
_CROPS = {58: (0, 3, 6), 51: (0, 3, 6, 10, 13)}
"""Sides of crops (90 and 80 %), and where they start."""
_LEAST_OF_MEANS = 0.8
"""Correlation of the 72 means below which the thumbnails are not compared."""
_ROWS, _COLUMNS = 8, 9
_FINE = 32
"""Means a side of which two thumbnails are compared in the end."""
_BANDS, _BAND_BITS = 4, 16

Thumbnail = UInt8[np.ndarray, "64 64"]
Thumbnails = UInt8[np.ndarray, "N 64 64"]
Window = tuple[int, int, int]
"""Top, left and side of a square part of a thumbnail, pixels."""
WHOLE: Window = (0, 0, THUMBNAIL_PX)
WINDOWS: tuple[Window, ...] = (
    WHOLE,
    *((top, left, side) for side, at in _CROPS.items() for top in at for left in at),
)
VARIANTS: tuple[tuple[int, Window], ...] = (
    *((orientation, WHOLE) for orientation in range(8)),
    *((orientation, window) for orientation in (0, 4) for window in WINDOWS[1:]),
)
"""Four turns of the image and of its mirror image; crops of the image and its mirror image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resemblance:
    """A reference that an image resembles."""

    reference: int
    """Its number in the list."""
    orientation: int
    """0: as it is; 1 to 3: turned that often by 90 degrees; 4 to 7: mirrored, then turned."""
    is_cropped: bool
    is_crop_listed: bool
    """Whether the reference is a crop of the image."""
    correlation: float

    @property
    def kind(self) -> str:
        """In words, what was done to the reference."""
        done = ["mirrored"] * (self.orientation >= 4)
        done += ["turned"] * (self.orientation % 4 > 0) + ["cropped"] * self.is_cropped
        words = f"same picture, {' and '.join(done)}" if done else "same picture"
        return f"{words}; the list has a crop" if self.is_crop_listed else words


def thumbnail(pixels: Pixels) -> Thumbnail:
    """The image in grey, squeezed to a square."""
    size = (THUMBNAIL_PX, THUMBNAIL_PX)
    return np.asarray(Image.fromarray(pixels).convert("L").resize(size, Image.Resampling.BOX))


def turned(images: np.ndarray, orientation: int) -> np.ndarray:
    """Images [..., H, W] in one of the eight orientations."""
    mirrored = images[..., ::-1] if orientation >= 4 else images
    return np.rot90(mirrored, orientation % 4, axes=(-2, -1))


def hashes(
    images: Thumbnails, window: Window = WHOLE
) -> tuple[UInt64[np.ndarray, " N"], UInt8[np.ndarray, "N 72"]]:
    """Difference hashes of a part of each thumbnail, a bit for each of 8 x 8 rising neighbours;
    and the 8 x 9 means that are compared."""
    top, left, side = window
    part = images[:, top : top + side, left : left + side].astype(np.float64)
    # whole numbers below 2 ** 53: the same on every machine
    sums = _overlaps(side, _ROWS) @ part @ _overlaps(side, _COLUMNS).T
    bits = (sums[:, :, 1:] > sums[:, :, :-1]).reshape(len(images), 64)
    means = (sums / side**2).astype(np.uint8).reshape(len(images), _ROWS * _COLUMNS)
    return np.packbits(bits, axis=1).view(">u8")[:, 0].astype(np.uint64), means


@cache
def _overlaps(side: int, cells: int) -> Float64[np.ndarray, "cells side"]:
    """How much of each pixel lies in each cell, in shares of 1 / cells of a pixel."""
    starts, pixels = np.arange(cells)[:, None] * side, np.arange(side) * cells
    shared = np.minimum(starts + side, pixels + cells) - np.maximum(starts, pixels)
    return np.clip(shared, 0, None).astype(np.float64)


class References:
    """Thumbnails in an index by their hashes.

    Args:
        thumbnails: of the references; those of one colour resemble nothing.
    """

    def __init__(self, thumbnails: Thumbnails) -> None:
        self._thumbnails = thumbnails
        telling = np.flatnonzero(
            np.ptp(thumbnails.reshape(len(thumbnails), THUMBNAIL_PX**2), axis=1)
        )
        made = [
            hashes(turned(thumbnails[telling], orientation), window)
            for orientation, window in VARIANTS
        ]
        self._reference = np.tile(telling, len(made))
        self._variant = np.repeat(np.arange(len(made)), len(telling))
        values = np.concatenate([values for values, _ in made])
        means = np.concatenate([means for _, means in made])
        self._index = _Index(values, means)
        upright = [at for at, each in enumerate(VARIANTS) if each in ((0, WHOLE), (4, WHOLE))]
        self._uprights = np.flatnonzero(np.isin(self._variant, upright))
        self._upright = _Index(values[self._uprights], means[self._uprights])

    def resembled(self, images: Thumbnails) -> list[Resemblance | None]:
        """For each thumbnail the reference that it resembles most, if it resembles any."""
        found: list[Resemblance | None] = [None] * len(images)
        best = np.full(len(images), LEAST_CORRELATION)
        for part, image, entry in self._candidates(images):
            if not np.ptp(images[image]):
                continue
            orientation, window = VARIANTS[self._variant[entry]]
            reference = int(self._reference[entry])
            whole = turned(self._thumbnails[reference], orientation)
            if part == WHOLE:
                value = _best_correlation(images[image], whole, window)
            else:
                value = _best_correlation(whole, images[image], part)
            if value > best[image]:
                best[image] = value
                found[image] = Resemblance(
                    reference=reference,
                    orientation=orientation,
                    is_cropped=window != WHOLE,
                    is_crop_listed=part != WHOLE,
                    correlation=value,
                )
        return found

    def _candidates(self, images: Thumbnails) -> Iterator[tuple[Window, int, int]]:
        """Parts of images, the images, and entries that may be the same."""
        for image, entry in self._index.near(*hashes(images)):
            yield WHOLE, image, entry
        parts = [hashes(images, part) for part in WINDOWS[1:]]
        values, means = (np.concatenate(each) for each in zip(*parts, strict=True))
        for number, place in self._upright.near(values, means):
            part, image = divmod(number, len(images))
            yield WINDOWS[1 + part], image, int(self._uprights[place])


class _Index:
    """Hashes in order of each of their bands."""

    def __init__(self, values: UInt64[np.ndarray, " N"], means: UInt8[np.ndarray, "N 72"]) -> None:
        self.hashes, self.means = values, means
        self._order, self._sorted, self._first = [], [], []
        for band in range(_BANDS):
            keys = _band(values, band)
            order = np.argsort(keys, kind="stable")
            self._order.append(order)
            self._sorted.append(values[order])
            self._first.append(np.searchsorted(keys[order], np.arange(2**_BAND_BITS + 1)))

    def near(
        self, own: UInt64[np.ndarray, " M"], means: UInt8[np.ndarray, "M 72"]
    ) -> Iterator[tuple[int, int]]:
        """Numbers of hashes and entries that differ in few bits, in order."""
        flips = np.array([0, *(1 << bit for bit in range(_BAND_BITS))])
        seen: list[np.ndarray] = []
        for band in range(_BANDS):
            keys = (_band(own, band)[:, None] ^ flips).ravel()
            start = self._first[band][keys]
            number = self._first[band][keys + 1] - start
            place = np.repeat(start - (np.cumsum(number) - number), number)
            place += np.arange(len(place), dtype=place.dtype)
            image = np.repeat(np.repeat(np.arange(len(own)), len(flips)), number)
            near = np.bitwise_count(own[image] ^ self._sorted[band][place]) <= MOST_BITS
            close = np.flatnonzero(near)
            image, entry = image[close], self._order[band][place[close]]
            alike = _correlations(means[image], self.means[entry]) >= _LEAST_OF_MEANS
            seen.append(np.stack([image[alike], entry[alike]], axis=1))
        yield from map(tuple, np.unique(np.concatenate(seen), axis=0).tolist())


def _band(values: UInt64[np.ndarray, " N"], band: int) -> Int64[np.ndarray, " N"]:
    mask = np.uint64(2**_BAND_BITS - 1)
    return ((values >> np.uint64(_BAND_BITS * band)) & mask).astype(np.int64)


def _best_correlation(image: Thumbnail, whole: Thumbnail, window: Window) -> float:
    """Of the image and a part of the other; a crop is moved by up to two pixels, and resized."""
    top, left, side = window
    own = _shrunk(image[None])
    if side == THUMBNAIL_PX:
        return float(_correlations(own, _shrunk(whole[None]))[0])
    best = -1.0
    for size in range(side - 1, side + 2):
        parts = [
            whole[y : y + size, x : x + size] for y in _near(top, size) for x in _near(left, size)
        ]
        best = max(best, float(_correlations(own, _shrunk(np.stack(parts))).max()))
    return best


def _near(start: int, size: int) -> Sequence[int]:
    return range(max(0, start - 2), min(start + 2, THUMBNAIL_PX - size) + 1)


def _shrunk(squares: UInt8[np.ndarray, "N side side"]) -> Float64[np.ndarray, "N P"]:
    shares = _overlaps(squares.shape[1], _FINE)
    return (shares @ squares.astype(np.float64) @ shares.T).reshape(len(squares), -1)


def _correlations(
    first: Real[np.ndarray, "_n P"], second: Real[np.ndarray, "N P"]
) -> Float64[np.ndarray, " N"]:
    """Pearson's, between -1 and 1; 0 where one of them has one colour."""
    a, b = (each - each.mean(axis=1, keepdims=True) for each in (first, second))
    size = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.divide((a * b).sum(axis=1), size, out=np.zeros(len(size)), where=size > 0)
