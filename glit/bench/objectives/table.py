"""Means over seeds, and differences from the first objective with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from glit.runtime.tables import Page, Table, percent

NUM_RESAMPLES = 2000
COLUMNS = {
    "t2i": "T2I R@1", "i2t": "I2T R@1", "localisation": "localisation@5", "joint": "joint mAP@10",
}  # fmt: skip
"""Heads of figures by the key of :class:`glit.bench.objectives.measure.Measured`; in per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveRow:
    """The results of an objective, or of the start."""

    name: str
    lr: float | None
    """The learning rate chosen; None for the start."""
    figures: Sequence[Mapping[str, float]]
    """Figures of every seed."""
    found: Sequence[Bool[np.ndarray, "2 scenes"]]
    """Scenes of the gallery that were found, both ways, by every seed."""
    seconds_a_step: float = 0.0
    peak_memory_mb: float = 0.0
    parameters_added: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """In points of mean R@1 of both ways."""

    mean: float
    low: float
    high: float
    """Ends of the 95 % interval."""

    @property
    def certain(self) -> bool:
        """True if the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def difference(row: ObjectiveRow, baseline: ObjectiveRow, *, seed: int = 0) -> Difference:
    """The row less the baseline, paired by scene and by seed.

    The interval is a bootstrap's (Efron and Tibshirani 1993, chapter 13): seeds are drawn, then
    scenes, each with putting back, and the 2.5th and 97.5th percentile of the means taken. A
    row of one seed is compared with all of the baseline's.
    """
    count = max(len(row.found), len(baseline.found))
    if len({len(row.found), len(baseline.found), 1} - {count}) > 1:
        raise AssertionError(f"{row.name}: {len(row.found)} seeds, {len(baseline.found)} wanted")
    own, others = (
        np.stack([found.mean(axis=0, dtype=np.float64) for found in each.found])
        for each in (row, baseline)
    )
    each = np.arange(count)
    each = own[each % len(own)] - others[each % len(others)]
    means = resampled_means(each, np.random.default_rng(seed))
    low, high = np.percentile(means, [2.5, 97.5])
    return Difference(mean=100 * float(each.mean()), low=100 * float(low), high=100 * float(high))


def resampled_means(
    value_SQ: Float[np.ndarray, "s q"], draw: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """Means over seeds and scenes drawn anew, the scenes the same for all seeds of a draw."""
    num_seeds, num_scenes = value_SQ.shape
    means = np.empty(NUM_RESAMPLES)
    for number in range(NUM_RESAMPLES):
        seeds = draw.integers(num_seeds, size=num_seeds)
        times_Q = np.bincount(draw.integers(num_scenes, size=num_scenes), minlength=num_scenes)
        means[number] = value_SQ[seeds].mean(axis=0) @ times_Q / num_scenes
    return means


def page(title: str, rows: Sequence[ObjectiveRow], notes: Sequence[str] = ()) -> Page:
    """The table, per cent and points; a difference in bold is one whose interval leaves out 0.

    The baseline is the first row that was trained.

    Args:
        title: over the table.
        rows: of the table.
        notes: below it.
    """
    measured = [key for key in COLUMNS if any(key in f for row in rows for f in row.figures)]
    baseline = next((row for row in rows if row.lr is not None), None)
    heads = ["", "lr", *(COLUMNS[key] for key in measured)]
    heads += [f"difference from {baseline.name}" if baseline else "", "s a step", "MB", "added"]
    lines = []
    for row in rows:
        cells = [row.name, "" if row.lr is None else f"{row.lr:g}"]
        cells += [percent([f[key] for f in row.figures if key in f]) for key in measured]
        cells.append("" if baseline in (None, row) else _shown(difference(row, baseline)))
        cost = f"{row.seconds_a_step:.2f}", f"{row.peak_memory_mb:.0f}", f"{row.parameters_added:,}"
        lines.append([*cells, *(cost if row.lr is not None else ("", "", ""))])
    chances = [f["chance"] for row in rows for f in row.figures if "chance" in f]
    said = [f"Localisation by chance: {100 * chances[0]:.1f}."] if chances else []
    if all(len(row.figures) == 1 for row in rows):
        said.append("One seed each: intervals are over samples alone, seeds differ too.")
    return [f"## {title}", Table(heads=heads, rows=lines), "\n".join([*said, *notes])]


def _shown(found: Difference) -> str:
    text = f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return f"**{text}**" if found.certain else text
