"""Units over a pool of Ray actors, each holding one opened task.

Stages run one after the other and each takes the whole cluster, so two stages never wait for
the same GPU. Only unit descriptors travel. When an actor dies its unit is tried once more on a
fresh one. If that dies too, probes that publish nothing bisect the unit until the samples that kill
are known, and the unit is done without them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psutil
import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayError

from glit.backends.device import best_device
from glit.errors import DamagedTableError, GlitError, RunError
from glit.executors.process import prepare_own_process
from glit.executors.protocols import Beat, Tally, Task, Unwatched, Watch, Worker
from glit.executors.sharing import gpu_share, threads_a_worker, workers_a_gpu
from glit.gpu_errors import ruins_process

_START_FAILURES = 3
_UNWATCHED = Unwatched()
_DEAD = (RayActorError, ActorUnavailableError, OutOfMemoryError)
"""A worker is gone: crashed, killed, out of reach, or ended by Ray's watch over memory."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A glit error as an actor returns it: its line and its exit code, without its class."""

    message: str
    exit_code: int
    damaged: DamagedTableError | None = None
    """The error itself, where the driver mends what it tells of."""


class _Actor:
    """A worker process. Errors come back as values, so that only a death is an exception; a process
    whose GPU has failed dies, and a fresh one takes its unit."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def open(self, task: Task, threads: int) -> _Failure | None:
        prepare_own_process()
        self._worker = None
        return _guarded(lambda: setattr(self, "_worker", task.open(threads)))

    def gpu_bytes(self) -> int:
        """Memory of this actor's GPU."""
        import torch

        return torch.cuda.mem_get_info()[1]

    def run(self, unit: Any, excluded: tuple[int, ...]) -> Generator[Any, None, None]:
        """Beats as they come, in the end the tally or a failure."""
        assert self._worker is not None
        running = self._worker.run(unit, excluded)
        while True:
            told = _guarded(lambda: _next(running))
            yield told
            if not isinstance(told, Beat):
                return

    def probe(self, unit: Any, start: int, stop: int) -> Any:
        assert self._worker is not None
        worker = self._worker
        return _guarded(lambda: worker.probe(unit, start, stop))

    def size(self, unit: Any) -> Any:
        assert self._worker is not None
        worker = self._worker
        return _guarded(lambda: worker.size(unit))


_RemoteActor: Any = ray.remote(max_restarts=0, max_task_retries=0)(_Actor)


def _next(running: Generator[Beat, None, Tally]) -> Beat | Tally:
    """The next beat, or the tally that comes after the last."""
    try:
        return next(running)
    except StopIteration as end:
        return end.value


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except GlitError as error:
        damaged = error if isinstance(error, DamagedTableError) else None
        return _Failure(str(error), error.exit_code, damaged)
    except Exception as error:
        if ruins_process(error):
            traceback.print_exc()  # to the worker's log: the driver learns of the death alone
            os._exit(1)
        raise


@dataclass(eq=False)
class _Slot:
    """An actor and the units it has been given, the first of them at work: where it works at
    several, a death is held against the first, and the others go back."""

    actor: Any
    given: deque[tuple[Any, Any]] = field(default_factory=deque)
    """(what streams from it, unit); one more than it works at, so that it need not wait."""

    def give(self, unit: Any, excluded: tuple[int, ...] = ()) -> Any:
        """Send the actor a unit; what comes back, one reference after the other."""
        return self.actor.run.options(num_returns="streaming").remote(unit, excluded)


