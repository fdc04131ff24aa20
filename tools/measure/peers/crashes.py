"""Kill builds at random times, and start them again: ``python -m tools.measure.peers.crashes``.

All do the same work: each of 600 images is decoded, hashed and measured, in 20 parts, and the
result goes to Parquet. Each image that is worked on leaves a line in a log, so work that is done
again is counted. Every process of a build gets SIGKILL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from glit.bench.harness import Row, write_report
from glit.bench.machine import describe_machine
from glit.runtime.tables import Table
from tools.measure.peers.inputs import build, make_inputs
from tools.measure.peers.parquet import looked

_PARTS = 20
_HUNG_S = 300
"""A start that takes longer counts as hung, and is killed."""
LOG = "PEERS_CRASHES_LOG"
"""The environment's name of the file that notes which images were worked on."""


def noted(data: bytes) -> dict[str, Any]:
    """Do the work on an image, and note it."""
    found = looked(data)
    with open(os.environ[LOG], "a", encoding="utf-8") as file:
        file.write(f"{found['sha256']}\n")
    return found


def _glit(inputs: Path, out: Path) -> None:
    """A build with one stage more, which does the work."""
    size = -(-len(_images(inputs)) // _PARTS)
    build(
        inputs / "scenes",
        out / "dataset",
        settings=[f"ingest.chunk_size={size}", "noted.enabled=true"],
    )


def _ray(inputs: Path, out: Path) -> None:
    """Ray Data, which notes the ids of the rows that it wrote."""
    import ray
    from ray.data.checkpoint import CheckpointConfig

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        id_column="path", checkpoint_path=str(out / "checkpoint"),
        delete_checkpoint_on_success=False,
    )  # fmt: skip
    rows = ray.data.read_parquet(str(inputs / "listed"), override_num_blocks=_PARTS)
    rows = rows.map(lambda row: {**row, **noted(Path(row["path"]).read_bytes())})
    rows.write_parquet(str(out / "data"))


def _daft(inputs: Path, out: Path) -> None:
    """Daft on Ray, which notes keys and commits the files of a Delta table at the end."""
    import daft

    daft.set_runner_ray()
    store = daft.CheckpointStore(f"file://{out / 'checkpoint'}")
    frame = daft.read_parquet(
        str(inputs / "listed" / "*.parquet"),
        checkpoint=daft.CheckpointConfig(store=store, on="path"),
    )
    frame = frame.with_column("image", frame["path"].download())

    @daft.func(return_dtype=daft.DataType.string())
    def look(data: bytes) -> str:
        return noted(data)["sha256"]

    frame = frame.with_column("sha256", look(frame["image"])).exclude("image")
    commit = daft.IdempotentCommit(store=store, idempotence_key="one")
    frame.write_deltalake(str(out / "data"), checkpoint=commit)


BUILDS = {"glit": _glit, "Ray Data": _ray, "Daft": _daft}


def _written(name: str, out: Path) -> list[str]:
    """The hashes of the rows of a finished result."""
    if name == "glit":
        import glit

        return [row.sample_id for row in glit.open_dataset(out / "dataset").rows(images=False)]
    if name == "Daft":
        from deltalake import DeltaTable

        return DeltaTable(str(out / "data")).to_pyarrow_table().column("sha256").to_pylist()
    import pyarrow.parquet as pq

    return pq.read_table(out / "data").column("sha256").to_pylist()


def _images(inputs: Path) -> list[Path]:
    return sorted((inputs / "scenes" / "images").iterdir())


