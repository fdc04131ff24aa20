"""``glit bench lism-flism --weights random`` on two images."""

from __future__ import annotations

from collections.abc import Iterator

from glit.bench.gpu.bench import Bench, largest, row
from glit.bench.harness import Row, detail
from glit.bench.lism_flism.run import Request, run


def measure(bench: Bench) -> Iterator[Row]:
    """Images a second of each column, and the columns' ratios."""
    request = Request(
        images=None, weights="random", device=bench.device, num_images=2, repeats=1,
        sizes=bench.scale.sizes,
    )  # fmt: skip
    report = run(request, lambda text: print(text, flush=True))
    yield detail("report", report)
    for each in report["columns"].values():
        parts = {part: spread["median"] for part, spread in each["parts_s"].items()}
        rate = each["images_per_s"]["median"]
        yield row(each["title"], rate, "images/s", bottleneck=largest(parts))
    for each in report["ratios"]:
        yield row(f"{each['fast']} against {each['slow']}", each["times"]["median"], "times")
