"""Masks as run lengths, in the layout of COCO and SA-1B.

Runs follow the columns of a mask from the top left, zeros first, and add up to its pixels. They
come as a list of numbers, or compressed: every number in characters of five bits, lowest first,
the sixth bit of a character saying that more follow; from the fourth run on, the difference to
the run two before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

Runs = Int[np.ndarray, " R"]
MOST_TEXT = 1 << 22
"""Characters of a mask; one of a million runs has fewer."""
SAME_PLACE = 0.5
"""Least IoU of a mask's tight box with its region's box."""
_LONGEST = 7
"""Characters of one number; seven hold every count of 32 bits."""


def encode_rle(mask: Bool[np.ndarray, "height width"]) -> list[int]:
    """Run lengths of a mask.

    >>> encode_rle(np.array([[0, 1], [0, 1]], dtype=bool))
    [2, 2]
    """
    flat = mask.T.ravel()
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate(([0], changes, [flat.size]))
    runs = np.diff(edges).tolist()
    return [0, *runs] if flat[0] else runs


def decode_rle(counts: Sequence[int] | Runs, *, height: int, width: int) -> np.ndarray:
    """The mask of run lengths made by :func:`encode_rle`: bool ``[height, width]``."""
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def compress_rle(runs: Sequence[int]) -> str:
    """Run lengths as COCO's string, a sixth as long as the numbers.

    >>> compress_rle([2, 2, 5, 3])
    '2251'
    """
    from pycocotools import mask as coco  # a tenth of a second that others need not wait

    size = [int(sum(runs)), 1]
    plain: Any = {"size": size, "counts": [*runs]}
    return coco.frPyObjects(plain, *size)["counts"].decode("ascii")


def mask_text(mask: Bool[np.ndarray, "h w"], *, height: int, width: int) -> str:
    """A mask as COCO's string, at another size if it has another: each pixel's nearest."""
    if mask.shape != (height, width):
        rows = ((np.arange(height) + 0.5) * mask.shape[0] / height).astype(int)
        columns = ((np.arange(width) + 0.5) * mask.shape[1] / width).astype(int)
        mask = mask[rows[:, None], columns]
    return compress_rle(encode_rle(mask))


def read_rle(counts: str | Sequence[int], *, height: int, width: int) -> Runs:
    """Checked run lengths, from a list or from the compressed string.

    COCO's own library checks neither and answers with boxes outside the mask
    (docs/decisions/run-lengths.md).

    Raises:
        ValueError: the runs are no whole numbers, negative, or do not fill the mask.
    """
    runs = _decompressed(counts) if isinstance(counts, str) else np.asarray(counts)
    if runs.ndim != 1 or runs.dtype.kind != "i":
        raise ValueError("run lengths that are no list of whole numbers")
    pixels = height * width
    if len(runs) and (runs.min() < 0 or runs.max() > pixels):
        raise ValueError(f"run lengths from {runs.min()} to {runs.max()}, want 0 to {pixels}")
    if runs.sum() != pixels:
        raise ValueError(f"run lengths that add up to {runs.sum()}, want {height} x {width}")
    return runs


def _decompressed(text: str) -> Int[np.ndarray, " R"]:
    bits = np.frombuffer(text.encode("latin-1", "replace"), np.uint8).astype(np.int64) - ord("0")
    if not len(bits) or bits.min() < 0 or bits.max() > 63 or bits[-1] & 32:
        raise ValueError("run lengths in a string that is cut off or no such code")
    ends = np.flatnonzero(bits & 32 == 0)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise ValueError(f"a run length of {lengths.max()} characters, want at most {_LONGEST}")
    position = np.arange(len(bits)) - np.repeat(starts, lengths)
    values = np.add.reduceat((bits & 31) << (5 * position), starts)
    values -= np.where(bits[ends] & 16, 1 << (5 * lengths), 0)  # the last of the bits is the sign
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def rle_area(runs: Runs) -> int:
    """Pixels of a mask."""
    return int(runs[1::2].sum())


def rle_box(runs: Runs, *, height: int) -> tuple[int, int, int, int]:
    """Tight box ``(x0, y0, x1, y1)`` of a mask that is not empty, ends exclusive.

    >>> rle_box(np.array([3, 1, 3, 1]), height=4)
    (0, 3, 2, 4)
    """
    ends = np.cumsum(runs)
    ones = runs[1::2] > 0
    first, last = ends[:-1:2][: len(ones)][ones], ends[1::2][ones] - 1
    if (first // height != last // height).any():  # a run round the corner of a column
        y0, y1 = 0, height - 1
    else:
        y0, y1 = (first % height).min(), (last % height).max()
    return int(first[0] // height), int(y0), int(last[-1] // height) + 1, int(y1) + 1


def checked_mask(
    counts: str | Sequence[int],
    box: tuple[float, float, float, float],
    *,
    height: int,
    width: int,
) -> str:
    """The run lengths of a region's mask, as COCO's string.

    Raises:
        ValueError: they are damaged, of another size, empty, or mark another place than the box.
    """
    if isinstance(counts, str) and len(counts) > MOST_TEXT:
        raise ValueError(f"a mask of {len(counts)} characters, want at most {MOST_TEXT}")
    runs = read_rle(counts, height=height, width=width)
    if not rle_area(runs):
        raise ValueError("a mask without a pixel")
    low_x, low_y, high_x, high_y = rle_box(runs, height=height)
    x0, y0, x1, y1 = box
    across = max(0.0, min(high_x, x1) - max(low_x, x0))
    shared = across * max(0.0, min(high_y, y1) - max(low_y, y0))
    both = (high_x - low_x) * (high_y - low_y) + (x1 - x0) * (y1 - y0) - shared
    if shared < SAME_PLACE * both:
        raise ValueError("a mask that marks another place than its region's box")
    return counts if isinstance(counts, str) else compress_rle(runs.tolist())
