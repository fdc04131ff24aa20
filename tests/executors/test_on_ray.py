"""The Ray executor, with tasks that die on purpose and with the real flow."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from building import data_bytes, run_build, tiny

from glit.dataset.verify import verify
from glit.errors import GlitError, RunError
from glit.pipeline.executors.hang_timeout import HangTimeout
from glit.pipeline.executors.protocols import Heartbeat, Job, Resources, Tally
from glit.pipeline.stage_task import StageTask
from glit.stages.image_source import ImageSource

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def executor():
    # workers cannot import this module, so its tasks travel with their code
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    from glit.pipeline.executors.on_ray import RayExecutor

    running = RayExecutor(num_workers=2)
    yield running
    running.close()


@dataclass(frozen=True)
class Unit:
    index: int
    size: int = 8


@dataclass(frozen=True)
class KillerTask:
    """Writes a file per unit; samples in ``killers`` take the process down."""

    folder: str
    killers: tuple[tuple[int, int], ...] = ()
    """(unit, sample)"""
    together: int = 0
    """The process dies when more than this many samples are run at once; 0 is never."""
    once: bool = False
    """Whether a death happens only the first time."""
    failure: str = ""
    awaits: str = ""
    """A file without which the last of four units does not end."""
    counting: bool = False
    """Units take a while, and say how many of them are at work in their process."""
    gpu_error: bool = False
    """Killers are not killed, but raise what a GPU raises that no process recovers from."""
    always: bool = False
    """Every unit kills its worker before its first sample."""
    hangs: bool = False
    """Killers are not killed, but never finished."""
    name: str = "killer"
    loads: str = ""
    needs: Resources = Resources(memory_bytes=1 << 20, gpus=1)
    seen: list = field(default_factory=list)

    def open(self, threads):
        return KillerWorker(self)


class KillerWorker:
    def __init__(self, task: KillerTask):
        self.task = task
        self.at_work = 0

    def _touch(self, unit, samples):
        for sample in samples:
            if (unit.index, sample) in self.task.killers:
                marker = Path(self.task.folder) / f"died-{unit.index}-{sample}"
                if not (self.task.once and marker.exists()):
                    marker.touch()
                    if self.task.hangs:
                        time.sleep(600)
                    if self.task.gpu_error:
                        raise RuntimeError("CUDA error: device-side assert triggered")
                    os.kill(os.getpid(), signal.SIGKILL)
        if self.task.together and len(samples) > self.task.together:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self, unit, excluded):
        if self.task.failure:
            raise RunError(self.task.failure)
        if self.task.always:
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + 120
        while self.task.awaits and unit.index == 3 and not Path(self.task.awaits).exists():
            if time.monotonic() > deadline:
                raise RunError(f"{self.task.awaits} did not come")
            time.sleep(0.02)
        if self.task.counting:
            self.at_work += 1
            time.sleep(0.3)
            (Path(self.task.folder) / f"together-{unit.index}").write_text(str(self.at_work))
            self.at_work -= 1
        if excluded is None:
            self._touch(unit, range(unit.size))
            yield Heartbeat(rows=unit.size // 2, drops=0)
        else:
            with (Path(self.task.folder) / f"attempts-{unit.index}").open("a") as file:
                file.write("x")
            for sample in range(unit.size):
                if str(sample) not in excluded:
                    yield Heartbeat(rows=sample, drops=0, at=str(sample))
                    self._touch(unit, [sample])
            yield Heartbeat(rows=unit.size, drops=0)
        (Path(self.task.folder) / f"unit-{unit.index}").write_text(str(excluded or "whole"))
        return Tally(rows=unit.size, drops={"worker_crash": len(excluded)} if excluded else {})


def go(executor, task, num_units=6, worked=lambda stretch: None):
    done = {}
    units = [Unit(i) for i in range(num_units)]
    executor.run(
        [Job(task=task, units=units, on_done=lambda u, t: done.update({u.index: t}), worked=worked)]
    )
    written = {p.name: p.read_text() for p in Path(task.folder).glob("unit-*")}
    return done, written


def test_every_unit_is_done_once(executor, tmp_path):
    done, written = go(executor, KillerTask(str(tmp_path)))
    assert sorted(done) == list(range(6))
    assert set(written.values()) == {"whole"}


def test_a_worker_may_be_at_two_units_together(executor, tmp_path):
    needs = Resources(memory_bytes=1 << 20, units_at_once=2)
    task = KillerTask(str(tmp_path), needs=needs, counting=True)
    done, _ = go(executor, task, num_units=12)
    assert sorted(done) == list(range(12))
    assert {path.read_text() for path in tmp_path.glob("together-*")} == {"1", "2"}


def test_of_two_units_together_the_one_that_kills_is_found(executor, tmp_path):
    needs = Resources(memory_bytes=1 << 20, units_at_once=2)
    done, written = go(executor, KillerTask(str(tmp_path), needs=needs, killers=((3, 2),)))
    assert sorted(done) == list(range(6))
    assert written["unit-3"] == "{'2': 'worker_crash'}"
    assert [written[f"unit-{i}"] for i in (0, 1, 2, 4, 5)] == ["whole"] * 5


def test_a_unit_goes_on_in_another_place_while_others_are_at_the_first(executor, tmp_path):
    """And the stage after both begins in the first place when that is free."""
    told = []

    def job(name, place, after=(), awaits=""):
        needs = Resources(memory_bytes=1 << 20, place=place)
        (tmp_path / name).mkdir()
        task = KillerTask(str(tmp_path / name), needs=needs, awaits=awaits, name=name)
        return Job(
            task=task,
            units=[Unit(i) for i in range(4)],
            on_done=lambda unit, tally: told.append((name, unit.index)),
            after=after,
        )

    asked = job("asked", "server", awaits=str(tmp_path / "cut" / "unit-0"))
    cut = job("cut", "cpu", after=("asked",))
    last = job("last", "server", after=("asked", "cut"))
    executor.run([asked, cut, last])
    assert sorted(told) == sorted((name, i) for name in ("asked", "cut", "last") for i in range(4))
    for number in range(4):
        order = [told.index((name, number)) for name in ("asked", "cut", "last")]
        assert order == sorted(order)


def test_a_worker_that_dies_once_costs_nothing(executor, tmp_path):
    stretches = []
    task = KillerTask(str(tmp_path), killers=((2, 5),), once=True)
    done, written = go(executor, task, worked=stretches.append)
    assert sorted(done) == list(range(6))
    assert sorted(each.lost for each in stretches) == [False] * 6 + [True]
    assert written["unit-2"] == "whole"


def test_killing_samples_are_found_and_left_out(executor, tmp_path):
    done, written = go(executor, KillerTask(str(tmp_path), killers=((1, 6), (1, 7))))
    assert sorted(done) == list(range(6))
    assert written["unit-1"] == "{'6': 'worker_crash', '7': 'worker_crash'}"
    assert done[1].drops == {"worker_crash": 2}
    assert [written[f"unit-{i}"] for i in (0, 2, 3, 4, 5)] == ["whole"] * 5


def test_one_that_kills_among_many_takes_few_attempts(executor, tmp_path):
    """Of 64: twice among others, once after all that do not kill, and once without it."""
    task = KillerTask(str(tmp_path), killers=((0, 63),))
    executor.run([Job(task=task, units=[Unit(0, 64)])])
    assert (tmp_path / "unit-0").read_text() == "{'63': 'worker_crash'}"
    assert (tmp_path / "attempts-0").read_text() == "xx"


def test_a_sample_that_never_ends_is_found_and_left_out(executor, tmp_path, monkeypatch):
    patience = partial(HangTimeout, least_s=1.5, first_s=1.5)
    monkeypatch.setattr(executor, "_new_patience", patience)
    done, written = go(executor, KillerTask(str(tmp_path), killers=((2, 7),), hangs=True))
    assert sorted(done) == list(range(6))
    assert written["unit-2"] == "{'7': 'timeout'}"
    assert [written[f"unit-{i}"] for i in (0, 1, 3, 4, 5)] == ["whole"] * 5


def test_workers_that_all_die_end_the_stage(executor, tmp_path, monkeypatch):
    from glit.pipeline.executors import ray_pool

    monkeypatch.setattr(ray_pool, "_DEATHS_IN_A_ROW", -6)
    with pytest.raises(RunError, match=r"stage killer: 3 workers died one after the other") as said:
        go(executor, KillerTask(str(tmp_path), together=1), num_units=40)
    assert "what is done is kept" in str(said.value)


@pytest.mark.parametrize("once", [True, False])
def test_a_process_whose_gpu_failed_is_replaced(executor, tmp_path, once):
    """Its unit is done by a fresh one; only a sample that ruins that one too is left out."""
    task = KillerTask(str(tmp_path), killers=((2, 5),), once=once, gpu_error=True)
    done, written = go(executor, task)
    assert sorted(done) == list(range(6))
    assert written["unit-2"] == ("whole" if once else "{'5': 'worker_crash'}")


def test_a_unit_too_large_as_a_whole_is_done_one_sample_at_a_time(executor, tmp_path):
    done, written = go(executor, KillerTask(str(tmp_path), together=6), num_units=1)
    assert done[0].drops == {} and written["unit-0"] == "whole"


def test_a_unit_that_kills_and_no_sample_does_is_one_clear_error(executor, tmp_path):
    with pytest.raises(RunError, match="kills its worker, but none of its samples does so"):
        go(executor, KillerTask(str(tmp_path), always=True), num_units=1)


def test_glit_errors_arrive_as_one_line(executor, tmp_path):
    with pytest.raises(GlitError, match="^the model is gone$"):
        go(executor, KillerTask(str(tmp_path), failure="the model is gone"))


def test_the_same_bytes_as_in_one_process(executor, scenes, built, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", executor=executor
    )
    assert data_bytes(tmp_path / "out") == data_bytes(built)


class Segfaulting(ImageSource):
    """Decoding one image takes the process with it."""

    poison: str

    def load(self, sample):
        if sample.source_path == self.poison:
            ctypes.string_at(0)
        return super().load(sample)


@dataclass(frozen=True)
class PoisonedTask(StageTask):
    """The real stage with its real model, and one image that no decoder survives."""

    def open(self, threads):
        worker = super().open(threads)
        if self.name == "propose":
            worker._images = Segfaulting(self.work.images)
            worker._images.poison = "000007.png"
        return worker


def test_an_image_that_segfaults_is_dropped_and_the_rest_is_shipped(
    executor, scenes, built_by_mini, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys.modules["glit.pipeline.run"], "StageTask", PoisonedTask)
    out = tmp_path / "out"
    manifest = run_build(
        scenes / "images", out, captions=scenes / "captions.jsonl", executor=executor,
        overrides=["ingest.chunk_size=8"], recipe="mini",
    )  # fmt: skip
    assert manifest.counts.drops == {"propose/worker_crash": 1}
    assert list(verify(str(out))) == []
    rows, whole = (
        {row["source_path"]: row for row in pq.read_table(folder / "data").to_pylist()}
        for folder in (out, built_by_mini)
    )
    assert whole.pop("000007.png") and rows == whole


@pytest.mark.engine
def test_kill_dash_nine_of_the_driver(scenes, built, tmp_path):
    out = tmp_path / "out"
    arguments = [
        sys.executable, "-m", "glit", "build", scenes / "images", "-o", out, "-r", "mini",
        "--captions", scenes / "captions.jsonl",
        *(word for override in tiny() for word in ("--set", override)),
    ]  # fmt: skip
    environment = {**os.environ, "RAY_ADDRESS": ""}
    process = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 180
    while not list(out.glob("work/propose-*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "manifest.json").exists()
    finished = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert data_bytes(out) == data_bytes(built)


@pytest.mark.parametrize(
    ("gpu_bytes", "workers", "share"), [(8 << 30, 6, 0.3333), (40 << 30, 2, 1.0), (0, 2, 1.0)]
)
def test_workers_share_the_gpus_of_a_cluster(executor, monkeypatch, gpu_bytes, workers, share):
    """Two GPUs of 80 GiB and twelve cores: three workers each where memory and cores allow it."""
    from glit.pipeline.executors import on_ray

    monkeypatch.setattr(on_ray.ray, "cluster_resources", lambda: {"GPU": 2.0, "CPU": 12.0})
    monkeypatch.setattr(executor, "_gpu_bytes", 80 << 30)
    number = executor._pool_size(
        KillerTask("", needs=Resources(memory_bytes=1, gpus=1, gpu_bytes=gpu_bytes))
    )
    assert (number, on_ray.gpu_share(number, 2)) == (workers, share)


@pytest.mark.parametrize(("gpus", "workers"), [(1, 4), (2, 2), (4, 1)])
def test_a_model_over_several_gpus_takes_them_whole(executor, monkeypatch, gpus, workers):
    from glit.pipeline.executors import on_ray

    monkeypatch.setattr(on_ray.ray, "cluster_resources", lambda: {"GPU": 4.0, "CPU": 4.0})
    monkeypatch.setattr(executor, "_gpu_bytes", 80 << 30)
    needs = Resources(memory_bytes=1, gpus=gpus)
    assert executor._pool_size(KillerTask("", needs=needs)) == workers


def test_more_gpus_than_there_are_is_one_line(executor, monkeypatch):
    from glit.pipeline.executors import on_ray

    monkeypatch.setattr(on_ray.ray, "cluster_resources", lambda: {"GPU": 2.0, "CPU": 4.0})
    with pytest.raises(RunError, match="wants 4 GPUs together, Ray has 2"):
        executor._pool_size(KillerTask("", needs=Resources(memory_bytes=1, gpus=4)))


def test_the_token_that_ray_asks_for_is_its_users_alone(executor):
    """Ray listens on all addresses; whoever has the token may run code as this user."""
    import ray

    token = Path.home() / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o077 == 0
    without = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": os.devnull}
    words = "import ray, sys; ray.init(address=sys.argv[1], logging_level=50)"
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", words, address], env={**os.environ, **without},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode and "AuthenticationError" in done.stderr
