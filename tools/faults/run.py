"""Disturbed builds and additions, each from a seed, each compared with the undisturbed one."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from glit.dataset.manifest import read_manifest
from glit.errors import StoppedError
from glit.storage.store import Store
from tools.faults import tripwire
from tools.faults.damage import DAMAGES, harm
from tools.faults.tripwire import Tripwire
from tools.forked import ended, start

_MOST_ATTEMPTS = 6
_HANGS_AFTER_S, _AT_MOST_S = 12.0, 300.0
INSIDE: dict[str, tuple[str, Callable[[], Any], int]] = {
    "killed at a step of a file": ("file", tripwire.kill, 1),
    "killed at a sample": ("sample", tripwire.kill, 1),
    "Ctrl-C at a step of a file": ("file", tripwire.interrupt, 1),
    "Ctrl-C at a sample": ("sample", tripwire.interrupt, 1),
    "the disk full from a write on": ("write", tripwire.full_disk, 1_000_000),
    "a sector that cannot be read": ("read", tripwire.bad_sector, 1),
    "the captioner raises": ("caption", tripwire.fail, 1),
    "the captioner raises from a batch on": ("caption", tripwire.fail, 1_000_000),
    "the captioner says garbage": ("caption", tripwire.garbage, 2),
    "the captioner dies": ("caption", tripwire.kill, 1),
    "the captioner hangs": ("caption", tripwire.hang, 1),
}
"""What counts, what is done, and how many times from then on."""
KINDS = (*INSIDE, *DAMAGES)


Command = Literal["build", "build --replace", "add", "retry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is disturbed."""

    backend: str
    """Of the captions."""
    adds: bool
    """``glit add`` to a dataset of the first images, not ``glit build`` of all."""

    @property
    def name(self) -> str:
        return f"{'added' if self.adds else 'whole'}-{self.backend}"

    @property
    def command(self) -> Command:
        return "add" if self.adds else "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """What a case is when nothing happens to it."""

    digests: dict[str, str]
    """SHA-256 of the dataset's files."""
    events: dict[str, int]
    """How many of each kind it passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Images, a folder for what is made of them, and what is known by now."""

    folder: Path
    images: Path
    captions: Path
    known: dict[Case, Undisturbed] = field(default_factory=dict)

    @property
    def num_first(self) -> int:
        """Images that a dataset holds before the others are added."""
        return sum(1 for _ in self.images.iterdir()) * 3 // 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One seed's story."""

    seed: int
    faults: tuple[str, ...]
    attempts: int
    said: tuple[str, ...]
    """The last line of every attempt."""
    right: bool
    """Whether the dataset is the undisturbed one, byte for byte."""


def know(world: World, case: Case) -> Undisturbed:
    """Build or add undisturbed, once, and count what there is to disturb."""
    if case in world.known:
        return world.known[case]
    out, tally = world.folder / case.name / "out", world.folder / "tally.json"
    if case.adds:
        first = _before_additions(world, case)
        shutil.rmtree(first, ignore_errors=True)
        assert (said := attempt(world, first, case, None, command="build")) == "done", said
    _begin(world, out, case)
    wire = Tripwire("file", 0, tripwire.fail, tally=tally)
    assert (said := attempt(world, out, case, wire)) == "done", said
    world.known[case] = Undisturbed(
        digests=digests(out), events=json.loads(tally.read_text(encoding="utf-8"))
    )
    return world.known[case]


def _before_additions(world: World, case: Case) -> Path:
    return world.folder / f"first-{case.backend}"


def _begin(world: World, out: Path, case: Case) -> None:
    """Nothing, or the dataset that is added to."""
    shutil.rmtree(out, ignore_errors=True)
    if case.adds:
        shutil.copytree(_before_additions(world, case), out)


