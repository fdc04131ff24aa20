"""Jobs over pools of Ray actors, each holding one opened task.

Jobs in one place (the GPUs, the processor) run one after the other and each takes all of it, so two
models never wait for the same GPU; those in different places overlap. Only unit descriptors travel.
When an actor dies, or is silent for too long and ended, its unit is tried once more on a fresh one.
If that dies too, the unit is a suspect, run alone. When its node has gone, nobody is blamed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.exceptions import RayError

from glit.errors import RunError, UserError, first_line
from glit.models.device import best_device
from glit.pipeline.executors.flow import JobFlow
from glit.pipeline.executors.hang_timeout import HangTimeout
from glit.pipeline.executors.protocols import Job, Task
from glit.pipeline.executors.ray_actor import RemoteActor, end
from glit.pipeline.executors.ray_pool import Kind, Pool
from glit.pipeline.executors.sharing import MOST_WORKERS, gpu_share, threads_a_worker, workers_a_gpu
from glit.storage.remote_settings import set_by_program

_LOOK_EVERY_S = 10.0
_KNOCK_S = 10.0
_LONGEST_FOLDER = 36
"""Bytes of TMPDIR: the path of a socket has 107, of which Ray's own folders take up to 71."""
_GATHER_S = 0.0002
"""Seconds for each worker in which their messages are taken together: to look through all of them
costs time for each, and every worker has its next unit already."""


class RayExecutor:
    """Pools on this machine, or on a running cluster.

    Args:
        num_workers: processes of a stage; None takes what memory and cores allow.
        address: of the cluster's head (``HOST:PORT``, or ``auto`` for the one this node belongs
            to); None takes RAY_ADDRESS, and without it this machine.

    Raises:
        UserError: there is no cluster at the address.
    """

    def __init__(self, *, num_workers: int | None = None, address: str | None = None) -> None:
        self._num_workers = num_workers
        self._idle: tuple[Kind, list[Any]] = ((0.0, 0.0, 0), [])
        self._gpu_bytes = 0
        self._looked_at = time.monotonic()
        self._started_here = False
        if not ray.is_initialized():
            _start_ray(address or os.environ.get("RAY_ADDRESS"))
            self._started_here = True

    @property
    def device(self) -> str:
        """See :class:`glit.pipeline.executors.protocols.Executor`; that of the cluster."""
        if ray.cluster_resources().get("GPU", 0) >= 1:
            return "cuda"
        here = best_device() if len(ray.nodes()) == 1 else "cpu"
        return "cpu" if here == "cuda" else here  # a GPU that Ray does not know is not used

    @property
    def size(self) -> tuple[int, int]:
        """See :class:`glit.pipeline.executors.protocols.Executor`."""
        found = ray.cluster_resources()
        return int(found.get("CPU", 1)), int(found.get("GPU", 0))

    def run(self, jobs: Sequence[Job]) -> None:
        """See :class:`glit.pipeline.executors.protocols.Executor`."""
        flow, pools = JobFlow(jobs), dict[str, Pool]()
        beside_gpus = any(job.units and job.task.needs.place == "cuda" for job in jobs)
        try:
            self._begin(flow, pools, beside_gpus=beside_gpus)
            while pools:
                self._wait(pools.values(), beside_gpus=beside_gpus)
                for name, pool in list(pools.items()):
                    if not pool.busy and not flow.waits(pool.job):
                        self._keep(pools.pop(name))
                        flow.end(pool.job)
                self._begin(flow, pools, beside_gpus=beside_gpus)
        except BaseException:
            for pool in pools.values():  # units may still be at work; nobody waits for them now
                pool.kill()
            raise

    def _begin(self, flow: JobFlow, pools: dict[str, Pool], *, beside_gpus: bool) -> None:
        """Open the pools of the jobs that can begin."""
        for job in flow.beginning():
            job.begin()
            if job.units:
                pools[job.task.name] = self._open(job, flow, beside_gpus=beside_gpus)
                job.watch.loading(job.task.loads)

    def _wait(self, pools: Collection[Pool], *, beside_gpus: bool) -> None:
        """Until something comes from a worker; now and then look for those that are silent, and for
        machines that came or went."""
        for pool in pools:
            pool.give()
        tried = [pool.try_suspect() for pool in pools]  # of every pool, not up to the first
        if any(tried):
            for pool in pools:
                pool.excuse()
            return
        streams = {stream: what for pool in pools for stream, what in pool.streams().items()}
        look_s = min(_LOOK_EVERY_S, *(pool.longest_silence_s for pool in pools))
        ready, _ = ray.wait(list(streams), num_returns=1, timeout=look_s)
        if ready and len(streams) > 1:
            gather_s = _GATHER_S * len(streams)
            ready, _ = ray.wait(list(streams), num_returns=len(streams), timeout=gather_s)
        for stream in ready:
            streams[stream]()
        if time.monotonic() - self._looked_at >= look_s:
            self._looked_at = time.monotonic()
            for pool in pools:
                pool.end_silent()
                pool.resize(self._size(pool.job, beside_gpus=beside_gpus))

    _new_patience = HangTimeout

    def close(self) -> None:
        """Stop the workers, and Ray itself if it was started here."""
        self._end_idle()
        if self._started_here:
            ray.shutdown()

    def _open(self, job: Job, flow: JobFlow, *, beside_gpus: bool) -> Pool:
        task, resources = job.task, ray.cluster_resources()
        number = self._size(job, beside_gpus=beside_gpus)
        gpus = int(resources.get("GPU", 0)) if task.needs.gpus else 0
        kind = (
            0.0 if task.needs.place == "server" else 1.0,
            gpu_share(number, gpus) if task.needs.gpus <= 1 else float(task.needs.gpus),
            task.needs.units_at_once,
        )
        idle_kind, idle = self._idle
        if kind != idle_kind:
            self._end_idle()
            idle = []
        self._idle = (kind, [])
        for actor in idle[number:]:
            end(actor)
        pool = Pool(
            job,
            kind,
            flow.ready(job),
            idle[:number],
            new_actor=lambda: _new_actor(kind),
            threads=threads_a_worker(resources.get("CPU", 1), number),
            patience=self._new_patience(task.needs.longest_wait_s),
            on_done=lambda unit: flow.done(job, unit),
        )
        pool.resize(number)
        return pool

    def _keep(self, pool: Pool) -> None:
        """Actors for the next job; those of the last that nobody took are ended."""
        self._end_idle()
        self._idle = (pool.kind, pool.release())

    def _end_idle(self) -> None:
        for actor in self._idle[1]:
            end(actor)
        self._idle = (self._idle[0], [])

    def _size(self, job: Job, *, beside_gpus: bool) -> int:
        number = self._pool_size(job.task, beside_gpus=beside_gpus)
        return max(1, min(number, len(job.units)))

    def _pool_size(self, task: Task, *, beside_gpus: bool = False) -> int:
        """Return how many workers of a task the cluster has room for; beside GPUs, without the
        cores that their workers want."""
        resources = ray.cluster_resources()
        cpus = max(1, int(resources.get("CPU", 1)))
        gpus = int(resources.get("GPU", 0)) if task.needs.gpus else 0
        if 0 < gpus < task.needs.gpus:
            raise RunError(
                f"stage {task.name}: a worker wants {task.needs.gpus} GPUs together, Ray has {gpus}"
            )
        if gpus and task.needs.gpus > 1:
            return gpus // task.needs.gpus
        if gpus:
            return gpus * workers_a_gpu(task.needs.gpu_bytes, self._memory_of_gpus(), cpus / gpus)
        if self._num_workers is not None:
            return self._num_workers
        if beside_gpus:
            return max(1, cpus - MOST_WORKERS * int(resources.get("GPU", 0)))
        fitting = int(psutil.virtual_memory().available * 0.8 / task.needs.memory_bytes)
        return max(1, min(cpus, fitting)) if len(ray.nodes()) == 1 else cpus

    def _memory_of_gpus(self) -> int:
        """Memory of a GPU of the cluster; the driver's node may have none, so an actor is asked."""
        if not self._gpu_bytes:
            self._end_idle()  # they may hold all of them
            actor = RemoteActor.options(num_cpus=0, num_gpus=1).remote({})
            try:
                found: Any = ray.get(actor.gpu_bytes.remote())
            except RayError as error:
                lines = str(error).strip().splitlines()
                raise RunError(
                    f"Ray has a GPU, but a worker cannot use it ({lines[-1] if lines else error}); "
                    "look at the driver and at torch's CUDA version"
                ) from error
            end(actor)
            self._gpu_bytes = int(found)
        return self._gpu_bytes


