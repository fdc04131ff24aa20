"""A cluster that only a clock drives, in the place of Ray: the driver's own code runs against it.

The clock counts the driver's processor time and jumps to the next thing that a worker says, so the
driver's costs and its workers' idle time are those of a real cluster, but for Ray's own.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol, cast

from ray.exceptions import RayActorError

from glit.pipeline.executors import on_ray, ray_actor, ray_pool, ray_suspect
from glit.pipeline.executors.protocols import Heartbeat, Resources, Tally
from glit.pipeline.work import timeline
from glit.runtime import progress

_START_S = {"cuda": 90.0, "cpu": 10.0}


class Work(Protocol):
    """A task whose workers only wait."""

    name: str
    needs: Resources
    beat_s: float
    """Seconds between two signs of life."""

    def size(self, unit: Any) -> int: ...

    def seconds(self, unit: Any) -> float:
        """How long a worker is at a unit."""
        ...

    def publish(self, unit: Any) -> Tally:
        """What a worker leaves at its end."""
        ...


class Clock:
    """Stands in for the module ``time``: the driver's processor time, and what is waited for."""

    def __init__(self) -> None:
        self.at, self.hidden = time.time() - time.process_time(), 0.0

    def time(self) -> float:
        return self.at + time.process_time() - self.hidden

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """What is done within costs the driver nothing: others do it."""
        start = time.process_time()
        yield
        self.hidden += time.process_time() - start


class Stream:
    """What an actor tells of a unit: a beat now and then, then the tally, or that it died."""

    def __init__(self, actor: MadeUpActor, unit: Any) -> None:
        self.actor, self.unit, task = actor, unit, actor.task
        lane = min(range(len(actor.lanes)), key=actor.lanes.__getitem__)
        now = actor.cluster.clock.time()
        self.start = self.at = max(now, actor.lanes[lane])
        self.end = actor.lanes[lane] = self.start + task.seconds(unit)
        self.step()

    def step(self) -> None:
        """When it says the next thing."""
        self.at = min(self.at + self.actor.task.beat_s, self.end, self.actor.dies_at)
        self.actor.cluster.expect(self)

    def __next__(self) -> Any:
        task, cluster = self.actor.task, self.actor.cluster
        if self.at >= self.actor.dies_at:
            self.at = math.inf
            return RayActorError()
        if self.at < self.end:
            rows = int(task.size(self.unit) * (self.at - self.start) / (self.end - self.start))
            self.step()
            return Heartbeat(rows=rows, drops=0)
        self.at = math.inf
        with cluster.clock.stopped():
            cluster.note(task.name, self.start, self.end, len(self.actor.lanes))
            return task.publish(self.unit)


class MadeUpActor:
    """An actor of a made-up cluster; its methods have ``remote`` as Ray's have."""

    def __init__(self, cluster: MadeUpCluster, num_lanes: int) -> None:
        self.cluster, self.task = cluster, cast(Work, None)
        self.lanes = [0.0] * num_lanes
        self.dies_at = cluster.clock.time() + cluster.dice.expovariate(1 / cluster.lives_s)
        given = SimpleNamespace(remote=lambda unit, excluded: Stream(self, unit))
        self.run = SimpleNamespace(options=lambda **_: given)
        self.open = SimpleNamespace(remote=self._open)
        self.size = SimpleNamespace(remote=lambda unit: self.task.size(unit))
        self.probe = SimpleNamespace(remote=lambda *_: None)

    def _open(self, task: Work, threads: int) -> _Once:
        self.task = task
        opening = _Once(self.cluster.clock.time() + _START_S[task.needs.place])
        self.cluster.expect(opening)
        return opening


@dataclass(eq=False)
class _Once:
    """The reference that comes when an actor has started."""

    at: float


@dataclass
class MadeUpCluster:
    """Stands in for the module ``ray``, as far as glit's driver uses it."""

    clock: Clock
    cores: int
    gpus: int
    lives_s: float
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    coming: list[tuple[float, int, Any]] = field(default_factory=list)
    spans: dict[str, list[float]] = field(default_factory=dict)
    count: int = 0

    def expect(self, reference: Any) -> None:
        self.count += 1
        heapq.heappush(self.coming, (reference.at, self.count, reference))

    def note(self, stage: str, start: float, end: float, lanes: int) -> None:
        span = self.spans.setdefault(stage, [0.0, start, end])
        span[0], span[1] = span[0] + (end - start) / lanes, min(span[1], start)
        span[2] = max(span[2], end)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cores, "GPU": self.gpus}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "one", "Alive": True}, {"NodeID": "two", "Alive": True}]

    def options(self, *, num_cpus: float, num_gpus: float, max_concurrency: int = 1) -> Any:
        return SimpleNamespace(remote=lambda stores: MadeUpActor(self, max_concurrency))

    def kill(self, actor: MadeUpActor) -> None:
        actor.dies_at = min(actor.dies_at, self.clock.time())

    def wait(self, references: Sequence[Any], *, num_returns: int = 1, timeout: float) -> Any:
        """The references that are ready; the clock jumps to the last of them, or to the timeout."""
        with self.clock.stopped():
            wanted, until = set(references), self.clock.time() + timeout
            seen: list[tuple[float, int, Any]] = []
            ready: list[Any] = []
            while self.coming and len(ready) < num_returns and self.coming[0][0] <= until:
                entry = heapq.heappop(self.coming)
                if entry[0] == entry[2].at and entry[2] not in ready:
                    seen += [entry] if entry[2] in wanted or isinstance(entry[2], Stream) else []
                    ready += [entry[2]] if entry[2] in wanted else []
            last = ready[-1].at if len(ready) == num_returns else until
            self.clock.at += max(0.0, last - self.clock.time())
            for entry in seen:
                heapq.heappush(self.coming, entry)
        return ready, []

    def get(self, reference: Any, timeout: float | None = None) -> Any:
        if isinstance(reference, Exception):
            raise reference
        return "one" if isinstance(reference, _Once) else reference


def replaced(cluster: MadeUpCluster) -> list[tuple[ModuleType, str, Any]]:
    """The modules whose attribute of a name is to be replaced, so that glit runs on the cluster."""
    on_cluster, timed = (on_ray, ray_actor, ray_pool, ray_suspect), (on_ray, ray_actor, ray_pool)
    return [
        *((module, "ray", cluster) for module in on_cluster),
        *((module, "time", cluster.clock) for module in (*timed, timeline, progress)),
        (on_ray, "RemoteActor", cluster),
    ]
