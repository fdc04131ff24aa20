"""Describe the machine of a measurement and the memory used: no names and no paths.

``python -m glit.bench.machine FILE WORDS`` is ``glit WORDS``, and leaves its peak memory in a file.
"""

from __future__ import annotations

import atexit
import os
import platform
import resource
import runpy
import sys
import time
from pathlib import Path

import psutil

from glit.dataset.manifest import installed_packages
from glit.runtime.cores import usable_cores
from glit.version import __version__

_PACKAGES = ("torch", "transformers", "segment-anything", "numpy", "pillow", "simplejpeg")
_INSTRUCTIONS = (
    ("amx_tile", "AMX"), ("avx512_bf16", "AVX-512 with bfloat16"), ("avx512f", "AVX-512"),
    ("avx2", "AVX2"), ("avx", "AVX"),
)  # fmt: skip
"""Flags of Linux, the best first, and their names."""
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
"""Variables by which oneDNN, torch and MKL use fewer instructions than there are."""


def describe_machine(device: str) -> dict[str, str]:
    """Processor, its instructions for matrices, cores, memory and, if it is used, the GPU."""
    found = {
        "cpu": _cpu_name(),
        "instructions": _instructions(),
        "cores": str(usable_cores()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
    }
    if device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return found


def _cpu_name() -> str:
    return _of_cpu("model name") or platform.processor() or platform.machine()


def _of_cpu(name: str) -> str:
    """Return Linux's description of the first processor; empty on other systems."""
    described = Path("/proc/cpuinfo")
    if described.is_file():
        for line in described.read_text(encoding="utf-8").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""


def _instructions() -> str:
    """The widest vector instructions of the processor, and the variables that limit libraries to
    fewer."""
    flags = set(_of_cpu("flags").split())
    best = next((name for flag, name in _INSTRUCTIONS if flag in flags), platform.machine())
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS if os.environ.get(name)]
    return ", ".join([best, *limits])


class Load:
    """CPU time from its making on: of this process, and of all others on the machine."""

    def __init__(self) -> None:
        self._wall, self._own, self._all = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        return time.perf_counter(), time.process_time(), sum(times[:8]) - idle

    def cpu_s(self) -> float:
        """CPU seconds of this process, all threads."""
        return time.process_time() - self._own

    def others(self) -> float:
        """Cores that other processes, and other machines on the same hardware, took on average."""
        wall, own, busy = self._now()
        used = busy - self._all - (own - self._own)
        return max(0.0, used / max(wall - self._wall, 1e-3))


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
