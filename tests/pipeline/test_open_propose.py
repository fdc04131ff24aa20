"""Regions are proposed for images that can still be shipped, and for later ones when they can."""

from __future__ import annotations

import json

import pytest
from building import Counting, counts, data_bytes, quiet, run_build

from glit.dataset.verify import verify
from glit.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.stages.propose import DetectRegions


@pytest.fixture
def looked_at(monkeypatch) -> list[str]:
    """Paths of the samples that a detector was given."""
    found: list[str] = []
    process = DetectRegions.process

    def noting(self, samples, images):
        found.extend(sample.source_path for sample in samples)
        return process(self, samples, images)

    monkeypatch.setattr(DetectRegions, "process", noting)
    return found


def some_captions(scenes, path, number: int):
    lines = (scenes / "captions.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:number]))
    return path


def proposed(output) -> int:
    return {each["stage"]: each for each in status(str(output))["stages"]}["propose"]["rows"]


def test_images_without_a_caption_get_no_regions_until_they_have_one(scenes, looked_at, tmp_path):
    captions = some_captions(scenes, tmp_path / "captions.jsonl", 10)
    manifest = run_build(scenes / "images", tmp_path / "out", captions=captions, recipe="mini")
    assert counts(manifest) == (24, 10, 14, 0)
    assert len(looked_at) == 10 == proposed(tmp_path / "out")
    some_captions(scenes, captions, 24)
    again = run_build(
        scenes / "images", tmp_path / "out", captions=captions, replace=True, recipe="mini"
    )
    assert counts(again) == (24, 24, 0, 0)
    assert len(looked_at) == 24 and len(set(looked_at)) == 24  # none twice
    assert list(verify(str(tmp_path / "out"))) == []
    run_build(scenes / "images", tmp_path / "whole", captions=captions, recipe="mini")
    assert data_bytes(tmp_path / "whole") == data_bytes(tmp_path / "out")
    some_captions(scenes, captions, 10)
    run_build(scenes / "images", tmp_path / "out", captions=captions, replace=True, recipe="mini")
    assert len(looked_at) == 48  # those of the second dataset alone


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_stopped_while_they_are_filled_up(scenes, tmp_path, stop_after):
    captions = some_captions(scenes, tmp_path / "captions.jsonl", 10)
    run_build(scenes / "images", tmp_path / "out", captions=captions)
    some_captions(scenes, captions, 24)
    with pytest.raises(KeyboardInterrupt):
        run_build(scenes / "images", tmp_path / "out", captions=captions, replace=True,
                  executor=Counting(stop_after))  # fmt: skip
    run_build(scenes / "images", tmp_path / "out", captions=captions, replace=True)
    run_build(scenes / "images", tmp_path / "whole", captions=captions)
    assert data_bytes(tmp_path / "whole") == data_bytes(tmp_path / "out")


def test_tables_of_all_images_from_before_are_taken(scenes, looked_at, tmp_path):
    """As an earlier glit wrote them."""
    out = tmp_path / "out"
    captions = some_captions(scenes, tmp_path / "captions.jsonl", 24)
    run_build(scenes / "images", out, captions=captions)
    [folder] = (out / "work").glob("propose-*")
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.partition("_")[0] + ".parquet"))
    some_captions(scenes, captions, 10)
    looked_at.clear()
    manifest = run_build(scenes / "images", out, captions=captions, replace=True)
    assert counts(manifest) == (24, 10, 14, 0) and not looked_at
    assert list(verify(str(out))) == []


def test_a_retry_finds_regions_of_images_that_have_a_caption_now(scenes, looked_at, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    captions = {
        row["path"]: row["caption"]
        for row in map(json.loads, (scenes / "captions.jsonl").read_text().splitlines())
    }
    for path in sorted((scenes / "images").iterdir())[:6]:
        (folder / path.name).write_bytes(path.read_bytes())
        if path.name != "000003.png":
            (folder / f"{path.stem}.txt").write_text(captions[path.name])
    manifest = run_build(folder, out, overrides=["caption.backend=sidecar"], recipe="mini")
    assert counts(manifest) == (6, 5, 1, 0) and len(looked_at) == 5
    (folder / "000003.txt").write_text(captions["000003.png"])
    assert counts(retry(str(out), LocalExecutor(), quiet())) == (6, 6, 0, 0)
    assert looked_at[5:] == ["000003.png"]
    assert list(verify(str(out))) == []
