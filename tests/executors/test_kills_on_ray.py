"""``glit add`` on Ray and ``glit pair``, whose driver is killed, and run again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from building import data_bytes, run_build

from glit.dataset.verify import verify

COMMANDS = {
    "add": (["add", "out"], "work/propose-*/*.parquet", "out"),
    "pair": (["pair", "out", "-o", "paired"], "../.paired.partial/*/*", "paired"),
}
"""The words, the files of which one more shows that it is at work, and the dataset written."""


@pytest.fixture(scope="module")
def start(scenes, tmp_path_factory):
    """A dataset of some images, and others to be added."""
    folder = tmp_path_factory.mktemp("killed")
    images = folder / "images"
    images.mkdir()
    paths = sorted((scenes / "images").iterdir())
    for path in paths[:8]:
        shutil.copy(path, images)
    run_build(
        images, folder / "out", captions=scenes / "captions.jsonl",
        overrides=["ingest.chunk_size=2"],
    )  # fmt: skip
    return folder, paths[8:12]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_command_is_finished_by_itself(start, tmp_path, command, warm_glit):
    folder, more = start
    words, at_work, written = COMMANDS[command]
    here = folder / "images"  # what both work on, one after the other
    for path in more if command == "add" else ():
        shutil.copy(path, here)
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    for place in (whole, parted):
        shutil.copytree(folder / "out", place / "out")
    ray = [] if command == "pair" else ["--executor", "ray"]
    local = [] if command == "pair" else ["--executor", "local"]
    environment = {**os.environ, "RAY_ADDRESS": ""}

    def line(*options):
        return [sys.executable, "-m", "glit", *words, *options]

    warm_glit.said([*words, *local], whole)
    before = set((parted / "out").glob(at_work))
    with subprocess.Popen(
        line(*ray), cwd=parted, env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as killed:  # fmt: skip
        while set((parted / "out").glob(at_work)) <= before and killed.poll() is None:
            time.sleep(0.005)
        os.kill(killed.pid, signal.SIGKILL)
    again = subprocess.run(line(*ray), cwd=parted, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert data_bytes(parted / written) == data_bytes(whole / written)
    assert list(verify(str(parted / written))) == []
