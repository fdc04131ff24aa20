"""The benchmark of LISM against FLISM in small."""

from __future__ import annotations

from glit.bench.harness import Row
from glit.bench.lism_flism.run import Request, run


def measured(**changes) -> Row:
    values = {"images": None, "device": "cpu", "num_images": 2, "repeats": 1, "threads": 1}
    return run(Request(**{**values, **changes}), lambda text: None)
