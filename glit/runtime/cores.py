"""Count the CPU cores that this process may use."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from glit.runtime.ranks import num_on_this_machine

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that the scheduler and a container's limit leave to this process; 1 or more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _quota()
    return max(1, min(cores or 1, math.ceil(quota) if quota else cores or 1))


def unused_allocation() -> str:
    """Return a line that says how many cores of a Slurm job this step was not given; empty if none.

    ``srun`` does not take ``--cpus-per-task`` over from ``sbatch``: a step then has one core.
    """
    found = re.match(r"\d+", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    tasks = re.match(r"\d+", os.environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    if not found or not tasks or usable_cores() * int(tasks[0]) >= int(found[0]):
        return ""
    each = int(found[0]) // max(1, int(tasks[0]))
    return (
        f"Slurm gave this process {usable_cores()} of the job's {found[0]} cores; start it with "
        f"srun --cpus-per-task={each}"
    )


def cores_of_this_rank() -> int:
    """This process's share of the cores if torchrun started several here."""
    return max(1, usable_cores() // num_on_this_machine())


def num_threads(wanted: int) -> int:
    """Resolve ``num_workers`` of a recipe: -1 is one thread per core."""
    return cores_of_this_rank() if wanted < 0 else wanted


def _quota() -> float | None:
    """CPU seconds a second that the container allows (cgroup v2's cpu.max, v1's cfs files)."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((_CGROUP / name).read_text() for name in names).split()
            limit, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # no such file, or "max"
            continue
        if limit > 0 and period > 0:
            return limit / period
    return None
