"""A few of the disturbed builds of ``tools.faults``; a thousand are in docs/experiments.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.faults.run import KINDS

ROOT = Path(__file__).parents[2]
FLIPPED = KINDS.index("a flipped bit")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "runs"),
    [(FLIPPED, len(KINDS) - FLIPPED + 1), (2 * len(KINDS) + FLIPPED, 2)],
    ids=["builds", "additions"],
)
def test_what_is_disturbed_ends_as_undisturbed(tmp_path, first, runs):
    """In a process of its own, which is forked: one of every damage, and a kill."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults", tmp_path, "--runs", str(runs),
         "--seed", str(first), "--scenes", "6"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert len(told) == runs and all(run["right"] for run in told)
    assert all(run["attempts"] > 1 for run in told), "a fault that nothing noticed"
