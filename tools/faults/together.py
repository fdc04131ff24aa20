"""Two commands on one dataset at once: ``python -m tools.faults.together FOLDER``.

Every pair of commands is started together, the second at a moment drawn from a seed, on a copy of a
dataset whose folder holds new images and whose damaged image was mended. Each must end well or with
one line; the dataset, and what was written from it, must be what the two make one after the other
in some order, or what one of them makes alone; and whoever runs both again afterwards must get a
dataset that ``glit verify`` finds whole.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path

from glit.dataset.manifest import MANIFEST
from glit.scenes.write import write_scenes
from tools.faults.run import digests as digests_in
from tools.forked import ended, start, warm_up

DATASET, PAIRED, EXPORTED, RUN = "out", "paired", "exported", "run"
_MODEL = ("--set", "train.max_steps=1", "--set", "train.batch_size=2", "--set", "train.trackers=[]")
COMMANDS: dict[str, tuple[str, ...]] = {
    "build": ("build", "images", "-o", DATASET, "-r", "mini", "--executor", "local", "--captions",
              "captions.jsonl", "--replace", "--quiet"),
    "add": ("add", DATASET, "--executor", "local", "--quiet"),
    "retry": ("retry", DATASET, "--executor", "local", "--quiet"),
    "clean": ("clean", DATASET),
    "pair": ("pair", DATASET, "-o", PAIRED, "--set", "pair.rule=sinkhorn", "--quiet"),
    "export": ("export", DATASET, "--to", "coco", "-o", EXPORTED, "--quiet"),
    "view": ("view", DATASET, "-o", "page.html"),
    "verify": ("verify", DATASET, "--quiet"),
    "train": ("train", DATASET, "-o", RUN, "-r", "mini", "--objective", "clip", *_MODEL, "--quiet"),
}  # fmt: skip
_ARTIFACTS = (DATASET, PAIRED, EXPORTED)
_MOST_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of two commands."""

    commands: tuple[str, str]
    seed: int
    codes: list[int | None]
    """None for one that took too long."""
    wrong: list[str]
    """What should not be; empty where all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The folder that every case begins with, and what sequences of commands make of it."""

    folder: Path
    known: dict[tuple[str, ...], dict[str, dict[str, str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def start(self) -> Path:
        return self.folder / "start"

    def prepare(self) -> None:
        """A dataset of six images, one of them damaged; afterwards it is whole, and two are new."""
        shutil.rmtree(self.start, ignore_errors=True)
        images = self.start / "images"
        write_scenes(self.start / "scenes", num=8, seed=7)
        shutil.copytree(self.start / "scenes" / "images", images)
        shutil.copy(self.start / "scenes" / "captions.jsonl", self.start)
        later = [(path, path.read_bytes()) for path in sorted(images.iterdir())[5:]]
        later[0][0].write_bytes(later[0][1][:500])
        for path, _ in later[1:]:
            path.unlink()
        code, said = run(self.start, COMMANDS["build"])
        assert code == 0, said
        for path, data in later:
            path.write_bytes(data)

    def after(self, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
        """Digests of what there is after some commands in a row; of a dataset, its data."""
        if names not in self.known:
            here = self.fresh("sequence")
            for name in names:
                began = time.monotonic()
                run(here, COMMANDS[name])
                self.seconds[name] = time.monotonic() - began
            self.known[names] = digests(here)
        return self.known[names]

    def fresh(self, name: str) -> Path:
        """A copy of the start; all have one path, as a dataset's listing has that of its images."""
        here = self.folder / "at" / name
        shutil.rmtree(self.folder / "at", ignore_errors=True)
        shutil.copytree(self.start, here)
        return here


def together(world: World, first: str, second: str, seed: int) -> Outcome:
    """Start both, the second a little later; see the module's description for what must hold."""
    orders = [(), (first,), (second,), (first, second), (second, first)]
    allowed = [world.after(order) for order in orders]
    rng = random.Random(f"{first} {second} {seed}")
    here = world.fresh("sequence")
    one = start(COMMANDS[first], here, here / "said-0")
    time.sleep(rng.random() * world.seconds[first])
    other = start(COMMANDS[second], here, here / "said-1")
    codes = [ended(child, _MOST_S) for child in (one, other)]
    wrong = []
    for name, code, number in ((first, codes[0], 0), (second, codes[1], 1)):
        said = (here / f"said-{number}").read_text(errors="replace")
        errors = [line for line in said.splitlines() if line.startswith("glit: ")]
        if "Traceback" in said or code is None or code < 0 or (code > 0 and len(errors) != 1):
            wrong.append(f"{name} ended with {code}: {said[-1500:]}")
    found = digests(here)
    for name in _ARTIFACTS:
        if name in found and found[name] not in [each.get(name) for each in allowed]:
            wrong.append(f"{name} is neither before nor after")
    wrong += finished(here, [first, second])
    return Outcome(commands=(first, second), seed=seed, codes=codes, wrong=wrong)


def finished(here: Path, names: Sequence[str]) -> list[str]:
    """Run again what writes the dataset, and verify; what is wrong."""
    for name in names:
        if name in ("build", "add", "retry"):
            run(here, COMMANDS[name])
    wrong = []
    for folder in (DATASET, PAIRED):
        if (here / folder).exists():
            code, said = run(here, ("verify", folder, "--quiet"))
            wrong += [f"verify {folder}: {said[-500:]}"] if code != 0 else []
    return wrong


def digests(here: Path) -> dict[str, dict[str, str]]:
    """Of the files of every artifact that is finished."""
    finished = (n for n in _ARTIFACTS if n == EXPORTED or (here / n / MANIFEST).is_file())
    found = {name: digests_in(here / name) for name in finished}
    return {name: files for name, files in found.items() if files}


def run(folder: Path, words: Sequence[str]) -> tuple[int | None, str]:
    """A command line in a process of its own; its exit code and what it said."""
    told = folder / "said"
    code = ended(start(words, folder, told), _MOST_S)
    return code, told.read_text(errors="replace")


def main() -> int:
    """All pairs, so many seeds each; 1 where something is wrong."""
    warm_up()
    parser = argparse.ArgumentParser(prog="python -m tools.faults.together", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="of every pair")
    parser.add_argument("--only", nargs="*", choices=COMMANDS, default=list(COMMANDS))
    words = parser.parse_args()
    words.output.mkdir(parents=True, exist_ok=True)
    world = World(folder=words.output.absolute())
    world.prepare()
    runs = wrong = 0
    with (words.output / "together.jsonl").open("a", encoding="utf-8") as lines:
        for first, second in combinations_with_replacement(words.only, 2):
            for seed in range(words.seeds):
                outcome = together(world, first, second, seed)
                runs, wrong = runs + 1, wrong + bool(outcome.wrong)
                lines.write(json.dumps(asdict(outcome)) + "\n")
                lines.flush()
                if outcome.wrong:
                    print(first, second, seed, outcome.codes, *outcome.wrong, sep="\n  ")
    print(f"{runs} pairs of commands at once, {wrong} ended wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
