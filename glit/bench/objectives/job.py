"""One training run in a process of its own, so that its memory is its own, and what it cost."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from glit.errors import RunError
from glit.training.checkpoint import OBJECTIVE
from glit.training.log import METRICS

COST = "cost.json"
"""Written when a run has ended; one without it is gone on with."""
FAILED = "failed.json"
_FAILED_RUN, _MISTAKE = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run took."""

    seconds_a_step: float
    """Median over its lines of metrics."""
    peak_memory_mb: float
    """Of the process, model and libraries included."""
    parameters_added: int
    """By the objective."""


def trained(run: Path, dataset: Path, words: Sequence[str]) -> Cost | None:
    """Train, or go on, or answer with what was measured; None for a run that failed.

    A run fails where its loss is no longer finite, as at a learning rate that is too high; that is
    written down and not tried again.

    Args:
        run: its folder.
        dataset: what it is trained on.
        words: recipe and settings of ``glit train``.

    Raises:
        RunError: the process was ended, or its settings cannot be.
    """
    if (run / COST).is_file():
        return Cost(**json.loads((run / COST).read_text(encoding="utf-8")))
    if (run / FAILED).is_file():
        return None
    memory = run / "peak-mb.txt"
    command = [sys.executable, "-m", "glit.bench.objectives.peak_rss", str(memory)]
    command += ["train", str(dataset), "-o", str(run)]
    command += ["--resume"] if (run / "last").exists() else list(words)
    run.mkdir(parents=True, exist_ok=True)
    with (run / "output.txt").open("a", encoding="utf-8") as output:
        # a session of its own: Ctrl-C comes here alone, is passed on once, and the run is saved
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    said = (run / "output.txt").read_text(encoding="utf-8").strip().splitlines()
    last = said[-1] if said else ""
    if code == _FAILED_RUN and "became" in last:
        (run / FAILED).write_text(json.dumps({"said": last}) + "\n", encoding="utf-8")
        return None
    if code != 0:
        kind = "its settings cannot be" if code == _MISTAKE else f"exit status {code}"
        raise RunError(f"{run}: glit train ended ({kind}): {last}; see {run / 'output.txt'}")
    cost = Cost(
        seconds_a_step=_seconds_a_step(run),
        peak_memory_mb=float(memory.read_text(encoding="utf-8")),
        parameters_added=_parameters(run / "last"),
    )
    (run / COST).write_text(json.dumps(asdict(cost)) + "\n", encoding="utf-8")
    return cost


def keep_model_alone(run: Path) -> None:
    """Remove what only resuming needs: two thirds of a finished run."""
    for folder in (run / "checkpoints").glob("step-*/trainer"):
        (folder / "optimizer.pt").unlink(missing_ok=True)


def remove_models(run: Path) -> None:
    """Remove the checkpoints of a run that will not be measured again."""
    for name in ("last", "best"):
        (run / name).unlink(missing_ok=True)
    shutil.rmtree(run / "checkpoints", ignore_errors=True)


def _seconds_a_step(run: Path) -> float:
    lines = (run / METRICS).read_text(encoding="utf-8").splitlines()
    rates = [json.loads(line)["steps_per_s"] for line in lines]
    return 1 / statistics.median(rates)


def _parameters(checkpoint: Path) -> int:
    path = checkpoint / OBJECTIVE / "model.safetensors"
    if not path.is_file():
        return 0
    from safetensors.torch import load_file

    return sum(value.numel() for value in load_file(path).values())
