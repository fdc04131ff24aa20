"""Find images of a list in another: re-encoded, resized, turned, mirrored or cropped.

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
from itertools import groupby

import numpy as np
from jaxtyping import Float32, Float64, Int64, Real, UInt8, UInt64
from PIL import Image

from glit.data.hash_index import HashIndex
from glit.images import Pixels

THUMBNAIL_PX = 64
MOST_BITS = 12
"""Most bits, of 64, in which hashes differ that are compared further. All within 7 are found, and
some of those that differ in 8 to 12."""
LEAST_CORRELATION = 0.93
"""Least correlation of two thumbnails that are called the same picture."""
_CROPS = {58: (0, 3, 6), 51: (0, 3, 6, 10, 13)}
"""Sides of crops (90 and 80 %), and where they start."""
_LEAST_STEP, _LEAST_STEPS = 2, 8
"""Grey levels and number of steps between neighbouring means, below which a hash says next to
nothing of its picture."""
_LEAST_OF_MEANS = 0.8
"""Correlation of the 72 means below which the thumbnails are not compared."""
_ROWS, _COLUMNS = 8, 9
_FINE = 32
"""Means a side of which two thumbnails are compared in the end."""

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
    """True if the reference is a crop of the image."""
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
    images: Thumbnails, windows: Sequence[Window] = (WHOLE,)
) -> tuple[UInt64[np.ndarray, " M"], UInt8[np.ndarray, "M 72"]]:
    """Difference hashes of parts of each thumbnail, a bit for each of 8 x 8 rising neighbours; and
    the 8 x 9 means that are compared. Those of all images for the first part, then for the next.

    Args:
        images: N of them; M is W times N.
        windows: W parts; those of one side follow each other.
    """
    pixels, values, means = images.astype(np.float32), [], []
    for side, group in groupby(windows, key=lambda window: window[2]):
        parts = list(group)
        starts = sorted({start for part in parts for start in part[:2]})
        rows, columns = (_placed(side, tuple(starts), cells) for cells in (_ROWS, _COLUMNS))
        # whole numbers below 2 ** 24: float32 is exact, the same on every machine
        sums = (rows @ pixels @ columns.T).astype(np.int32)
        sums = sums.reshape(len(images), len(starts), _ROWS, len(starts), _COLUMNS)
        tops, lefts = ([starts.index(part[axis]) for part in parts] for axis in (0, 1))
        cells = sums[:, tops, :, lefts]
        bits = (cells[..., 1:] > cells[..., :-1]).reshape(-1, 64)
        values.append(np.packbits(bits, axis=1).view(">u8")[:, 0].astype(np.uint64))
        means.append((cells // side**2).astype(np.uint8).reshape(-1, _ROWS * _COLUMNS))
    return np.concatenate(values), np.concatenate(means)


@cache
def _placed(side: int, starts: tuple[int, ...], cells: int) -> Float32[np.ndarray, "SC 64"]:
    """Return how much of each pixel of a thumbnail lies in each cell of parts that start there."""
    placed = np.zeros((len(starts), cells, THUMBNAIL_PX), np.float32)
    for shares, start in zip(placed, starts, strict=True):
        shares[:, start : start + side] = _overlaps(side, cells)
    return placed.reshape(-1, THUMBNAIL_PX)


@cache
def _overlaps(side: int, cells: int) -> Float64[np.ndarray, "cells side"]:
    """Return how much of each pixel lies in each cell, in shares of 1 / cells of a pixel."""
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
            hashes(turned(thumbnails[telling], orientation), [window for _, window in variants])
            for orientation, variants in groupby(VARIANTS, key=lambda variant: variant[0])
        ]
        self._reference = np.tile(telling, len(VARIANTS)).astype(np.int32)
        self._variant = np.repeat(np.arange(len(VARIANTS), dtype=np.int32), len(telling))
        values = np.concatenate([values for values, _ in made])
        means = np.concatenate([means for _, means in made])
        self._index, self._means, self._telling = HashIndex(values), means, _tells(means)
        upright = [at for at, each in enumerate(VARIANTS) if each in ((0, WHOLE), (4, WHOLE))]
        self._uprights = np.flatnonzero(np.isin(self._variant, upright))
        self._upright = HashIndex(values[self._uprights], flipped=True)

    def resembled(self, images: Thumbnails) -> list[Resemblance | None]:
        """Return for each thumbnail the reference that it resembles most, if it resembles any."""
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
        for image, entry in self._near(self._index, *hashes(images)):
            yield WHOLE, image, entry
        of_parts = hashes(images, WINDOWS[1:])
        for number, entry in self._near(self._upright, *of_parts, entries=self._uprights):
            part, image = divmod(number, len(images))
            yield WINDOWS[1 + part], image, entry

    def _near(
        self,
        index: HashIndex,
        values: UInt64[np.ndarray, " M"],
        means: UInt8[np.ndarray, "M 72"],
        *,
        entries: Int64[np.ndarray, " E"] | None = None,
    ) -> Iterator[tuple[int, int]]:
        """Numbers of hashes, and the entries that differ in few bits and have like means."""
        image, entry = index.near(values, most_bits=MOST_BITS)
        entry = entry if entries is None else entries[entry]
        told = _tells(means)[image] & self._telling[entry]
        image, entry = image[told], entry[told]
        alike = _correlations(means[image], self._means[entry]) >= _LEAST_OF_MEANS
        yield from zip(image[alike].tolist(), entry[alike].tolist(), strict=True)


def _tells(means: UInt8[np.ndarray, "M 72"]) -> np.ndarray:
    """Return for each thumbnail whether enough neighbouring cells differ by more than noise."""
    cells = means.reshape(-1, _ROWS, _COLUMNS).astype(np.int16)
    across = np.abs(np.diff(cells, axis=2)) >= _LEAST_STEP
    return across.sum(axis=(1, 2)) >= _LEAST_STEPS


def _best_correlation(image: Thumbnail, whole: Thumbnail, window: Window) -> float:
    """Return the best correlation of the image and a part of the other; a crop is moved by up to
    two pixels, and resized."""
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
