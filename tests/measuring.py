"""The benchmark of LISM against FLISM in small."""

from __future__ import annotations

from glit.bench.lism_flism.report import Report
from glit.bench.lism_flism.run import Request, run


def measured(**changes) -> Report:
    values = {"images": None, "device": "cpu", "num_images": 2, "repeats": 1, "threads": 1}
    return run(Request(**{**values, **changes}), lambda text: None)