def _new_actor(kind: Kind) -> Any:
    cores, gpus, at_once = kind
    kind_of_actor = RemoteActor.options(num_cpus=cores, num_gpus=gpus, max_concurrency=at_once)
    return kind_of_actor.remote(set_by_program())


def _start_ray(address: str | None) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address:
        try:
            _knock(address)  # ray.init itself waits for minutes
            ray.init(address=address, **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(
                f"--ray-address {address}: no Ray cluster answers there ({first_line(error)}); "
                "start one with ray start --head, with the same RAY_AUTH_MODE and token, or leave "
                "the option away for this machine alone"
            ) from error
    else:
        ray.init(
            address="local",
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            object_store_memory=128 << 20,
            **_short_folder(),
            **options,
        )
        _hide_token()


def _short_folder() -> dict[str, str]:
    """Return the option that moves Ray's files out of a TMPDIR whose name is too long for sockets.

    Raises:
        UserError: RAY_TMPDIR is too long.
    """
    given = os.environ.get("RAY_TMPDIR")
    folder = given or os.environ.get("TMPDIR") or "/tmp"
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER or not sys.platform.startswith("linux"):
        return {}
    if given:
        raise UserError(
            f"RAY_TMPDIR={given}: is longer than the {_LONGEST_FOLDER} bytes that Ray's sockets "
            "leave; name a shorter folder"
        )
    return {"_temp_dir": f"/tmp/ray-{os.getuid()}"}


def _hide_token() -> None:
    """Make Ray's token readable to this user alone.

    Ray listens on all network addresses and accepts every client that has the token, whose file it
    creates readable to all users.
    """
    with contextlib.suppress(OSError, RuntimeError):  # there may be no home
        token = Path.home() / ".ray" / "auth_token"
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)


def _knock(address: str) -> None:
    """See that something listens at an address of the form HOST:PORT.

    Raises:
        UserError: it is for Ray's client, which cannot do what is needed.
        OSError: nothing does.
    """
    if address.startswith("ray://"):
        raise UserError(
            f"--ray-address {address}: want HOST:PORT of the head, from a node of the cluster "
            "(Ray's client over ray:// cannot stream what workers tell)"
        )
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()