def disturbed(world: World, seed: int) -> Outcome:
    """A build that meets one to three faults and then goes on undisturbed until it is done.

    A third of the seeds adds to a dataset instead.
    """
    rng = random.Random(seed)
    out = world.folder / f"run-{seed}" / "out"  # a dataset is named by its folder
    first = KINDS[seed % len(KINDS)]
    kinds = [first, *rng.choices(KINDS, k=rng.randrange(3))]
    of_captions = any(INSIDE[kind][0] == "caption" for kind in kinds if kind in INSIDE)
    case = Case(
        backend="transformers" if of_captions else "provided", adds=seed // len(KINDS) % 3 == 2
    )
    undisturbed = know(world, case)
    _begin(world, out, case)
    faults, said = [], []
    for kind in kinds:
        if kind in DAMAGES:
            if not (out / "work").is_dir():  # something has to be there
                at = rng.randint(1, undisturbed.events["file"])
                said.append(attempt(world, out, case, Tripwire("file", at, tripwire.kill)))
            if (out / "work").is_dir():
                faults.append(f"{kind}: {harm(out / 'work', DAMAGES[kind], rng)}")
            continue
        event, act, times = INSIDE[kind]
        at = rng.randint(1, max(1, undisturbed.events[event]))
        faults.append(f"{kind}: {event} {at}")
        said.append(attempt(world, out, case, Tripwire(event, at, act, times=times)))
    for _ in range(_MOST_ATTEMPTS):
        command = _advised(case, said)
        said.append(attempt(world, out, case, None, command=command))
        if said[-1] == "done" and command.startswith(case.command):
            if read_manifest(Store(out)).counts.dropped:
                said.append(attempt(world, out, case, None, command="retry"))
            break
        if said[-1].startswith("crash"):
            break
    right = said[-1] == "done" and digests(out) == undisturbed.digests
    if right:
        shutil.rmtree(out)
    return Outcome(
        seed=seed, faults=tuple(faults), attempts=len(said), said=tuple(said), right=right
    )


def _advised(case: Case, said: list[str]) -> Command:
    """What the last message told the user to run; else the case's own command."""
    last = said[-1] if said else ""
    if "--replace" in last:
        return "build --replace"
    if "run glit retry" in last:
        return "retry"
    return "build" if "run glit build" in last else case.command


def attempt(
    world: World, out: Path, case: Case, wire: Tripwire | None, *, command: Command | None = None
) -> str:
    """Run in a process of its own; ``done``, ``killed``, ``hung``, ``stopped``, or what it said."""
    words, told = _words(world, out, case, command or case.command), world.folder / "said"
    hangs = wire is not None and wire.act is tripwire.hang
    child = start(words, world.folder, told, before=wire.install if wire else None)
    code = ended(child, _HANGS_AFTER_S if hangs else _AT_MOST_S)
    said = told.read_text(encoding="utf-8", errors="replace")
    if "Traceback" in said:
        return f"crash: {said[-3000:]}"
    if code is None or code < 0:
        return "hung" if code is None else "killed"
    ends = {0: "done", StoppedError.exit_code: "stopped"}
    return ends.get(code, f"error: {said.strip()[-1000:]}")


def _words(world: World, out: Path, case: Case, command: Command) -> list[str]:
    """The command line."""
    where = ["--executor", "local", "--quiet"]
    if command in ("add", "retry"):
        return [command, str(out), *where]
    settings = [f"caption.backend={case.backend}", "ingest.chunk_size=4", "caption.batch_size=2",
                "caption.max_tokens=60"]  # fmt: skip
    words = ["build", str(world.images), "-o", str(out), "-r", "mini", *where]
    words += [word for each in settings for word in ("--set", each)]
    words += ["--captions", str(world.captions)] if case.backend == "provided" else []
    words += ["--limit", str(world.num_first)] if case.adds else []
    return [*words, "--replace"] if command == "build --replace" else words


def digests(dataset: Path) -> dict[str, str]:
    """Of every file of a dataset, but not of its work folder nor of a lock."""
    return {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(dataset.rglob("*"))
        if path.is_file() and path.relative_to(dataset).parts[0] != "work" and path.name != ".lock"
    }
