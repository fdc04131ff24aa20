"""A build of millions whose models only wait: ``python -m tools.measure.rehearse OUT``.

The listing, the scheduling, the tables and the ledgers are glit's own; images and models are made
up. Without ``--real`` the cluster is made up too (:mod:`tools.measure.made_up_ray`), with it the
workers are processes of Ray, which sleep. Run again, it measures how a finished folder resumes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import ray

from glit.data.records import Drop
from glit.data.rows import drop_row
from glit.data.schema import stage_schema
from glit.inputs.files import ImageFiles
from glit.inputs.source import Source
from glit.pipeline.executors.on_ray import RayExecutor
from glit.pipeline.executors.protocols import Heartbeat, Job, Place, Resources, Tally
from glit.pipeline.planning.inputs import Inputs
from glit.pipeline.planning.plan import make_plan
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.run import run_stages
from glit.pipeline.work import ledger as ledger_module
from glit.pipeline.work.folder import Work
from glit.pipeline.work.ledger import count_series, cut_series, ledger_name, make_ledger
from glit.pipeline.work.listing import Chunk, write_listing
from glit.pipeline.work.open_work import OpenWork
from glit.pipeline.work.scan import gathered
from glit.pipeline.work.state import BuildState, SourceNames, write_state
from glit.pipeline.work.tables import META_DROPS, META_ROWS, write_table
from glit.pipeline.work.timeline import TimelineWriter, read_timelines
from glit.runtime.progress import null_progress
from glit.stages.ingest import Ingest
from glit.storage import store as store_module
from glit.storage.checksummed_parquet import write_sealed
from glit.storage.store import Entry, Store
from tools.measure.made_up_ray import Clock, MadeUpCluster, replaced

CHUNK = 256
RATES: dict[str, tuple[Place, float]] = {
    "ingest": ("cpu", 40.0), "caption": ("cuda", 4.0), "split": ("cpu", 1000.0),
    "propose": ("cuda", 12.0), "score": ("cuda", 8.0), "pair": ("cpu", 1000.0),
    "ledger": ("cpu", 5000.0),
}  # fmt: skip
"""Where a stage runs, and images a second of one of its workers; assumed."""
_SLOW_SHARE, _SLOW_TIMES = 0.01, 20.0
_BUSY_SHARE, _BUSY_S = 0.1, 20.0
"""Chunks of captions whose server says once that it is busy, and what it then wants to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A task that waits as long as its model would work, and writes a table with real counts."""

    name: str
    needs: Resources
    rate: float
    images: int
    beat_s: float
    work: Work
    loads: str = ""

    def open(self, threads: int) -> Waiting:
        return self

    def run(self, unit: Chunk, excluded: Mapping[int, str]) -> Generator[Heartbeat, None, Tally]:
        """Wait, with a beat now and then."""
        start, rows = time.time(), self.size(unit)
        took = self.seconds(unit)
        (log := Path(self.work.store.full("busy"))).mkdir(exist_ok=True)
        while (left := start + took - time.time()) > 0:
            time.sleep(min(left, self.beat_s))
            yield Heartbeat(rows=int(rows * min(1.0, (time.time() - start) / took)), drops=0)
        tally = self.publish(unit)
        with (log / f"{os.getpid()}").open("a") as file:
            file.write(json.dumps([self.name, start, time.time()]) + "\n")
        return tally

    def publish(self, unit: Chunk) -> Tally:
        """Write the table of a chunk: one in a hundred is dropped, and the same of repeats."""
        rows, is_ledger = self.size(unit), self.name == "ledger"
        name = ledger_name(self.work, unit) if is_ledger else self.work.table(self.name, unit)
        if self.name == Ingest.name:
            write_table(self.work.store, name, ingested(unit.index, rows))
        else:
            self.work.store.write(name, counted(self.name, rows))
        return Tally(rows=rows, drops={"too_small": rows // 100})

    def probe(self, unit: Chunk, start: int, stop: int, excluded: Mapping[int, str]) -> None:
        """Nothing kills a worker of its own."""

    def size(self, unit: Chunk) -> int:
        return min(CHUNK, self.images - unit.index * CHUNK)

    def seconds(self, unit: Chunk) -> float:
        """How long a worker takes for a chunk, by dice of its own."""
        dice, rows = random.Random(f"{self.name}{unit.index}"), self.size(unit)
        slow = sum(dice.random() < _SLOW_SHARE for _ in range(rows))
        rest = _BUSY_S if self.name == "caption" and dice.random() < _BUSY_SHARE else 0.0
        rate = self.rate / self.needs.units_at_once
        return (rows + slow * _SLOW_TIMES) / rate * dice.uniform(0.9, 1.1) + rest


def path_of(number: int) -> str:
    return f"{number // 10_000:05d}/{number:09d}.jpg"


def ingested(index: int, rows: int) -> pa.Table:
    """Ingest's table of a chunk, whose samples are its own."""
    table, start = _same(Ingest.name, rows), index * CHUNK
    data = np.random.default_rng(index).bytes(32 * rows).hex()
    ids = [data[64 * n : 64 * n + 64] for n in range(rows)]
    if rows > 8:
        ids[7] = ids[3]  # a repeat
    paths = [path_of(number) for number in range(start, start + rows)]
    for name, values in (("sample_id", ids), ("source_path", paths)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


@cache
def counted(stage: str, rows: int) -> bytes:
    """The file of another stage's table: of all chunks the same, as only its counts are read."""
    with tempfile.TemporaryDirectory() as folder:
        write_sealed(_same(stage, rows), path := Path(folder) / "table.parquet")
        return path.read_bytes()


@cache
def _same(stage: str, rows: int) -> pa.Table:
    columns = ledger_module._SCHEMA
    if stage != "ledger":
        plan = make_plan(load_recipe("mini"), _INPUTS, device="cpu")
        columns = stage_schema(plan.flow.step(stage).columns)
    known = {"sample_id": "0" * 64, "source_path": path_of(0), "num_bytes": 100_000}
    drop = drop_row(Drop(reason="too_small", message="made up"))
    dropped = {**known, "drop": drop, "stage": "caption", **drop}
    made = [known] * (rows - rows // 100) + [dropped] * (rows // 100)
    counts = {META_ROWS: str(rows).encode(), META_DROPS: f"too_small={rows // 100}".encode()}
    return pa.Table.from_pylist(made, schema=columns.with_metadata(counts))


_INPUTS = Inputs(source=Source(root="images"))


class Rehearsed(RayExecutor):
    """glit's executor on Ray, with tasks that wait instead of those of the jobs."""

    def __init__(self, work: Work, options: argparse.Namespace) -> None:
        super().__init__()
        self._work, self._options = work, options

    def run(self, jobs: Sequence[Job]) -> None:
        super().run([replace(job, task=self._waiting(job.task.name)) for job in jobs])

    def _waiting(self, stage: str) -> Waiting:
        place, rate = RATES[stage]
        needs = Resources(
            memory_bytes=1 << 28, place=place, gpus=int(place == "cuda"),
            gpu_bytes=0 if stage == "caption" else 8 << 30,
            units_at_once=2 if stage == "caption" else 1,
        )  # fmt: skip
        return Waiting(
            name=stage, needs=needs, rate=self._options.rate.get(stage, rate), work=self._work,
            images=self._options.images, beat_s=self._options.beat_s,
        )  # fmt: skip

    def _memory_of_gpus(self) -> int:
        return 80 << 30


def opened(options: argparse.Namespace) -> tuple[OpenWork, list[Chunk]]:
    """A work folder with its listing, as a build opens it."""
    dataset = Store(options.output)
    store = dataset.below("work")
    os.makedirs(store.full(""), exist_ok=True)
    plan = make_plan(load_recipe("mini"), _INPUTS, device="cpu")
    found = (Entry(path=path_of(n), size=100_000, stamp="1") for n in range(options.images))
    folder = Path(store.full(""))
    with gathered(found, folder, num_beside=0) as now, store.atomic("listing.parquet") as target:
        chunks = write_listing(now, target, chunk_size=CHUNK, limit=None)
    state = BuildState(
        images="images", captions=None, recipe=plan.recipe.as_dict(), folders=plan.folders,
        source=SourceNames(pattern="", list_file=""), num_chunks=len(chunks),
    )  # fmt: skip
    write_state(store, state)
    work = Work(store=store, images=ImageFiles("images", index=store.root), plan=plan)
    executor = Rehearsed(work, options)
    found = OpenWork(
        dataset=dataset, inputs=_INPUTS, work=work, executor=executor, progress=null_progress(),
        still_held=lambda: None, timeline=TimelineWriter(store, executor.size),
    )  # fmt: skip
    return found, chunks


def kill_now_and_then(log: Path, every_s: float) -> None:
    """Kill a worker that has finished something, again and again."""
    while True:
        time.sleep(every_s)
        with contextlib.suppress(psutil.Error, IndexError):
            worker = psutil.Process(int(random.choice([p.name for p in log.glob("*[0-9]")])))
            (log / str(worker.pid)).rename(log / f"{worker.pid}.killed")
            if "ray::" in " ".join(worker.cmdline()):
                worker.kill()


def real_spans(log: Path) -> dict[str, list[float]]:
    """What the processes noted: seconds at work of each stage, its start and its end."""
    spans: dict[str, list[float]] = {}
    for line in (line for file in log.glob("*") for line in file.read_text().splitlines()):
        stage, start, end = json.loads(line)
        span = spans.setdefault(stage, [0.0, start, end])
        lanes = 2 if stage == "caption" else 1
        spans[stage] = [span[0] + (end - start) / lanes, min(span[1], start), max(span[2], end)]
    return spans


def stages_of(spans: Mapping[str, Sequence[float]], work: Store) -> dict[str, Any]:
    """Per stage: its workers, hours from its first chunk to its last, and the shares of the time
    of its workers that went into finished chunks and into those that were lost."""
    [*_, line] = read_timelines(work)
    found = {}
    for stage, (busy_s, start, end) in spans.items():
        seen = line.stages[stage]
        whole = seen.workers * (end - start)
        found[stage] = {
            "workers": seen.workers, "hours": round((end - start) / 3600, 3),
            "busy": round(busy_s / whole, 4), "lost": round(seen.lost_s / sum(seen.busy_s), 5),
        }  # fmt: skip
    return found


def status_of(output: str) -> dict[str, Any]:
    """Seconds and peak memory of a ``glit status`` in a process of its own."""
    start = time.time()
    code = f"from glit.pipeline.status import status; status({output!r}); print({_PEAK})"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return {"seconds": round(time.time() - start, 1), "megabytes": int(asked.stdout)}


_PEAK = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024"
"""Peak memory of the process in megabytes; that of getrusage counts the parent's too."""


def main() -> None:
    """Rehearse, and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.rehearse", description=__doc__)
    parser.add_argument("output")
    for name, value in (("images", 100_000), ("gpus", 64), ("cores", 1024)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", action="append", default=[], help="STAGE=IMAGES_A_SECOND")
    parser.add_argument("--beat-s", type=float, default=1.0, help="between two signs of life")
    parser.add_argument("--lives-s", type=float, default=72_000.0, help="of a worker, on average")
    parser.add_argument("--real", action="store_true", help="processes of Ray, which sleep")
    options, cluster = parser.parse_args(), None
    options.rate = {n: float(rate) for n, _, rate in (r.partition("=") for r in options.rate)}
    if unknown := options.rate.keys() - RATES.keys():
        parser.error(f"--rate {unknown.pop()}: want one of {', '.join(RATES)}")
    if not options.real:
        cluster = MadeUpCluster(Clock(), options.cores, options.gpus, options.lives_s)
        for module, name, value in replaced(cluster):
            setattr(module, name, value)
        store_module.__dict__["_flush"] = lambda path: None  # costs the workers time
    log = Path(options.output) / "work" / "busy"
    if cluster is None:
        ray.init(address="local", num_cpus=options.cores, num_gpus=options.gpus,
                 include_dashboard=False, log_to_driver=False)  # fmt: skip
        each_s = options.lives_s / (4 * options.gpus + options.cores)
        threading.Thread(target=kill_now_and_then, args=(log, each_s), daemon=True).start()
    took: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start, hidden = time.process_time(), cluster.clock.hidden if cluster else 0.0
        yield
        hidden = (cluster.clock.hidden if cluster else 0.0) - hidden
        took[f"{name}_cpu_s"] = round(time.process_time() - start - hidden, 1)
        took[f"{name}_megabytes"] = eval(_PEAK)

    with timed("listing"):
        work, chunks = opened(options)
    with work.timeline:
        with timed("stages"):
            chunks, duplicates = run_stages(work, chunks)
        with timed("ledger"):
            found = make_ledger(work, chunks)
            series = count_series(work.work, chunks, found, duplicates)
            files = cut_series(work.work, chunks, found)
    spans = cluster.spans if cluster else real_spans(log)
    print(json.dumps({
        "images": options.images, "chunks": len(chunks), "balance": str(series[0]),
        "data_files": len(files), **took, "status": status_of(options.output),
        "stages": stages_of(spans, work.work.store) if spans else {},
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    from tools.measure import rehearse  # by whose name Ray's workers find the task

    rehearse.main()
