"""What a measurement ran on and the memory it took: hardware and versions, no names and no paths.

``python -m glit.bench.machine FILE WORDS`` is ``glit WORDS``, and leaves its peak memory in a file.
"""

from __future__ import annotations

import atexit
import platform
import resource
import runpy
import sys
from pathlib import Path

import psutil

from glit.dataset.manifest import installed_packages
from glit.runtime.cores import usable_cores
from glit.version import __version__

_PACKAGES = ("torch", "transformers", "segment-anything", "numpy", "pillow", "simplejpeg")


def describe_machine(device: str) -> dict[str, str]:
    """Processor, cores, memory and, if it is used, the GPU."""
    found = {
        "cpu": _cpu_name(),
        "cores": str(usable_cores()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
    }
    if device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return found


def _cpu_name() -> str:
    described = Path("/proc/cpuinfo")
    if described.is_file():
        for line in described.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of Python, glit and the packages that do the work."""
    own = {"python": platform.python_version(), "glit": __version__}
    return own | installed_packages(_PACKAGES)


def peak_mb() -> float:
    """Highest resident memory of this process, without what its parent had before it started."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(file: Path, words: list[str]) -> None:
    """Run glit's command line, whose exit code is this process's; its peak memory is its own."""
    atexit.register(lambda: file.write_text(f"{peak_mb():.1f}\n", encoding="utf-8"))
    sys.argv = ["glit", *words]
    runpy.run_module("glit", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
