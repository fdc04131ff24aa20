"""The command: many seeds, what became of each, and a table of kinds."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from glit.scenes.write import write_scenes
from tools.faults.run import World, disturbed
from tools.forked import warm_up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--scenes", type=int, default=12)
    words = parser.parse_args()
    warm_up()
    words.output = words.output.absolute()
    words.output.mkdir(parents=True, exist_ok=True)
    scenes = words.output / "scenes"
    if not scenes.is_dir():
        write_scenes(scenes, num=words.scenes, seed=7)
    world = World(folder=words.output, images=scenes / "images", captions=scenes / "captions.jsonl")
    file = words.output / "runs.jsonl"
    done = (
        {json.loads(line)["seed"] for line in file.read_text().splitlines()}
        if file.exists()
        else set()
    )
    with file.open("a", encoding="utf-8") as lines:
        for seed in range(words.seed, words.seed + words.runs):
            if seed in done:
                continue
            outcome = disturbed(world, seed)
            lines.write(json.dumps(asdict(outcome)) + "\n")
            lines.flush()
            if not outcome.right:
                print(f"seed {seed} is wrong: {outcome.faults} {outcome.said}", flush=True)
    return table(file)


def table(file: Path) -> int:
    """Print runs and faults by kind; how many ended wrong."""
    runs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    faults = Counter(fault.partition(":")[0] for run in runs for fault in run["faults"])
    wrong = sum(not run["right"] for run in runs)
    print(
        f"{len(runs)} runs, {sum(faults.values())} faults, {wrong} ended otherwise than undisturbed"
    )
    for kind, number in faults.most_common():
        print(f"| {kind} | {number} |")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