def _list(inputs: Path) -> None:
    """Parquet files of paths, one for each part, for Ray and Daft."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = inputs / "listed"
    if folder.exists():
        return
    folder.mkdir()
    for part in range(_PARTS):
        paths = [str(path) for path in _images(inputs)[part::_PARTS]]
        pq.write_table(pa.table({"path": paths}), folder / f"{part:02}.parquet")


def _start(folder: Path, name: str, out: Path) -> subprocess.Popen[bytes]:
    plugin = {"GLIT_PLUGINS": "tools.measure.peers.noting_stage"} if name == "glit" else {}
    with (out / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.measure.peers.crashes", "-o", folder, "--one", name, out],
            stdout=said, stderr=said, start_new_session=True,
            env={**os.environ, **plugin, LOG: str(out / "log")},
        )  # fmt: skip


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a build and all processes that it started."""
    try:
        root = psutil.Process(process.pid)
        found = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        found = []
    for each in found:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(found, timeout=30)
    process.wait()


def _clean_s(folder: Path, name: str, out: Path) -> float:
    """Seconds of a build that nobody kills."""
    out.mkdir(parents=True)
    began = time.perf_counter()
    if _start(folder, name, out).wait(_HUNG_S):
        sys.exit(f"{name}: {(out / 'said').read_text(encoding='utf-8')[-3000:]}")
    return time.perf_counter() - began


def _crash(folder: Path, name: str, *, kills: int, seed: int) -> Row:
    """Kill builds until there were so many kills; what became of the rows and of the work."""
    draw, scratch = random.Random(seed), folder / "crashes" / name.replace(" ", "-")
    clean = _clean_s(folder, name, scratch / "clean")
    wanted = len(set(_written(name, scratch / "clean")))
    row: Row = {"clean_s": clean, "kills": 0, "builds": 0, "hung": 0, "failed": 0, "lost": 0,
                "doubled": 0}  # fmt: skip
    again = 0
    while row["kills"] < kills:
        out = scratch / f"{row['builds']:03}"
        out.mkdir()
        row["builds"] += 1
        spent = 0
        while True:
            process, die_after = _start(folder, name, out), draw.uniform(0, clean)
            may_die = row["kills"] < kills and spent < 10
            try:
                code = process.wait(die_after if may_die else _HUNG_S)
            except subprocess.TimeoutExpired:
                _kill(process)
                row["kills" if may_die else "hung"] += 1
                spent += 1
                if may_die:
                    continue
                code = None
            if code:
                row["failed"] += 1
            break
        log = Counter((out / "log").read_text().split()) if (out / "log").exists() else Counter()
        rows = _written(name, out) if not code and code is not None else []
        row["lost"] += wanted - len(set(rows)) if code == 0 else 0
        row["doubled"] += len(rows) - len(set(rows))
        again += max(0, log.total() - wanted)
    row["again_of_a_build_per_kill"] = again / wanted / row["kills"]
    return row


def _table(report: Row) -> Table:
    heads = ["", "kills", "builds", "clean, s", "rows lost", "rows doubled", "failed", "hung",
             "work done again a kill, of a build"]  # fmt: skip
    rows = [
        [name, *(str(row[key]) for key in ("kills", "builds")), f"{row['clean_s']:.1f}",
         *(str(row[key]) for key in ("lost", "doubled", "failed", "hung")),
         f"{row['again_of_a_build_per_kill']:.1%}"]
        for name, row in report["works"].items()
    ]  # fmt: skip
    return Table(heads=heads, rows=rows)


def main() -> None:
    """Kill builds; or, with --one, be one."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure.peers.crashes", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/peers"))
    parser.add_argument("--only", nargs="+", choices=BUILDS, default=list(BUILDS))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    inputs = given.output.resolve() / "inputs"
    if given.one:
        BUILDS[given.one[0]](inputs, Path(given.one[1]))
        return
    make_inputs(inputs, None)
    _list(inputs)
    report: Row = {"machine": describe_machine("cpu"), "works": {}}
    for name in given.only:
        report["works"][name] = _crash(
            given.output.resolve(), name, kills=given.kills, seed=given.seed
        )
        print(json.dumps({name: report["works"][name]}), flush=True)
        print(*write_report(given.output, "crashes", report, ["# Kills", _table(report)]))


if __name__ == "__main__":
    main()
