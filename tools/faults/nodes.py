"""Nodes that are lost at a rate: ``python -m tools.faults.nodes FOLDER --every 60``.

Scenes are captioned by the mini captioner and built on two nodes of one core each. Every so many
seconds the older node is killed and another one started. Told are the kills, whether the dataset is
that of one process byte for byte, and the share of the workers' time that died with them.

``--rpc`` also has Ray's own calls fail, by its failure injection: five in a hundred before they are
sent, five after they were answered.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glit.pipeline.timeline import read_timelines
from glit.scenes.write import write_scenes
from glit.storage.store import Store
from tools.faults.cluster import ENVIRONMENT, Cluster, cluster
from tools.faults.run import digests

_FAILING = {"*": {"num_failures": -1, "req_failure_prob": 5, "resp_failure_prob": 5}}
"""Of every hundred calls; -1 is without end."""


def main() -> int:
    """Build twice, tell, and answer 1 where the datasets differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults.nodes", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two kills")
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--rpc", action="store_true", help="Ray's own calls fail, too")
    words = parser.parse_args()
    scenes: Path = words.output / f"scenes-{words.scenes}"
    if not scenes.is_dir():
        write_scenes(scenes, num=words.scenes, seed=11)
    whole, out = words.output / f"whole-{words.scenes}", words.output / "disturbed"
    subprocess.run(command(scenes, whole, "--executor", "local"), check=True)
    shutil.rmtree(out, ignore_errors=True)
    environment = dict(ENVIRONMENT)
    if words.rpc:
        environment["RAY_testing_rpc_failure"] = json.dumps(_FAILING)
    with cluster(2, environment=environment) as running:
        started = time.monotonic()
        kills, code, said = disturb(
            running, scenes, out, every_s=words.every, environment=environment
        )
        seconds = time.monotonic() - started
    same = code == 0 and digests(out) == digests(whole)
    told: dict[str, Any] = {"seconds": round(seconds), "kills": kills, "same_bytes": same}
    print(json.dumps({**told, **lost(out)}), flush=True)
    if code:
        print(said)
    return int(not same)


def command(scenes: Path, out: Path, *more: str) -> Sequence[str]:
    """Of a build."""
    return [
        sys.executable, "-m", "glit", "build", str(scenes / "images"), "-o", str(out),
        "-r", "mini", "--quiet", *more,
    ]  # fmt: skip


def disturb(
    running: Cluster, scenes: Path, out: Path, *, every_s: float, environment: dict[str, str]
) -> tuple[int, int, str]:
    """Build, with the older node killed every so often; kills, exit code, and what was said."""
    build = subprocess.Popen(
        command(scenes, out, "--ray-address", running.address),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    kills = 0
    while True:
        try:
            said, _ = build.communicate(timeout=every_s)
        except subprocess.TimeoutExpired:
            running.lose_oldest()
            running.add()
            kills += 1
            continue
        return kills, build.returncode, said


def lost(out: Path) -> dict[str, Any]:
    """Seconds that workers were at work, and how many of these died with them, by stage."""
    stages = [
        s for run in read_timelines(Store(str(out)).below("work")) for s in run.stages.items()
    ]
    busy = sum(sum(stage.busy_s) for _, stage in stages)
    died = {name: round(stage.lost_s, 1) for name, stage in stages if stage.lost_s}
    share = sum(died.values()) / busy if busy else 0.0
    return {"busy_s": round(busy), "lost_s": died, "lost_percent": round(100 * share, 2)}


if __name__ == "__main__":
    sys.exit(main())
