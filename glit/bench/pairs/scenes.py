"""Scenes on disk for the measurements, and figures with their spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from glit.scenes.write import write_scenes


def scenes_folder(output: Path, level: str, seed: int, num: int) -> Path:
    """The folder of these scenes, painted if they are not there."""
    folder = output / "scenes" / f"{level}-{seed}-{num}"
    if not (folder / "ground_truth.parquet").exists():
        write_scenes(folder, num=num, seed=seed, level=level)
    return folder


def spread(values: Sequence[float | None]) -> str:
    """Mean and, in brackets, half the distance of the highest and the lowest.

    >>> spread([0.5, None, 0.7])
    '0.600 (0.100)'
    """
    numbers = [value for value in values if value is not None and value == value]
    if not numbers:
        return ""
    half = (max(numbers) - min(numbers)) / 2
    return f"{statistics.fmean(numbers):.3f} ({half:.3f})"
