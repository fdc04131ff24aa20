"""Several processes: an exchange between the GPUs, and a build by Ray's actors on them."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import glit
from glit.bench.gpu.bench import Bench, row
from glit.bench.harness import Row
from glit.scenes import write_scenes


def measure(bench: Bench) -> Iterator[Row]:
    """The exchange, then the build."""
    yield from _exchange(bench)
    yield from _build(bench)


def _exchange(bench: Bench) -> Iterator[Row]:
    """All-reduce over every GPU of the machine; over two processes without one."""
    import torch
    import torch.multiprocessing

    ranks = torch.cuda.device_count() if bench.device == "cuda" else 2
    result = bench.scratch / "all-reduce"
    torch.multiprocessing.start_processes(
        one_rank,
        args=(ranks, bench.device, bench.scale.copy_bytes, str(result)),
        nprocs=ranks,
        start_method="spawn",
    )
    seconds = float(result.read_text())
    backend = "NCCL" if bench.device == "cuda" else "gloo"
    moved = 2 * (ranks - 1) / ranks if ranks > 1 else 1  # a ring's share of the data
    rate = moved * bench.scale.copy_bytes / seconds / 1e9
    what = f"{backend} all-reduce, {ranks} ranks, {bench.scale.copy_bytes >> 20} MiB"
    yield row(what, rate, "GB/s", bottleneck="link" if ranks > 1 else "memory, one GPU")


def one_rank(rank: int, ranks: int, device: str, num_bytes: int, result: str) -> None:
    """A process of the group; the first writes the seconds of an all-reduce."""
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    meeting = f"file://{result}.meeting"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=ranks)
    data = torch.ones(num_bytes // 4, device=device)
    times = []
    for _ in range(4):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(data)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    if rank == 0:
        Path(result).write_text(str(min(times)))
    dist.destroy_process_group()


def _build(bench: Bench) -> Iterator[Row]:
    """The mini recipe over scenes, by Ray on a GPU and in this process elsewhere."""
    ray = bench.device == "cuda" and importlib.util.find_spec("ray") is not None
    number = 8 * bench.scale.num_compared
    write_scenes(bench.scratch / "scenes", num=number, seed=1, size=128)
    settings = [f"{table}.device={bench.device}" for table in ("caption", "propose", "score")]
    started = time.perf_counter()
    dataset = glit.build(
        bench.scratch / "scenes" / "images", bench.scratch / "dataset", recipe="mini",
        settings=settings, executor="ray" if ray else "local", quiet=True,
    )  # fmt: skip
    rate = dataset.manifest["counts"]["shipped"] / (time.perf_counter() - started)
    what = f"glit build with the mini models, {'Ray' if ray else 'one process'}, start included"
    yield row(what, rate, "images/s", bottleneck="starting workers")
