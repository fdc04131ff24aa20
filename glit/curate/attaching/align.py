"""Find where a picture lies in a published one, and whether it shows that picture at all.

Places come from the whole picture in each way it can be turned and mirrored, and from SIFT points
that match (ratio test, Lowe 2004; RANSAC). OpenCV's ECC refines them by the pixels (Evangelidis and
Psarakis 2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.differences import LUMA, difference, toned
from glit.curate.attaching.picture import Picture, require_opencv
from glit.curate.attaching.placement import Placement, undone

if TYPE_CHECKING:
    from jaxtyping import Float, Float32

    from glit.images import Pixels

_SURE = 0.5
"""Share of the limits from which no other place is tried."""
_SLACK = 0.03
"""Share of the longer side by which a place may be off."""
_LEAST_SHOWN = 0.15
"""Share of a published picture that a cut one shows, at least."""
_LIKELY, _ALIKE = 0.85, 0.5
"""Correlation at 16 x 16 pixels from which whole pictures are compared, and of all pixels from
which a place is looked at."""
_RATIO, _LEAST_MATCHES, _MISS = 0.85, 6, 3.0
"""Ratio of the distances of a match and of the second nearest point, matches that a place needs,
and pixels by which one may miss."""
_SCALES, _SQUEEZE, _SHEAR = (0.15, 6.0), 2.0, 0.1
"""Of an affine transform that RANSAC found: smallest and largest scale, largest ratio of the two
scales, and largest shear as a share of the scale."""
_STEPS, _SETTLED = 30, 1e-5
"""Most steps of the refinement, and the gain in correlation below which it ends."""
_EVEN, _PADDING, _MARGIN = 12, 4, 3
"""Grey levels within which a border is of one colour, and their deviation in what is beside both;
pixels there that may be mixed."""
_BLUR = 1.0
_LEAST_SIDE = 32
"""Least side of what both show, in pixels; of coarse pictures more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """A found picture's place in the published one, and how well its pixels agree."""

    placement: Placement
    shown: float
    """Share of the published picture that it shows, 0 to 1."""
    residual: float
    """Difference of the cell that differs most, as a share of the limit; 1 at most."""
    colours: str
    """Colours of the found picture beside the published ones: ``same``, ``changed`` (contrast,
    brightness or saturation) or ``grey``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    """A published picture lies at ``scale * point + shift`` of the found one turned back."""

    mirrored: bool
    turned: int
    scale: Float[np.ndarray, " 2"]
    """Horizontal and vertical: pixels of the found picture per pixel of the published one."""
    shift: Float[np.ndarray, " 2"]
    """Horizontal and vertical, in pixels of the found picture."""


def align(published: Picture, found: Picture) -> Aligned | None:
    """Find the place of a picture in a published one.

    Args:
        published: the published picture.
        found: the other.

    Returns:
        The place in which they agree best; None if there is none in which they do.
    """
    best = None
    for place in _places(published, found):
        aligned = _compared(published, found, place)
        if aligned is not None and (best is None or aligned.residual < best.residual):
            best = aligned
            if best.residual <= _SURE:
                break
    return best


def _places(published: Picture, found: Picture) -> Iterator[_Place]:
    """Yield places that may be: the whole picture, with its even border and without, in each way it
    can be turned and mirrored; then those that points agree on."""
    grey = published.pixels @ LUMA
    for mirrored in (False, True):
        for turned in (0, 90, 180, 270):
            own = undone(found.pixels, mirrored=mirrored, turned=turned)
            height, width = own.shape[:2]
            for x0, y0, x1, y1 in {(0, 0, width, height), _inside(own)}:
                if _likeness(grey, own[y0:y1, x0:x1] @ LUMA) >= _LIKELY:
                    yield _Place(
                        mirrored=mirrored, turned=turned, shift=np.array([x0, y0], float),
                        scale=np.array([x1 - x0, y1 - y0]) / grey.shape[::-1],
                    )  # fmt: skip
    for mirrored in (False, True):
        if (place := _matched(published, found, mirrored)) is not None:
            yield place


def _inside(pixels: Pixels) -> tuple[int, int, int, int]:
    """Return the corners of what lies inside an even border, one of the colour of the upper left
    pixel; those of the picture if there is no border."""
    other = np.abs(pixels.astype(np.int16) - pixels[0, 0]).max(2) > _EVEN
    rows, columns = (np.flatnonzero(other.mean(axis) > 0.02) for axis in (1, 0))
    if not len(rows) or not len(columns):
        return 0, 0, other.shape[1], other.shape[0]
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _likeness(one: Float32[np.ndarray, "H W"], two: Float32[np.ndarray, "h w"]) -> float:
    """Return the correlation of two grey pictures at 16 x 16 pixels, -1 to 1."""
    cv2 = require_opencv()
    both = [cv2.resize(each, (16, 16), interpolation=cv2.INTER_AREA) for each in (one, two)]
    return float(cv2.matchTemplate(*both, cv2.TM_CCOEFF_NORMED)[0, 0])


def _matched(published: Picture, found: Picture, mirrored: bool) -> _Place | None:
    """Return the place that most matches of points agree on; None if too few agree."""
    cv2 = require_opencv()
    points, descriptors = found.features(mirrored=mirrored)
    if min(len(points), len(published.points)) < _LEAST_MATCHES:
        return None
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(descriptors, published.descriptors, k=2)
    matches = [one for one, two in pairs if one.distance < _RATIO * two.distance]
    if len(matches) < _LEAST_MATCHES:
        return None
    there = published.points[[each.trainIdx for each in matches]]
    here = points[[each.queryIdx for each in matches]]
    matrix, held = cv2.estimateAffine2D(there, here, ransacReprojThreshold=_MISS, maxIters=5000)
    if matrix is None or held.sum() < _LEAST_MATCHES:
        return None
    quarters = int(np.rint(np.arctan2(matrix[1, 0], matrix[0, 0]) / (np.pi / 2))) % 4
    height, width = found.pixels.shape[:2]
    for _ in range(quarters):  # turned back by 90 degrees, (x, y) goes to (y, width - x)
        matrix = np.array([matrix[1], [0, 0, width] - matrix[0]])
        width, height = height, width
    scale, shear = matrix.diagonal(), matrix[[0, 1], [1, 0]]
    low, high = scale.min(), scale.max()
    if low < _SCALES[0] or high > min(_SCALES[1], _SQUEEZE * low) or np.abs(shear).max() > (
        _SHEAR * high
    ):  # fmt: skip
        return None
    turned = 90 * (-quarters % 4 if mirrored else quarters)
    shift = matrix[:, 2] + shear * there[held.ravel() > 0].mean(0)[::-1]
    return _Place(mirrored=mirrored, turned=turned, scale=scale, shift=shift)


def _compared(published: Picture, found: Picture, place: _Place) -> Aligned | None:
    """Refine a place and compare the pixels there; None if they are not those of one picture."""
    cv2 = require_opencv()
    most = place.scale.max()
    coarse = max(published.coarse, found.coarse / most)
    unit, blur = max(1.0, coarse / 2), max(_BLUR, coarse / 2)
    upright = undone(found.pixels, mirrored=place.mirrored, turned=place.turned)
    # no detail that the thumbnail cannot have
    source = cv2.GaussianBlur(upright, (0, 0), most / 2) if most > 1.2 else upright
    there = cv2.GaussianBlur(published.pixels, (0, 0), blur)
    size, own_size = (np.array(each.shape[1::-1]) for each in (there, upright))
    if (refined := _refined(there, source, place)) is None:
        return None
    scale, shift = refined
    start, stop = -shift / scale, (own_size - shift) / scale
    low, high = np.maximum(start, 0), np.minimum(stop, size)
    # pixels next to padding are mixed with it
    left, top = np.ceil(low).astype(int) + _MARGIN * (shift > 1)
    right, bottom = high.astype(int) - _MARGIN * (own_size - scale * size - shift > 1)
    shown = float((high - low).prod() / size.prod())
    if min(right - left, bottom - top) < _LEAST_SIDE * unit or shown < _LEAST_SHOWN:
        return None
    if _is_cut_and_padded(start, stop, size) or not _is_even_outside(
        upright, scale * low + shift, scale * high + shift
    ):
        return None
    here = cv2.warpAffine(
        source, _matrix(scale, shift), there.shape[1::-1],
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE,
    )  # fmt: skip
    here = cv2.GaussianBlur(here, (0, 0), blur)
    there, here = (each[top:bottom, left:right].astype(np.float32) for each in (there, here))
    if (made := toned(there, here)) is None:
        return None
    fitted, cut, colours = made
    if (residual := difference(fitted, here, cut, unit=unit)) > 1:
        return None
    (x0, y0), (x1, y1) = (each * published.size / size for each in (start, stop))
    placement = Placement(
        mirrored=place.mirrored, turned=place.turned,
        left=float(x0), top=float(y0), right=float(x1), bottom=float(y1),
    )  # fmt: skip
    return Aligned(placement=placement, shown=shown, residual=residual, colours=colours)


def _refined(
    there: Pixels, source: Pixels, place: _Place
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, " 2"]] | None:
    """Return the scale and shift in which the brightness of two pictures correlates best; None if
    it hardly does."""
    cv2 = require_opencv()
    grey, own = (cv2.cvtColor(each, cv2.COLOR_RGB2GRAY) for each in (there, source))
    low = np.maximum(place.shift, 0)
    high = np.minimum(place.scale * grey.shape[::-1] + place.shift, own.shape[::-1])
    # pixels next to padding are mixed with it
    (x0, y0), (x1, y1) = (low + _MARGIN).astype(int), (high - _MARGIN).astype(int)
    mask = np.zeros(own.shape, np.uint8)
    mask[y0:y1, x0:x1] = 1
    start = _matrix(place.scale, place.shift).astype(np.float32)
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, _STEPS, _SETTLED)
    try:
        alike, matrix = cv2.findTransformECC(grey, own, start, cv2.MOTION_AFFINE, criteria, mask, 5)
    except cv2.error:  # it does not converge
        return None
    scale, shear = matrix.diagonal().astype(float), matrix[[0, 1], [1, 0]]
    if alike < _ALIKE or scale.min() <= 0:
        return None
    middle = (low + high - 2 * place.shift) / (2 * place.scale)
    return scale, matrix[:, 2] + shear * middle[::-1] + (1 - scale) / 2


def _matrix(
    scale: Float[np.ndarray, " 2"], shift: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "2 3"]:
    """Return the transform of pixel centres."""
    return np.column_stack([np.diag(scale), shift + (scale - 1) / 2])


def _is_even_outside(
    pixels: Pixels, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]
) -> bool:
    """Return whether what lies outside a box is padding: of one colour on each of its four sides.

    Args:
        pixels: of the picture.
        low: x and y of the box's upper left corner, in pixels.
        high: x and y of its lower right corner.
    """
    left, top = np.maximum(low.astype(int) - _MARGIN, 0)
    right, bottom = np.ceil(high).astype(int) + _MARGIN
    strips = pixels[:top], pixels[bottom:], pixels[:, :left], pixels[:, right:]
    return all(strip.std((0, 1)).max() <= _PADDING for strip in strips if strip.size)


def _is_cut_and_padded(
    start: Float[np.ndarray, " 2"], stop: Float[np.ndarray, " 2"], size: Float[np.ndarray, " 2"]
) -> bool:
    """Return whether a found picture is cut at one side and padded at the other, across or down:
    nobody does so."""
    slack = _SLACK * size.max()
    padded = (start < -slack) | (stop > size + slack)
    cut = (start > slack) | (stop < size - slack)
    return bool((padded & cut).any())
