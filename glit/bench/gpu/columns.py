"""``glit bench lism-flism --weights random`` on few images."""

from __future__ import annotations

from collections.abc import Iterator

from glit.bench.gpu.bench import Bench, largest, row
from glit.bench.harness import Row, detail
from glit.bench.lism_flism.job import PARTS
from glit.bench.lism_flism.run import Request, run

_NUM_IMAGES = 2


def measure(bench: Bench) -> Iterator[Row]:
    """Images a second of each column, and the columns' ratios."""
    request = Request(
        images=None,
        weights="random",
        device=bench.device,
        num_images=_NUM_IMAGES,
        repeats=1,
        sizes=bench.scale.sizes,
    )
    report = run(request, lambda text: print(text, flush=True))
    yield detail("report", report.as_dict())
    for each in report.columns:
        yield row(
            each.column.title,
            each.images_per_s.median,
            "images/s",
            bottleneck=largest({part: each.parts_s[part].median for part in PARTS}),
        )
    for ratio in report.ratios:
        yield row(f"{ratio.fast} against {ratio.slow}", ratio.times.median, "times")
