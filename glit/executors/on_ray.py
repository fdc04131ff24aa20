"""Units over a pool of Ray actors, each holding one opened task.

Stages run one after the other and each takes the whole cluster, so two stages never wait for
the same GPU. Only unit descriptors travel. When an actor dies, or is silent for too long and ended,
its unit is tried once more on a fresh one. If that dies too, the unit is a suspect, run alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError

from glit.backends.device import best_device
from glit.errors import RunError, first_line
from glit.executors.poison import Patience
from glit.executors.protocols import Beat, Tally, Task, Unwatched, Watch
from glit.executors.ray_actor import DEAD, RemoteActor, Slot, value
from glit.executors.ray_suspect import Suspect
from glit.executors.sharing import gpu_share, threads_a_worker, workers_a_gpu

_START_FAILURES = 3
_DEATHS_IN_A_ROW = 8
"""And four for each worker, without a unit finished between them, end a stage."""
_LOOK_EVERY_S = 10.0
_UNWATCHED = Unwatched()


class RayExecutor:
    """A pool on this machine, or on the cluster that RAY_ADDRESS names."""

    def __init__(self, *, num_workers: int | None = None) -> None:
        self._num_workers = num_workers
        self._slots: list[Slot] = []
        self._gpu_share = 0.0
        self._units_at_once = 1
        self._gpu_bytes = 0
        self._threads = 2
        self._patience = Patience()
        self._started_here = False
        if not ray.is_initialized():
            _start_ray()
            self._started_here = True

    @property
    def device(self) -> str:
        """See :class:`glit.executors.protocols.Executor`; the cluster's, whatever this node has."""
        if ray.cluster_resources().get("GPU", 0) >= 1:
            return "cuda"
        here = best_device() if len(ray.nodes()) == 1 else "cpu"
        return "cpu" if here == "cuda" else here  # a GPU that Ray does not know is not used

    def run(
        self,
        task: Task,
        units: Sequence[Any],
        on_done: Callable[[Any, Tally], None],
        watch: Watch = _UNWATCHED,
    ) -> None:
        """See :class:`glit.executors.protocols.Executor`."""
        if not units:
            return
        try:
            watch.loading(task.loads)
            self._patience = self._new_patience(task.needs.longest_wait_s)
            self._open(task, min(self._pool_size(task), len(units)))
            watch.ready()
            suspects = self._run_all(task, deque(units), on_done, watch)
            for unit in suspects:
                slot = self._slots[0]
                replace = partial(self._replace, task, slot)
                on_done(unit, Suspect(task, unit, slot, self._patience, replace).run())
        except BaseException:
            self._kill_all()  # units may still be at work; nobody waits for them any more
            raise
        if not task.needs.keeps_process:
            self._kill_all()

    _new_patience = Patience

    def close(self) -> None:
        """Stop the workers, and Ray itself if it was started here."""
        self._kill_all()
        if self._started_here:
            ray.shutdown()

    def _pool_size(self, task: Task) -> int:
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
        fitting = int(psutil.virtual_memory().available * 0.8 / task.needs.memory_bytes)
        return max(1, min(cpus, fitting)) if len(ray.nodes()) == 1 else cpus

    def _memory_of_gpus(self) -> int:
        """Memory of a GPU of the cluster; the driver's node may have none, so an actor is asked."""
        if not self._gpu_bytes:
            self._kill_all()  # they may hold all of them
            actor = RemoteActor.options(num_cpus=0, num_gpus=1).remote()
            try:
                found: Any = ray.get(actor.gpu_bytes.remote())
            except RayError as error:
                lines = str(error).strip().splitlines()
                raise RunError(
                    f"Ray has a GPU, but a worker cannot use it ({lines[-1] if lines else error}); "
                    "look at the driver and at torch's CUDA version"
                ) from error
            ray.kill(actor)
            self._gpu_bytes = int(found)
        return self._gpu_bytes

    def _open(self, task: Task, number: int) -> None:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if task.needs.gpus else 0
        share = gpu_share(number, gpus) if task.needs.gpus <= 1 else float(task.needs.gpus)
        kind = (share, task.needs.units_at_once)
        if kind != (self._gpu_share, self._units_at_once):
            self._kill_all()
        self._gpu_share, self._units_at_once = kind
        self._threads = threads_a_worker(resources.get("CPU", 1), number)
        for slot in self._slots[number:]:
            ray.kill(slot.actor)
        self._slots = self._slots[:number]
        while len(self._slots) < number:
            self._slots.append(Slot(self._new_actor()))
        opening = [slot.actor.open.remote(task, self._threads) for slot in self._slots]
        for slot, reference in zip(self._slots, opening, strict=True):
            self._await_open(task, slot, reference)

    def _new_actor(self) -> Any:
        return RemoteActor.options(
            num_cpus=1, num_gpus=self._gpu_share, max_concurrency=self._units_at_once
        ).remote()

    def _await_open(self, task: Task, slot: Slot, reference: Any) -> None:
        for _ in range(_START_FAILURES):
            try:
                value(ray.get(reference))
                return
            except DEAD:
                slot.actor = self._new_actor()
                reference = slot.actor.open.remote(task, self._threads)
        raise RunError(
            f"stage {task.name}: its worker dies while starting, {_START_FAILURES} times in a "
            "row; is there enough memory for the model?"
        )

    def _replace(self, task: Task, slot: Slot) -> None:
        """A fresh actor in the slot."""
        slot.actor = self._new_actor()
        self._await_open(task, slot, slot.actor.open.remote(task, self._threads))

    def _run_all(
        self,
        task: Task,
        waiting: deque[Any],
        on_done: Callable[[Any, Tally], None],
        watch: Watch,
    ) -> list[Any]:
        """Run every unit; those that killed two workers are given back."""
        blamed: list[Any] = []
        suspects: list[Any] = []
        deaths = 0
        while waiting or any(slot.given for slot in self._slots):
            for slot in self._slots:
                while waiting and len(slot.given) < task.needs.units_at_once + 1:
                    slot.add(waiting.popleft())
            at_work = {
                stream: (slot, unit)
                for slot in self._slots
                for stream, unit in islice(slot.given, task.needs.units_at_once)
            }
            ready: list[Any]
            ready, _ = ray.wait(
                list(at_work), num_returns=1, timeout=min(_LOOK_EVERY_S, self._patience.limit_s)
            )
            self._end_silent()
            for stream in ready:
                slot, unit = at_work[stream]
                try:
                    told = value(ray.get(next(stream)))
                except DEAD as error:
                    deaths += 1
                    self._stop_endless(task, deaths, error)
                    unit = self._take_back(slot, waiting)
                    if any(unit is other for other in blamed):
                        suspects.append(unit)
                    else:
                        blamed.append(unit)
                        waiting.append(unit)
                    self._replace(task, slot)
                    continue
                self._patience.heard(slot.silence())
                if isinstance(told, Beat):
                    watch.moved(unit, told)
                    continue
                slot.given.remove((stream, unit))
                deaths = 0
                on_done(unit, told)
        return suspects

    def _end_silent(self) -> None:
        """Kill workers that have said nothing for too long; what comes of it is a death."""
        for slot in self._slots:
            if slot.given and time.monotonic() - slot.heard_at > self._patience.limit_s:
                ray.kill(slot.actor)

    def _stop_endless(self, task: Task, deaths: int, error: Exception) -> None:
        if deaths > _DEATHS_IN_A_ROW + 4 * len(self._slots):
            raise RunError(
                f"stage {task.name}: {deaths} workers died one after the other and none of them "
                f"finished anything ({first_line(error)}); what is done is kept, "
                "run the same command again when that is mended"
            ) from error

    @staticmethod
    def _take_back(slot: Slot, waiting: deque[Any]) -> Any:
        """The unit the dead actor was at; what had only been waiting there goes back first."""
        _, unit = slot.given.popleft()
        while slot.given:
            waiting.appendleft(slot.given.pop()[1])
        return unit

    def _kill_all(self) -> None:
        for slot in self._slots:
            with contextlib.suppress(RayActorError, ValueError):
                ray.kill(slot.actor)
        self._slots = []


def _start_ray() -> None:
    address = os.environ.get("RAY_ADDRESS")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address:
        ray.init(address=address, **options)
    else:
        ray.init(
            address="local",
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            object_store_memory=128 << 20,
            **options,
        )
