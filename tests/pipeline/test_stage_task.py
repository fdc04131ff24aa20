"""What a stage's task says of itself before it is opened."""

from __future__ import annotations

import pytest
from building import data_bytes, plan_of, run_build

from glit.errors import RunError
from glit.inputs.lookup import BroughtCaptions
from glit.pipeline import stage_task
from glit.planning.recipe import load_recipe
from glit.storage.store import Store
from glit.work import tables
from glit.work.folder import Work

GB = 1_000_000_000


def test_sam_needs_memory_beyond_that_of_its_weights(tmp_path):
    """MobileSAM's weights are 41 MB; with an image in work its process was seen at 1.81 GB."""
    file = tmp_path / "own.pt"
    file.write_bytes(b"\0" * 41_000_000)
    recipe = load_recipe(
        "lism-mini", overrides=[f"propose.model={file}", "propose.allow_pickle=true"]
    )
    brought = BroughtCaptions(name="none", table="")
    images = Store(tmp_path)
    work = Work(store=images, images=images, plan=plan_of(recipe, captions=brought))
    task = stage_task.StageTask(name="propose", work=work)
    assert task.needs.memory_bytes > 1.81 * GB


def test_a_full_disk_is_one_line_and_resumable(scenes, built, tmp_path, monkeypatch):
    import errno

    written = []

    def full(table, path, _write=tables.write_sealed):
        written.append(path)
        if len(written) == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        _write(table, path)

    monkeypatch.setattr(tables, "write_sealed", full)
    with pytest.raises(RunError, match="the disk is full"):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")
    run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")
    assert data_bytes(tmp_path / "out") == data_bytes(built)
