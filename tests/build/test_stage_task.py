"""How a worker's process is prepared."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from glit.build import stage_task
from glit.build.plan import make_plan
from glit.build.work import Work
from glit.recipe import load_recipe
from glit.stages.brought import BroughtCaptions
from glit.storage import Store

TRIM, MMAP = -1, -3  # malloc.h
GB = 1_000_000_000


def test_sam_needs_memory_beyond_that_of_its_weights(tmp_path):
    """MobileSAM's weights are 41 MB; with an image in work its process was seen at 1.81 GB."""
    file = tmp_path / "mobile_sam.pt"
    file.write_bytes(b"\0" * 41_000_000)
    recipe = load_recipe("lism-mini", overrides=[f"propose.model={file}"])
    brought = BroughtCaptions(name="none", table="")
    images = Store(tmp_path)
    work = Work(store=images, images=images, plan=make_plan(recipe, brought=brought))
    task = stage_task.StageTask(name="propose", work=work)
    assert task.memory_bytes > 1.81 * GB


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

    monkeypatch.setattr(stage_task.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setattr(stage_task.sys, "platform", "linux")
    stage_task._keep_freed_memory()
    assert set_to == settings


def test_a_libc_without_such_settings_is_left_alone(monkeypatch):
    monkeypatch.setattr(stage_task.ctypes, "CDLL", lambda _: SimpleNamespace())
    stage_task._keep_freed_memory()

    def missing(_):
        raise OSError("no such file")

    monkeypatch.setattr(stage_task.ctypes, "CDLL", missing)
    stage_task._keep_freed_memory()
