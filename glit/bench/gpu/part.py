"""One part in its process: ``python -m glit.bench.gpu.part NAME SCALE DEVICE OUTPUT RATES``."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from glit.bench.gpu.bench import SCALES, Bench
from glit.runtime.process_state import without_bars


def main(name: str, scale: str, device: Any, output: str, rates: str) -> None:
    """Run a part; its figures are in ``output`` when it ends, and those it had if it fails.

    Args:
        name: of the module.
        scale: ``full`` or ``tiny``.
        device: ``cuda`` or ``cpu``.
        output: JSON file.
        rates: JSON of the matrix rates measured before.
    """
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="glit-gpu-") as folder, without_bars():
        bench = Bench(SCALES[scale], device, Path(output), Path(folder), json.loads(rates))
        importlib.import_module(f"glit.bench.gpu.{name}").measure(bench)


if __name__ == "__main__":
    main(*sys.argv[1:])
