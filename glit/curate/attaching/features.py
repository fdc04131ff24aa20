"""Local features of a picture: points that are found again after it was resized, cut or turned.

SIFT (Lowe 2004) as OpenCV computes it, with RootSIFT's square roots (Arandjelovic and Zisserman
2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from glit.curate.attaching.annotations import SIDE
from glit.errors import MissingExtraError, MissingPackage

if TYPE_CHECKING:
    from jaxtyping import Float32, UInt8

    from glit.images import Pixels

_MOST = 200
"""Points a picture."""
_CONTRASTS, _ENOUGH = (0.02, 0.003), 60
"""Least contrasts of a point; the second is tried if fewer points than so many have the first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """N points of a picture, the strongest first."""

    points: Float32[np.ndarray, "N 2"]
    """x and y, as shares of the picture's width and height."""
    angles: Float32[np.ndarray, " N"]
    """Directions in degrees, clockwise."""
    descriptors: UInt8[np.ndarray, "N 128"]

    def __len__(self) -> int:
        return len(self.points)

    def mirrored(self) -> Features:
        """Return the points of the picture with left and right exchanged."""
        # 4 x 4 cells along and across the direction of the point, of 8 directions each
        cells = self.descriptors.reshape(-1, 4, 4, 8)
        return Features(
            points=self.points * np.array([-1, 1], np.float32) + np.array([1, 0], np.float32),
            angles=(180 - self.angles) % 360,
            descriptors=cells[:, ::-1][..., -np.arange(8) % 8].reshape(-1, 128),
        )


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


def compared_size(width: int, height: int) -> tuple[int, int]:
    """Return the size in which a picture is compared, its longest side ``SIDE`` pixels."""
    scale = SIDE / max(width, height)
    return max(1, round(width * scale)), max(1, round(height * scale))


def as_compared(pixels: Pixels) -> Pixels:
    """Return a picture in the size in which pictures are compared."""
    height, width = pixels.shape[:2]
    size = compared_size(width, height)
    if size == (width, height):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))


def find_features(compared: Pixels) -> Features:
    """Return the strongest points of a picture of the size in which pictures are compared."""
    cv2 = require_opencv()
    height, width = compared.shape[:2]
    grey = cv2.cvtColor(compared, cv2.COLOR_RGB2GRAY)
    found: Any = ()
    descriptors = None
    for contrast in _CONTRASTS:  # of an even picture, faint points too
        if len(found) < _ENOUGH:
            sift = cv2.SIFT_create(
                nfeatures=_MOST, contrastThreshold=contrast, enable_precise_upscale=True
            )
            found, descriptors = sift.detectAndCompute(grey, None)
    if descriptors is None:
        descriptors = np.zeros((0, 128), np.float32)
    order = np.argsort([-each.response for each in found], kind="stable")[:_MOST]
    found, descriptors = [found[n] for n in order], descriptors[order]
    total = np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-6)
    roots = np.sqrt(descriptors / total)
    points = np.array([each.pt for each in found], np.float32).reshape(-1, 2) + 0.5
    return Features(
        points=points / np.array([width, height], np.float32),
        angles=np.array([each.angle for each in found], np.float32),
        descriptors=np.minimum(np.rint(roots * 512), 255).astype(np.uint8),
    )
