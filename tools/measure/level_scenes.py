"""Scenes of the levels on which pairs are measured."""

from __future__ import annotations

from pathlib import Path

from glit.bench.scenes import paint

LEVELS = ("easy", "normal", "hard")


def scenes_folder(output: Path, level: str, seed: int, num: int) -> Path:
    """The folder of these scenes, painted if they are not there."""
    return paint(output / "scenes" / f"{level}-{seed}-{num}", num=num, seed=seed, level=level)
