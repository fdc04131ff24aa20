"""A picture in the size in which pictures are compared, with its SIFT points.

Points are those of OpenCV's SIFT (Lowe 2004); the square roots of their descriptors are kept
(RootSIFT, Arandjelovic and Zisserman 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from glit.curate.attaching.annotations import SIDE
from glit.errors import MissingExtraError, MissingPackage

if TYPE_CHECKING:
    from jaxtyping import Float32

    from glit.images import Pixels

_MOST = 200
"""Most points of a picture."""
_CONTRAST = 0.003
"""Least contrast of a point: even pictures have faint ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A picture as it is compared."""

    size: tuple[int, int]
    """Width and height of the file, in pixels."""
    pixels: Pixels
    """Its longest side ``SIDE`` pixels."""
    coarse: float
    """Side of a pixel of the file, or of its thumbnail, in these pixels, at least 1."""
    points: Float32[np.ndarray, "N 2"]
    """x and y in these pixels, the strongest point first."""
    descriptors: Float32[np.ndarray, "N 128"]
    """Square roots of SIFT's, of length 1."""

    def features(
        self, *, mirrored: bool = False
    ) -> tuple[Float32[np.ndarray, "N 2"], Float32[np.ndarray, "N 128"]]:
        """Return the points and descriptors, or those of the mirrored picture."""
        if not mirrored:
            return self.points, self.descriptors
        # 4 x 4 cells along and across the direction of a point, of 8 directions each
        cells = self.descriptors.reshape(-1, 4, 4, 8)[:, ::-1][..., -np.arange(8) % 8]
        x, y = self.points.T
        return np.stack([self.pixels.shape[1] - x, y], axis=1), cells.reshape(-1, 128)


def require_opencv() -> Any:
    """Return the module ``cv2``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError(
            MissingPackage(
                package="opencv-python-headless", extra="attach", needed_for="glit attach"
            )
        ) from error
    return cv2


def picture_of(pixels: Pixels, size: tuple[int, int] | None = None) -> Picture:
    """Return a picture as it is compared.

    Args:
        pixels: of the picture, or of its thumbnail.
        size: width and height of the picture, if the pixels are its thumbnail's.
    """
    height, width = pixels.shape[:2]
    scale = SIDE / max(width, height)
    compared = (max(1, round(width * scale)), max(1, round(height * scale)))
    if compared != (width, height):
        resized = Image.fromarray(pixels).resize(compared, Image.Resampling.LANCZOS)
        pixels = np.asarray(resized)
    points, descriptors = _sift(pixels)
    return Picture(
        size=size or (width, height), pixels=pixels, coarse=max(1.0, scale),
        points=points, descriptors=descriptors,
    )  # fmt: skip


def _sift(
    pixels: Pixels,
) -> tuple[Float32[np.ndarray, "N 2"], Float32[np.ndarray, "N 128"]]:
    cv2 = require_opencv()
    sift = cv2.SIFT_create(
        nfeatures=_MOST, contrastThreshold=_CONTRAST, enable_precise_upscale=True
    )
    found, descriptors = sift.detectAndCompute(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), None)
    if descriptors is None:
        return np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32)
    order = np.argsort([-each.response for each in found], kind="stable")[:_MOST]
    points = np.array([found[n].pt for n in order], np.float32) + np.float32(0.5)
    total = np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-6)
    return points, np.sqrt(descriptors / total)[order]
