"""The driver's code on a made-up cluster: many workers, of which some die."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass

import pytest

from glit.errors import UserError
from glit.pipeline.executors.on_ray import RayExecutor, _short_folder
from glit.pipeline.executors.protocols import Job, Resources, Tally
from tools.measure.made_up_ray import Clock, MadeUpCluster, replaced


@dataclass(frozen=True)
class Unit:
    index: int


@dataclass(frozen=True)
class Waits:
    name: str
    needs: Resources
    beat_s: float = 5.0
    loads: str = ""

    def size(self, unit):
        return 256

    def seconds(self, unit):
        return 30.0 + unit.index % 7

    def publish(self, unit):
        return Tally(rows=256)


class OnLargeGpus(RayExecutor):
    def _memory_of_gpus(self):
        return 80 << 30


@pytest.mark.parametrize("lives_s", [1e9, 600.0])
def test_every_unit_is_done_once_whoever_dies(monkeypatch, lives_s):
    """Also where an actor dies at two units at once."""
    cluster = MadeUpCluster(Clock(), cores=64, gpus=8, lives_s=lives_s, dice=random.Random(1))
    for module, name, value in replaced(cluster):
        monkeypatch.setattr(module, name, value)
    done, lost, jobs = Counter(), Counter(), []
    for name, place, after in (("caption", "cuda", ()), ("split", "cpu", ("caption",))):
        needs = Resources(
            memory_bytes=1, place=place, gpus=int(place == "cuda"),
            units_at_once=2 if place == "cuda" else 1,
        )  # fmt: skip
        jobs.append(
            Job(
                task=Waits(name, needs),
                units=[Unit(n) for n in range(400)],
                after=after,
                on_done=lambda unit, tally, name=name: done.update([(name, unit.index)]),
                worked=lambda interval, name=name: lost.update({name: interval.lost}),
            )
        )
    OnLargeGpus().run(jobs)
    assert done == Counter((job.task.name, n) for job in jobs for n in range(400))
    assert bool(lost["caption"]) == (lives_s < 1e9)
    busy, start, end = cluster.spans["caption"]
    assert busy <= 8 * (end - start)


@pytest.mark.parametrize(
    ("names", "moved"),
    [({}, False), ({"TMPDIR": "/scratch/" + "a" * 27}, False), ({"TMPDIR": "/s/" + "a" * 34}, True),
     ({"TMPDIR": "/s/" + "a" * 34, "RAY_TMPDIR": "/s"}, False)],
)  # fmt: skip
def test_sockets_fit_below_a_long_folder_for_temporary_files(monkeypatch, names, moved):
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert _short_folder() == ({"_temp_dir": f"/tmp/ray-{os.getuid()}"} if moved else {})
    monkeypatch.setenv("RAY_TMPDIR", "/s/" + "a" * 34)
    with pytest.raises(UserError, match="RAY_TMPDIR=.*name a shorter folder"):
        _short_folder()
