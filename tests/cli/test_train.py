"""``glit train``, and ``glit eval`` of what it made."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from glit.training.loop import _Run


def settings(tiny_clip: Path) -> list[str]:
    values = {
        "model": f'"{tiny_clip}"',
        "batch_size": 8,
        "epochs": 1,
        "num_workers": 1,
        "log_every": 1,
        "trackers": "[]",
    }
    return [part for key, value in values.items() for part in ("--set", f"train.{key}={value}")]


def test_train_then_compare(tiny_clip, make_dataset, tmp_path, run_glit) -> None:
    dataset, out = make_dataset(16), tmp_path / "run"
    trained = run_glit(
        "train", dataset, "-o", out, "-r", "fast-goal", "--json", *settings(tiny_clip)
    )
    lines = [json.loads(line) for line in trained.output.splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert trained.errors.splitlines()[-1] == (
        "trained 2 steps, 87,393 of 87,393 parameters; "
        f"glit eval takes {out / 'best'} (best, step 2)"
    )
    table = run_glit("eval", "retrieval", out, dataset, "-o", tmp_path / "figures").output
    assert "T2I R@1" in table
    both = run_glit("eval", "retrieval", out, dataset, "--compare", tiny_clip, "--json")
    assert [result["model"] for result in json.loads(both.output)] == [str(out), str(tiny_clip)]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "neighbours_run.json",
        "retrieval.md",
        "retrieval_run.json",
    ]


def test_the_objective_option_and_resume(tiny_clip, make_dataset, tmp_path, run_glit) -> None:
    dataset, out = make_dataset(16), tmp_path / "run"
    base = ["train", dataset, "-o", out, "-r", "fast-goal", "--objective", "clip"]
    first = run_glit(*base, *settings(tiny_clip), "--set", "train.max_steps=1")
    assert first.code == 0
    assert json.loads((out / "run.json").read_text())["train"]["objective"] == "clip"
    resumed = run_glit("train", dataset, "-o", out, "--resume")  # with the run's own settings
    assert resumed.code == 0
    assert json.loads((out / "run.json").read_text())["train"]["objective"] == "clip"
    again = run_glit(*base, *settings(tiny_clip))
    assert again.code == 2
    assert again.errors.startswith(f"glit: {out}: holds a run already")
    assert again.errors.count("\n") == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_training_exits_as_its_signal_says(
    tiny_clip, make_dataset, tmp_path, run_glit, monkeypatch, sent
) -> None:
    """Slurm and Kubernetes tell a preempted job, 143, from one that failed."""
    step = _Run._step

    def stop(run, group) -> None:
        step(run, group)
        os.kill(os.getpid(), sent)

    monkeypatch.setattr(_Run, "_step", stop)
    stopped = run_glit(
        "train", make_dataset(16), "-o", tmp_path / "run", "-r", "clip", *settings(tiny_clip)
    )
    assert stopped.code == 128 + sent
    assert stopped.output.splitlines()[-1] == "stopped after step 1 of 2; continue with --resume"


def test_a_mistyped_objective_names_the_nearest(tmp_path, run_glit) -> None:
    done = run_glit(
        "train", ".", "-o", tmp_path / "run", "-r", "fast-goal", "--objective", "fastgoal"
    )
    assert done.code == 2 and "did you mean 'fast-goal'?" in done.errors
    assert [*tmp_path.iterdir()] == []


def test_no_dataset_is_one_line(tmp_path, run_glit) -> None:
    done = run_glit("train", tmp_path, "-o", tmp_path / "run", "-r", "mini")
    assert done.code == 2
    assert done.errors == f"glit: {tmp_path}: no dataset here (no manifest.json)\n"
    assert [*tmp_path.iterdir()] == []


def test_two_objectives_are_refused(tmp_path, run_glit) -> None:
    done = run_glit(
        "train", ".", "-o", tmp_path / "run", "-r", "mini", "--objective", "clip",
        "--set", "train.objective=siglip",
    )  # fmt: skip
    assert done.code == 2
    assert done.errors == (
        "glit: --objective clip and --set train.objective=siglip differ; give one\n"
    )


def test_a_file_is_no_run_folder(tmp_path, run_glit) -> None:
    (tmp_path / "run").touch()
    done = run_glit("train", ".", "-o", tmp_path / "run", "-r", "mini")
    assert done.code == 2
    assert done.errors == f"glit: {tmp_path}/run: cannot write there; it is a file, want a folder\n"
