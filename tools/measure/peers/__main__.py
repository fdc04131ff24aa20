"""glit beside other packages on the same work: ``python -m tools.measure.peers -o OUT``.

Needs ``cleanvision``, ``daft``, ``imagededup``, ``img2dataset``, ``litdata``, ``onnxruntime``,
``onnxscript``, ``openvino``, ``pysbd``, ``sentence-transformers`` and ``spacy`` besides glit's
extras and tools; what is not installed is left out. Each way runs in a process of its own, in turn
with the others; imports and models that are loaded do not count. Answers are compared, and what a
way does more or less than glit is in its ``note``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from glit.bench.harness import Row, write_report
from glit.bench.machine import describe_machine, peak_mb
from glit.runtime.tables import Page, Table, figure
from tools.measure.peers import (
    encoders,
    loaders,
    masks,
    messy_folder,
    parquet,
    sentences,
    tables,
    training,
)
from tools.measure.peers.inputs import make_inputs
from tools.measure.peers.way import Comparison

WORKS: dict[str, Comparison] = {
    "sentences": sentences.COMPARISON,
    "messy": messy_folder.COMPARISON,
    "parquet": parquet.COMPARISON,
    "loader": loaders.COMPARISON,
    "clip": encoders.COMPARISON,
    "masks": masks.COMPARISON,
    "masks-mobile": masks.MOBILE,
    "train-steps": training.STEPS,
    "train-epoch": training.EPOCH,
    "rows-filter": tables.FILTER,
    "rows-group": tables.GROUP,
    "rows-select": tables.SELECT,
    "rows-json": tables.EXPORT,
}


def make_further(inputs: Path, work: str) -> None:
    """Make the inputs that a work has besides those of all, once."""
    make, done = WORKS[work].make, inputs / f"done-{WORKS[work].make.__module__}"
    if not done.exists():
        make(inputs)
        done.touch()


def measure(folder: Path, work: str, *, repeats: int) -> Row:
    """Every way of a work, in turn: medians, and medians of the ratios of one round."""
    ways = [way for way in WORKS[work].ways if importlib.util.find_spec(way.package)]
    rounds = []
    for number in range(repeats):
        print(f"{work}, {number + 1} of {repeats}", flush=True)
        rounds.append([_ask(folder, work, way.name) for way in ways])
    answers = [found["answer"] for found in rounds[0]]
    return {
        way.name: {
            **{
                key: median(each[number][key] for each in rounds)
                for key in ("wall_s", "cpu_s", "peak_mb")
            },
            **{
                f"{key}_of_glit": median(each[number][key] / each[0][key] for each in rounds)
                for key in ("wall_s", "cpu_s")
            },
            "quality": WORKS[work].judge(folder / "inputs", answers[number], answers[0]),
            "note": way.note,
        }
        for number, way in enumerate(ways)
    }


def _ask(folder: Path, work: str, way: str) -> Row:
    """Run a way in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.measure.peers", "-o", folder, "--one", work, way],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{work} by {way}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _one(folder: Path, work: str, name: str) -> Row:
    import tempfile

    way = next(each for each in WORKS[work].ways if each.name == name)
    with tempfile.TemporaryDirectory() as scratch:
        do = way.prepare(folder / "inputs", Path(scratch))
        wall, cpu = time.perf_counter(), _cpu_s()
        answer = do()
        found = {
            "wall_s": time.perf_counter() - wall, "cpu_s": _cpu_s() - cpu, "peak_mb": peak_mb(),
        }  # fmt: skip
        return {**found, "answer": WORKS[work].read(answer)}


def _cpu_s() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def page(report: Row) -> Page:
    """The report as tables."""
    machine = "; ".join(f"{key}: {value}" for key, value in report["machine"].items())
    blocks: list[str | Table] = ["# Beside other packages", f"{machine}. Medians of "
                                 f"{report['repeats']}, in turn."]  # fmt: skip
    for work, ways in report["works"].items():
        heads = [WORKS[work].title, "wall", "CPU", "peak MB", "answer", "note"]
        rows = [
            [name, f"{figure(way['wall_s'])} s ({way['wall_s_of_glit']:.2f} ×)",
             f"{figure(way['cpu_s'])} s ({way['cpu_s_of_glit']:.2f} ×)", f"{way['peak_mb']:.0f}",
             way["quality"], way["note"]]
            for name, way in ways.items()
        ]  # fmt: skip
        blocks.append(Table(heads=heads, rows=rows))
    return blocks


def main() -> None:
    """Measure; or, with --one, be one way."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure.peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/peers"))
    parser.add_argument("--photographs", type=Path, help="for the messy folder; else scenes")
    parser.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_one(given.output, *given.one)))
        return
    make_inputs(given.output / "inputs", given.photographs)
    report: Row = {"machine": describe_machine("cpu"), "repeats": given.repeats, "works": {}}
    for work in given.only:
        if not (given.output / "inputs" / WORKS[work].needs).exists():
            print(f"{work}: left out, {WORKS[work].needs} is not in {given.output / 'inputs'}")
            continue
        make_further(given.output / "inputs", work)
        report["works"][work] = measure(given.output, work, repeats=given.repeats)
        print(*write_report(given.output, "peers", report, page(report)))


if __name__ == "__main__":
    main()
