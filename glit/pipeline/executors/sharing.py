"""Choose how many workers share a GPU, and how many decoding threads each of them has."""

from __future__ import annotations

MOST_WORKERS = 4
"""Workers of one GPU. While one prepares a batch or reads results another computes; more of them
only cut the GPU's time into smaller pieces."""
_SHARE = 0.85
"""The share of a GPU's memory that is planned with."""
_CORES = 2
"""A worker has a Python thread at work and at least one that decodes."""


def workers_a_gpu(needed_bytes: int, gpu_bytes: int, cores: float) -> int:
    """Return how many workers of a task share a GPU.

    Args:
        needed_bytes: of the GPU's memory that one needs; 0 for one that wants all of it.
        gpu_bytes: what the GPU has.
        cores: of the processor, for each GPU.

    >>> workers_a_gpu(8 << 30, 80 << 30, 16), workers_a_gpu(30 << 30, 80 << 30, 16)
    (4, 2)
    >>> workers_a_gpu(8 << 30, 80 << 30, 5), workers_a_gpu(0, 80 << 30, 16)
    (2, 1)
    """
    if not needed_bytes:
        return 1
    fitting = int(gpu_bytes * _SHARE / needed_bytes)
    return max(1, min(fitting, int(cores / _CORES), MOST_WORKERS))


def gpu_share(workers: int, gpus: int) -> float:
    """The part of a GPU that each worker asks for, so that all of them find a place.

    >>> gpu_share(1, 2), gpu_share(3, 2), gpu_share(3, 1), gpu_share(2, 0)
    (1.0, 0.5, 0.3333, 0.0)
    """
    if not gpus:
        return 0.0
    together = -(-workers // gpus)
    return int(10_000 / together) / 10_000


def threads_a_worker(cores: float, workers: int) -> int:
    """Decoding threads: a worker's share of the cores, two at least.

    >>> threads_a_worker(16, 4), threads_a_worker(2, 2)
    (4, 2)
    """
    return max(2, int(cores / workers))
