"""What a stage's task says of itself before it is opened."""

from __future__ import annotations

import pytest
from building import data_bytes, noise, plan_of, run_build
from chat_server import Server

from glit.errors import RunError
from glit.inputs.lookup import BroughtCaptions
from glit.pipeline import stage_task
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.work import tables
from glit.pipeline.work.folder import Work
from glit.recipes.resources import mini_model
from glit.storage.store import Store

GB = 1_000_000_000


def test_sam_needs_memory_beyond_that_of_its_weights(tmp_path):
    """A process of ViT-B, whose weights are 0.37 GB, was seen at 2.95 GB with an image in work."""
    recipe = load_recipe("lism-mini")
    brought = BroughtCaptions(name="none", table="")
    images = Store(tmp_path)
    work = Work(store=images, images=images, plan=plan_of(recipe, captions=brought))
    task = stage_task.StageTask(name="propose", work=work)
    small = sum(each.stat().st_size for each in mini_model("segmenter").glob("*.safetensors"))
    assert task.needs.memory_bytes - 3 * small + 3 * 0.37 * GB > 2.95 * GB


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


def test_a_unit_that_kills_workers_is_done_one_sample_at_a_time(tmp_path, monkeypatch):
    """Each after a beat that names it; what was paid for before the worker died is kept."""
    monkeypatch.setattr(stage_task, "_KEEP_EVERY_S", 0.0)
    images, words = noise(tmp_path / "images", 4), ["batch_size=1", "retries=0"]
    found: list = []

    def carefully(self, unit, _, plain=stage_task.StageWorker.run):
        if self._name != "caption":
            return (yield from plain(self, unit, None))
        running = plain(self, unit, {})
        beats = [next(running) for _ in range(3)]
        running.close()  # as a worker dies at its third sample
        found.append([beat.at for beat in beats])
        asked = len(server.requests)
        tally = yield from plain(self, unit, {beats[2].at: "worker_crash"})
        found.append(len(server.requests) - asked)
        return tally

    monkeypatch.setattr(stage_task.StageWorker, "run", carefully)
    with Server() as server:
        words += ["backend=endpoint", "model=m", f"endpoint={server.url}"]
        made = run_build(images, tmp_path / "out", overrides=[f"caption.{word}" for word in words])
    keys, asked_again = found
    assert len({*keys}) == 3 and all(len(key) == 64 for key in keys)
    assert asked_again == 1 and made.counts.drops == {"caption/worker_crash": 1}
