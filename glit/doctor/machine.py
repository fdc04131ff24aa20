"""Check cores, memory and devices; uses torch only if it is installed."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator

import psutil

from glit.doctor.finding import Finding
from glit.installation import DISTRIBUTION, is_checkout
from glit.runtime.cores import usable_cores
from glit.runtime.progress import size
from glit.version import __version__

_LITTLE_BYTES = 4e9
_ANSWER_S = 20


def machine() -> Iterator[Finding]:
    """Describe this machine as glit sees it."""
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    origin = f"{DISTRIBUTION} from a checkout" if is_checkout() else DISTRIBUTION
    yield Finding(about="glit", state="ok", found=f"{__version__} ({origin}), {system}")
    memory = psutil.virtual_memory()
    free = f"{size(memory.available)} of {size(memory.total)} memory free"
    little = memory.available < _LITTLE_BYTES
    yield Finding(
        about="processor",
        state="note" if little else "ok",
        found=f"{usable_cores()} cores, {free}",
        todo="little memory: workers are few, or are killed; end other programs" if little else "",
    )
    yield _devices()
    if address := os.environ.get("RAY_ADDRESS"):
        yield Finding(
            about="cluster",
            state="note",
            found=f"RAY_ADDRESS = {address}",
            todo="a build runs there; what is said here is of this machine alone",
        )


def _devices() -> Finding:
    seen = _gpus_of_the_driver()
    if importlib.util.find_spec("torch") is None:
        found = f"the driver has {', '.join(seen)}" if seen else "no GPU driver"
        return Finding(about="devices", state="note", found=f"{found}; torch is not installed")
    gpus = _gpus_of_torch()
    if gpus:
        return Finding(about="devices", state="ok", found="; ".join(gpus))
    if seen:
        import torch

        return Finding(
            about="devices",
            state="note",
            found=f"the driver has {', '.join(seen)}, torch {torch.__version__} uses none",
            todo="install a torch of the driver's CUDA version, or a newer driver",
        )
    return Finding(about="devices", state="ok", found=f"{_best()}, no GPU")


def _best() -> str:
    from glit.models.device import best_device

    return best_device()


def _gpus_of_torch() -> list[str]:
    import torch

    found = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, whole = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append(f"cuda:{number} {name}, {size(free)} of {size(whole)} free")
    return found


def _gpus_of_the_driver() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=_ANSWER_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
