"""Matrix rates by precision: what everything else is held against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from glit.bench.gpu.bench import Bench, row
from glit.bench.harness import Row, detail, note

SHEETS = {
    "H200": {"16 bits": 989e12, "tf32": 494e12, "float32": 67e12},
    "H100": {"16 bits": 989e12, "tf32": 494e12, "float32": 67e12},
    "A100": {"16 bits": 312e12, "tf32": 156e12, "float32": 19.5e12},
    "L40S": {"16 bits": 362e12, "tf32": 183e12, "float32": 91e12},
}  # fmt: skip
"""NVIDIA's data sheets, SXM where there are several, without sparsity: operations a second."""


def measure(bench: Bench) -> Iterator[Row]:
    """Rates of large products."""
    name = torch.cuda.get_device_name() if bench.device == "cuda" else "cpu"
    sheet = next((sheet for key, sheet in SHEETS.items() if key in name), {})
    if bench.device == "cuda" and not sheet:
        yield note(f"no data sheet of {name} is known here: its matrix rates have no limit")
    rates: dict[str, float] = {}
    side = bench.scale.matrix_side
    for precision in ("float32", "tf32", "bfloat16", "float16"):
        kind = getattr(torch, precision, torch.float32)
        a = torch.randn(side, side, device=bench.device).to(kind)
        with products_in("tf32" if precision == "tf32" else "ieee"):
            rates[precision] = 2 * side**3 / bench.seconds(lambda a=a: a @ a)
        yield detail("rates", rates)
        limit = sheet.get("16 bits" if "16" in precision else precision)
        what, rate = f"matrix product {side}, {precision}", rates[precision] / 1e12
        limit = limit and limit / 1e12
        yield row(what, rate, "TFLOP/s", limit=limit, bottleneck="arithmetic")


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Float32 products on a GPU in ``ieee`` or ``tf32``."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = precision
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
