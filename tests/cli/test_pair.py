"""``glit pair``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from building import run_build

from glit import open_dataset


@pytest.mark.slow
def test_another_rule_over_a_finished_dataset(built, tmp_path, run_glit):
    out = tmp_path / "lism"
    done = run_glit("pair", built, "-o", out, "--set", "pair.rule=lism")
    assert (done.code, done.output) == (0, f"24 images: {out}\n")
    assert open_dataset(out).manifest.recipe.tables["pair"]["rule"] == "lism"
    assert run_glit("verify", out).code == 0
    again = run_glit("pair", built, "-o", out)
    assert again.code == 2 and "exists already" in again.errors


def test_a_rule_that_is_not_there(built, tmp_path, run_glit):
    done = run_glit("pair", built, "-o", tmp_path / "x", "--set", "pair.rule=centered")
    assert done.code == 2
    assert "did you mean 'centred'" in done.errors


PAIRS_THAT_WAIT = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from glit.curate.derive import end_with_parent
context = get_context("forkserver")
with ProcessPoolExecutor(2, mp_context=context, initializer=end_with_parent) as pool:
    pool.submit(pow, 2, 2).result()
    waiting = [pool.submit(time.sleep, 600) for _ in range(2)]
    print("started", flush=True)
"""


def test_processes_that_write_pairs_end_with_the_one_that_started_them():
    """As they hold its standard output, whoever reads that would wait for ever."""
    code = [sys.executable, "-c", PAIRS_THAT_WAIT]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "started\n"
        killed.kill()
        assert killed.communicate(timeout=60)[0] == ""


@pytest.mark.slow
def test_processes_that_write_pairs_say_nothing_when_they_end(scenes, tmp_path):
    built = tmp_path / "built"
    run_build(
        scenes / "images", built, captions=scenes / "captions.jsonl",
        overrides=["pack.min_files=3"],
    )  # fmt: skip
    words = ["pair", str(built), "-o", str(tmp_path / "lism"), "--set", "pair.rule=lism"]
    done = subprocess.run([sys.executable, "-m", "glit", *words], capture_output=True, text=True)
    assert len(open_dataset(built).files) > 1 and done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("pair ")]
    assert lines == [], done.stderr


def test_phrases_that_were_not_scored_say_how_to_do_without(built, tmp_path, run_glit):
    done = run_glit("pair", built, "-o", tmp_path / "x", "--set", "pair.phrase_weight=0.5",
                    "--set", "pair.rule=centred")  # fmt: skip
    assert done.code == 2 and "add --set pair.phrase_weight=0" in done.errors


def test_verdicts_that_are_not_there(built, tmp_path, run_glit):
    done = run_glit("pairs", "calibrate", built, "--verdicts", "nosuch.jsonl", "-o", "x.json")
    assert done.code == 2 and "--verdicts nosuch.jsonl: no such file" in done.errors