class RayExecutor:
    """A pool on this machine, or on the cluster that RAY_ADDRESS names."""

    def __init__(self, *, num_workers: int | None = None) -> None:
        self._num_workers = num_workers
        self._slots: list[_Slot] = []
        self._gpu_share = 0.0
        self._units_at_once = 1
        self._gpu_bytes = 0
        self._threads = 2
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
            self._open(task, min(self._pool_size(task), len(units)))
            watch.ready()
            suspects = self._run_all(task, deque(units), on_done, watch)
            for unit in suspects:
                on_done(unit, self._run_suspect(task, unit))
        except BaseException:
            self._kill_all()  # units may still be at work; nobody waits for them any more
            raise
        if not task.needs.keeps_process:
            self._kill_all()

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
            actor = _RemoteActor.options(num_cpus=0, num_gpus=1).remote()
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
            self._slots.append(_Slot(self._new_actor()))
        opening = [slot.actor.open.remote(task, self._threads) for slot in self._slots]
        for slot, reference in zip(self._slots, opening, strict=True):
            self._await_open(task, slot, reference)

    def _new_actor(self) -> Any:
        return _RemoteActor.options(
            num_cpus=1, num_gpus=self._gpu_share, max_concurrency=self._units_at_once
        ).remote()

    def _await_open(self, task: Task, slot: _Slot, reference: Any) -> None:
        for _ in range(_START_FAILURES):
            try:
                _value(ray.get(reference))
                return
            except _DEAD:
                slot.actor = self._new_actor()
                reference = slot.actor.open.remote(task, self._threads)
        raise RunError(
            f"stage {task.name}: its worker dies while starting, {_START_FAILURES} times in a "
            "row; is there enough memory for the model?"
        )

    def _replace(self, task: Task, slot: _Slot) -> None:
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
        while waiting or any(slot.given for slot in self._slots):
            for slot in self._slots:
                while waiting and len(slot.given) < task.needs.units_at_once + 1:
                    unit = waiting.popleft()
                    slot.given.append((slot.give(unit), unit))
            at_work = {
                stream: (slot, unit)
                for slot in self._slots
                for stream, unit in islice(slot.given, task.needs.units_at_once)
            }
            ready: list[Any]
            ready, _ = ray.wait(list(at_work), num_returns=1, timeout=10)
            for stream in ready:
                slot, unit = at_work[stream]
                try:
                    told = _value(ray.get(next(stream)))
                except _DEAD:
                    unit = self._take_back(slot, waiting)
                    if any(unit is other for other in blamed):
                        suspects.append(unit)
                    else:
                        blamed.append(unit)
                        waiting.append(unit)
                    self._replace(task, slot)
                    continue
                if isinstance(told, Beat):
                    watch.moved(unit, told)
                    continue
                slot.given.remove((stream, unit))
                on_done(unit, told)
        return suspects

    @staticmethod
    def _take_back(slot: _Slot, waiting: deque[Any]) -> Any:
        """The unit the dead actor was at; what had only been waiting there goes back first."""
        _, unit = slot.given.popleft()
        while slot.given:
            waiting.appendleft(slot.given.pop()[1])
        return unit

    def _run_suspect(self, task: Task, unit: Any) -> Tally:
        slot = self._slots[0]
        size = _value(ray.get(slot.actor.size.remote(unit)))
        killers = tuple(self._killers(task, slot, unit, 0, size))
        try:
            return next(
                told
                for reference in slot.give(unit, killers)
                if isinstance(told := _value(ray.get(reference)), Tally)
            )
        except _DEAD as error:
            self._replace(task, slot)
            raise RunError(
                f"stage {task.name}: chunk {getattr(unit, 'index', '?')} kills its worker, but "
                f"none of its {size} samples does so alone (memory?); lower {task.name}."
                "batch_size and run the same command again"
            ) from error

    def _killers(self, task: Task, slot: _Slot, unit: Any, start: int, stop: int) -> list[int]:
        """Positions within [start, stop) whose probe kills the worker."""
        try:
            _value(ray.get(slot.actor.probe.remote(unit, start, stop)))
            return []
        except _DEAD:
            self._replace(task, slot)
        if stop - start == 1:
            return [start]
        middle = (start + stop) // 2
        return self._killers(task, slot, unit, start, middle) + self._killers(
            task, slot, unit, middle, stop
        )

    def _kill_all(self) -> None:
        for slot in self._slots:
            with contextlib.suppress(RayActorError, ValueError):
                ray.kill(slot.actor)
        self._slots = []


def _value(result: Any) -> Any:
    """A result, or the error it stands for."""
    if isinstance(result, _Failure):
        if result.damaged is not None:
            raise result.damaged
        error = GlitError(result.message)
        error.exit_code = result.exit_code
        raise error
    return result


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
