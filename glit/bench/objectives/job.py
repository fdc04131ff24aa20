"""One training run in a process of its own, so that its memory is its own, and what it cost."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glit.bench.harness import kept, run_command
from glit.errors import RunError
from glit.training.checkpoint import OBJECTIVE
from glit.training.log import METRICS

COST = "cost.json"
"""Written when a run has ended or failed; a run without it is resumed."""
_FAILED_RUN, _MISTAKE = 1, 2


def trained(run: Path, dataset: str | Path, words: Sequence[str]) -> dict[str, Any] | None:
    """Train, or go on, and return what it cost; None for a run that failed.

    The cost is ``seconds_a_step`` (median over the lines of metrics), ``peak_memory_mb`` (of the
    process, model and libraries included) and ``parameters_added`` (by the objective).

    A run fails where its loss is no longer finite, as at a learning rate that is too high; that is
    written down and not tried again.

    Args:
        run: its folder.
        dataset: what it is trained on, a folder or an address.
        words: recipe and settings of ``glit train``.

    Raises:
        RunError: the process was ended, or its settings cannot be.
    """
    found = kept(run / COST, lambda: _train(run, dataset, words))
    return None if "failed" in found else found


def _train(run: Path, dataset: str | Path, words: Sequence[str]) -> dict[str, Any]:
    """The cost, or how it failed."""
    run.mkdir(parents=True, exist_ok=True)
    memory = run / "peak-mb.txt"
    command = ["glit.bench.machine", str(memory), "train", str(dataset), "-o", str(run)]
    command += ["--resume"] if (run / "last").exists() else words
    # Ctrl-C is passed on once, and the run is saved
    ended = run_command(command, run / "output.txt", on_interrupt=signal.SIGINT)
    last = ended.last_words
    if ended.code == _FAILED_RUN and "became" in last:
        return {"failed": last}
    if ended.code != 0:
        kind = "its settings cannot be" if ended.code == _MISTAKE else f"exit status {ended.code}"
        raise RunError(f"{run}: glit train ended ({kind}): {last}; see {run / 'output.txt'}")
    return {
        "seconds_a_step": _seconds_a_step(run),
        "peak_memory_mb": float(memory.read_text(encoding="utf-8")),
        "parameters_added": _parameters(run / "last"),
    }


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
