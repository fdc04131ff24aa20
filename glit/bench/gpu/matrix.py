"""Matrix rates by precision and copy rates: what everything else is held against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from glit.bench.gpu.bench import Bench, row
from glit.bench.harness import Row, detail, note

SHEETS = {
    "H200": {"16 bits": 989e12, "tf32": 494e12, "float32": 67e12, "hbm": 4.8e12},
    "H100": {"16 bits": 989e12, "tf32": 494e12, "float32": 67e12, "hbm": 3.35e12},
    "A100": {"16 bits": 312e12, "tf32": 156e12, "float32": 19.5e12, "hbm": 2e12},
    "L40S": {"16 bits": 362e12, "tf32": 183e12, "float32": 91e12, "hbm": 0.86e12},
}  # fmt: skip
"""NVIDIA's data sheets, SXM where there are several, without sparsity: operations and bytes a
second."""


def measure(bench: Bench) -> Iterator[Row]:
    """Rates of large products, then of copies."""
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
    yield from _copies(bench, sheet)


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Float32 products on a GPU in ``ieee`` or ``tf32``."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = precision
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _copies(bench: Bench, sheet: dict[str, float]) -> Iterator[Row]:
    size = bench.scale.copy_bytes
    there = torch.empty(size, dtype=torch.uint8, device=bench.device)
    pageable = torch.empty(size, dtype=torch.uint8)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=bench.device == "cuda")
    other = torch.empty_like(there)
    for what, work in (
        ("to the device, page-locked", lambda: there.copy_(pinned, non_blocking=True)),
        ("to the device, pageable", lambda: there.copy_(pageable)),
        ("from the device, page-locked", lambda: pinned.copy_(there)),
    ):
        yield row(f"copy {what}", size / bench.seconds(work) / 1e9, "GB/s", bottleneck="bus")
    hbm = sheet["hbm"] / 1e9 if sheet else None
    rate = 2 * size / bench.seconds(lambda: other.copy_(there)) / 1e9
    what = "copy on the device, read and written"
    yield row(what, rate, "GB/s", limit=hbm, bottleneck="memory" if hbm else "bus")
