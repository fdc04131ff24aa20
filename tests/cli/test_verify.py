"""``glit verify``."""

from __future__ import annotations

import json


def test_a_sound_dataset(built, run_glit):
    done = run_glit("verify", built)
    assert (done.code, done.output) == (0, f"{built}: 24 samples in 10 files, all well\n")
    done = run_glit("verify", built, "--json")
    assert json.loads(done.output) == {"dataset": str(built), "ok": True, "breaches": []}


def test_breaches_are_lines_and_exit_code_one(built_copy, run_glit):
    (built_copy / "drops.parquet").unlink()
    done = run_glit("verify", built_copy)
    assert (done.code, done.output) == (1, "drops.parquet: missing\n")
    done = run_glit("verify", built_copy, "--json")
    assert done.code == 1
    assert json.loads(done.output) == {
        "dataset": str(built_copy), "ok": False, "breaches": ["drops.parquet: missing"],
    }  # fmt: skip


def test_an_unfinished_dataset(built_copy, run_glit):
    (built_copy / "manifest.json").unlink()
    done = run_glit("verify", built_copy)
    assert done.code == 2 and done.output == ""
    assert done.errors.startswith(f"glit: {built_copy}: the build is not finished")
