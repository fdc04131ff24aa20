"""Find a picture's place in another, and whether it is that picture at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.agreement import EVEN, agreement, likeness
from glit.curate.attaching.annotations import SIDE
from glit.curate.attaching.features import Features, as_compared, find_features
from glit.curate.attaching.matches import (
    LEAST_MATCHES,
    Line,
    find_matches,
    fit_line,
    likely_turns,
    turned_back,
)
from glit.curate.attaching.placement import Placement
from glit.curate.attaching.tones import LUMA

if TYPE_CHECKING:
    from jaxtyping import Float32

    from glit.images import Pixels

_SURE = 0.5
"""Share of the limits from which no other place is tried."""
_SLACK = 0.03
"""Share of the longer side by which a place may be off."""
_LEAST_SHOWN = 0.15
"""Share of a published picture that a cut one shows, at least."""
_LIKELY = 0.85
"""Correlation at 16 x 16 pixels from which whole pictures are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """A found picture's place in the published one, and how well its pixels agree."""

    placement: Placement
    shown: float
    """See :class:`glit.curate.attaching.agreement.Agreement`; so for the others."""
    apart: float
    colours: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Looks:
    """A picture as it is compared."""

    size: tuple[int, int]
    """Width and height in pixels of the file."""
    pixels: Pixels
    """Its longest side ``SIDE`` pixels."""
    coarse: float
    """Side of a pixel of the file, or of its thumbnail, in these pixels, at least 1."""
    features: Features


def looks_of(pixels: Pixels, size: tuple[int, int] | None = None) -> Looks:
    """Return a picture as it is compared.

    Args:
        pixels: of the picture, or of its thumbnail.
        size: width and height of the picture, if the pixels are its thumbnail's.
    """
    small = as_compared(pixels)
    return Looks(
        size=size or (pixels.shape[1], pixels.shape[0]),
        pixels=small,
        coarse=max(1.0, max(small.shape) / max(pixels.shape)),
        features=find_features(small),
    )


def align(published: Looks, found: Looks) -> Aligned | None:
    """Find the place of a picture in a published one.

    Args:
        published: the published picture.
        found: the other.

    Returns:
        The place in which they agree best; None if there is none in which they do.
    """
    best, tried = None, []
    for placement, line in _hypotheses(published, found):
        if any(placement == other and _is_near(line, own) for other, own in tried):
            continue
        tried.append((placement, line))
        aligned = _compared(published, found, placement, line)
        if aligned is None:
            continue
        if best is None or aligned.apart < best.apart:
            best = aligned
            if best.apart <= _SURE:
                break
    return best


def _hypotheses(published: Looks, found: Looks) -> Iterator[tuple[Placement, Line]]:
    """Places that may be: the whole picture in each way it can be turned, and what matches say."""
    height, width = published.pixels.shape[:2]
    grey, own_grey = published.pixels @ LUMA, found.pixels @ LUMA
    frame = {"left": 0.0, "top": 0.0, "right": 1.0, "bottom": 1.0}
    border = even_border(found.pixels)
    for flip in (False, True):
        for turn in (0, 90, 180, 270):
            placement = Placement(mirrored=flip, turned=turn, **frame)
            for inside in (None, border) if border else (None,):
                undone, (x0, y0, x1, y1) = _inside(own_grey, inside, placement)
                if likeness(grey, undone[y0:y1, x0:x1]) >= _LIKELY:
                    yield placement, (((x1 - x0) / width, x0), ((y1 - y0) / height, y0))
    for flip, own in ((False, found.features), (True, found.features.mirrored())):
        matched = find_matches(published.features, own)
        if len(matched) < LEAST_MATCHES:
            continue
        a, b = matched.T
        there = published.features.points[a] * np.array([width, height], np.float32)
        for turn in likely_turns(own.angles[b] - published.features.angles[a]):
            placement = Placement(mirrored=flip, turned=-turn % 360 if flip else turn, **frame)
            size = placement.undone_size(*found.pixels.shape[1::-1])
            here = turned_back(own.points[b], turn) * np.array(size, np.float32)
            line = fit_line(there, here)
            if line is not None:
                yield placement, line


def _is_near(one: Line, two: Line) -> bool:
    """Return whether two places differ by less than a pixel, so that refined they are one."""
    return all(
        abs((a - b) * end + shift - other) < 1
        for (a, shift), (b, other) in zip(one, two, strict=True)
        for end in (0, SIDE)
    )


def even_border(pixels: Pixels) -> tuple[int, int, int, int] | None:
    """The corners of what lies inside an even border, one of the colour of the upper left pixel;
    None if there is no border."""
    other = np.abs(pixels.astype(np.int16) - pixels[0, 0]).max(2) > EVEN
    rows = np.flatnonzero(other.mean(1) > 0.02)
    columns = np.flatnonzero(other.mean(0) > 0.02)
    if not len(rows) or not len(columns):
        return None
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    height, width = pixels.shape[:2]
    return None if box == (0, 0, width, height) else box


def _inside(
    pixels: Float32[np.ndarray, "H W"], box: tuple[int, int, int, int] | None, placement: Placement
) -> tuple[Float32[np.ndarray, "h w"], tuple[int, int, int, int]]:
    """A found picture, undone, and the corners there of a box of it."""
    undone = placement.undo(pixels)
    if box is None:
        return undone, (0, 0, undone.shape[1], undone.shape[0])
    marked = np.zeros(pixels.shape[:2], bool)
    marked[box[1] : box[3], box[0] : box[2]] = True
    rows, columns = np.nonzero(placement.undo(marked))
    return undone, (
        int(columns.min()),
        int(rows.min()),
        int(columns.max()) + 1,
        int(rows.max()) + 1,
    )


def _compared(published: Looks, found: Looks, placement: Placement, line: Line) -> Aligned | None:
    """Compare the pixels of two pictures at a place; None if they are not those of one picture."""
    undone = np.ascontiguousarray(placement.undo(found.pixels))
    coarse = max(published.coarse, found.coarse / max(line[0][0], line[1][0]))
    agreed = agreement(published.pixels, undone, line, coarse)
    if agreed is None or agreed.shown < _LEAST_SHOWN or agreed.apart > 1:
        return None
    (sx, tx), (sy, ty) = agreed.line
    height, width = published.pixels.shape[:2]
    across, down = published.size[0] / width, published.size[1] / height
    placed = replace(
        placement,
        left=-tx / sx * across, right=(undone.shape[1] - tx) / sx * across,
        top=-ty / sy * down, bottom=(undone.shape[0] - ty) / sy * down,
    )  # fmt: skip
    if not _is_cut_or_padded(placed, published.size):
        return None
    return Aligned(
        placement=placed, shown=agreed.shown, apart=agreed.apart,
        colours=agreed.colours,
    )  # fmt: skip


def _is_cut_or_padded(place: Placement, size: tuple[int, int]) -> bool:
    """Return whether a found picture lies, across and down, inside the published one or around it:
    nobody cuts a picture at one side and pads it at the other."""
    slack = _SLACK * max(size)
    for low, high, side in ((place.left, place.right, size[0]), (place.top, place.bottom, size[1])):
        padded = low < -slack or high > side + slack
        if padded and (low > slack or high < side - slack):
            return False
    return True
