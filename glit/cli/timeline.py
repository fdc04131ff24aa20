"""A build's timeline as text: a row a stage, a column an equal part of the time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from glit.runtime.progress import duration

if TYPE_CHECKING:
    from glit.pipeline.work.timeline import Timeline

_COLUMNS = 60
_BLOCKS = " ▁▂▃▄▅▆▇█"


def timeline_lines(run: Timeline) -> Iterator[str]:
    """When each stage was at work, then what every place did in all.

    A block's height is the share of the workers that were at work; what is blank stood still, or
    loaded a model.
    """
    when = time.strftime("%F %T", time.localtime(run.start_s))
    yield f"run of {when}, {duration(run.seconds)}"
    num_bins = max(len(stage.busy_s) for stage in run.stages.values())
    for name, stage in run.stages.items():
        bars = "".join(_BLOCKS[_height(share)] for share in _columns(
            run.at_work(stage=name), num_bins
        ))  # fmt: skip
        workers = f"{stage.workers} worker{'s' if stage.workers > 1 else ''}"
        lost = f", {duration(stage.lost_s)} lost with workers that died" if stage.lost_s else ""
        yield f"{name:<8} {stage.place:<6} {bars} {duration(sum(stage.busy_s))} of {workers}{lost}"
    for place in dict.fromkeys(stage.place for stage in run.stages.values()):
        share = sum(run.at_work(place=place)) / num_bins
        yield f"{place}: at work {100 * share:.0f} % of the time"


def _columns(shares: Sequence[float], num_bins: int) -> list[float]:
    """Means of the shares in so many columns, the whole run from the first to the last."""
    padded = [*shares, *[0.0] * (num_bins - len(shares))]
    number = min(_COLUMNS, num_bins)
    edges = [round(column * num_bins / number) for column in range(number + 1)]
    return [sum(padded[low:high]) / (high - low) for low, high in pairwise(edges)]


def _height(share: float) -> int:
    """Anything above nothing shows."""
    return max(share > 0, round(share * (len(_BLOCKS) - 1)))
