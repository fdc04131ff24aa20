"""How a worker's process is prepared, and that a borrowed one is given back as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from building import json_lines

from glit.pipeline.executors import process
from glit.runtime.process_state import kept_random_states

TRIM, MMAP = -1, -3  # malloc.h


@pytest.mark.parametrize(
    "largest, settings",
    [
        (1 << 62, {MMAP: 1 << 30, TRIM: 1 << 30}),
        (1 << 25, {MMAP: 1 << 25, TRIM: 1 << 30}),  # an older glibc
        (0, {}),  # what it adjusts by itself is better than the trim threshold alone
    ],
)
def test_memory_is_kept_as_far_as_malloc_allows(monkeypatch, largest, settings):
    set_to = {}

    def mallopt(what, value):
        if what == MMAP and value > largest:
            return 0
        set_to[what] = value
        return 1

    monkeypatch.setattr(process.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setattr(process.sys, "platform", "linux")
    process.keep_freed_memory()
    assert set_to == settings


def test_a_libc_without_such_settings_is_left_alone(monkeypatch):
    monkeypatch.setattr(process.ctypes, "CDLL", lambda _: SimpleNamespace())
    process.keep_freed_memory()

    def missing(_):
        raise OSError("no such file")

    monkeypatch.setattr(process.ctypes, "CDLL", missing)
    process.keep_freed_memory()


@pytest.mark.slow
def test_importing_building_training_and_measuring_leave_the_process_as_it_was(scenes, tmp_path):
    """In a process of its own, with settings that differ from everybody's defaults."""
    import subprocess
    import sys
    import textwrap
    from pathlib import Path

    rows = json_lines(scenes / "captions.jsonl")
    captions = tmp_path / "captions.csv"
    lines = [f'"{row["path"]}","{row["caption"]}"' for row in rows]
    captions.write_text("\n".join(["path,caption", *lines]))
    script = textwrap.dedent(
        f"""
        import csv, sys, warnings
        sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
        import rich.style, torch  # rich draws a number when it is imported
        from PIL import Image
        from process_settings import settings_of_the_process
        torch.set_num_threads(2); Image.MAX_IMAGE_PIXELS = 1000; csv.field_size_limit(5000)
        warnings.simplefilter("once"); torch.manual_seed(5)
        before = settings_of_the_process()
        import glit
        dataset = glit.build({str(scenes / "images")!r}, {str(tmp_path / "out")!r}, recipe="mini",
                             captions={str(captions)!r}, executor="local", limit=6, quiet=True)
        dataset[0].pixels()
        glit.train(dataset.path, {str(tmp_path / "run")!r}, recipe="mini",
                   settings=["train.batch_size=6", "train.epochs=1", "train.trackers=[]"])
        glit.evaluate("retrieval", {str(tmp_path / "run")!r}, dataset.path)
        after = settings_of_the_process()
        changed = [name for name in before if before[name] != after[name]]
        print("changed:", changed)
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "changed: []"


def test_threads_that_decode_together_leave_warnings_as_they_were():
    """Each used to save and restore the filters by itself, and the last kept another's."""
    import warnings
    from concurrent.futures import ThreadPoolExecutor

    from building import png

    from glit.images import decode

    data = [png(seed=seed, size=(300, 300)) for seed in range(8)]
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(decode, data))
    assert list(warnings.filters) == before


def test_malloc_is_left_alone_in_a_borrowed_process(monkeypatch):
    monkeypatch.setattr(process, "keep_freed_memory", lambda: pytest.fail("malloc was changed"))
    with process.borrowed_process(for_model=True):
        pass


def test_a_gpu_is_not_started_to_keep_its_random_state(monkeypatch):
    """Workers without a GPU of their own see all of the machine's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("the GPU was started"))
    with kept_random_states():
        pass


def test_a_gpu_started_within_has_the_callers_seed_afterwards(monkeypatch):
    started, seeds = [], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(started))
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        seeds.clear()
        with kept_random_states():
            torch.manual_seed(7)
            started.append(True)
    assert seeds == [7, 5]
