"""A few of the disturbed builds of ``tools.faults``; a thousand are in docs/experiments.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.faults.run import KINDS

ROOT = Path(__file__).parents[2]


def test_disturbed_builds_end_as_the_undisturbed_one(tmp_path):
    """In a process of its own, which is forked: one of every damage, and a kill."""
    first = KINDS.index("a flipped bit")
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults", tmp_path, "--runs", str(len(KINDS) - first + 1),
         "--seed", str(first), "--scenes", "6"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert len(runs) == 5 and all(run["right"] for run in runs)
    assert all(run["attempts"] > 1 for run in runs), "a fault that nothing noticed"
