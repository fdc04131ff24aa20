"""Regions are proposed for images that can still be shipped, and for later ones when they can."""

from __future__ import annotations

import json
import shutil

import pytest
from building import Counting, counts, data_bytes, quiet, run_build

from glit.dataset.verify import verify
from glit.pipeline.executors.local import LocalExecutor
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


@pytest.fixture(scope="module")
def few(scenes, tmp_path_factory):
    """Eight of the scenes, and the captions of all."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "images").mkdir()
    for path in sorted((scenes / "images").iterdir())[:8]:
        shutil.copy(path, folder / "images")
    shutil.copy(scenes / "captions.jsonl", folder)
    return folder


def some_captions(few, path, number: int):
    lines = (few / "captions.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:number]))
    return path


def proposed(output) -> int:
    return {each["stage"]: each for each in status(str(output))["stages"]}["propose"]["rows"]


@pytest.mark.slow
def test_images_without_a_caption_get_no_regions_until_they_have_one(few, looked_at, tmp_path):
    captions = some_captions(few, tmp_path / "captions.jsonl", 3)
    manifest = run_build(few / "images", tmp_path / "out", captions=captions, recipe="mini")
    assert counts(manifest) == (8, 3, 5, 0)
    assert len(looked_at) == 3 == proposed(tmp_path / "out")
    some_captions(few, captions, 8)
    again = run_build(
        few / "images", tmp_path / "out", captions=captions, replace=True, recipe="mini"
    )
    assert counts(again) == (8, 8, 0, 0)
    assert len(looked_at) == 8 and len(set(looked_at)) == 8  # none twice
    assert list(verify(str(tmp_path / "out"))) == []
    run_build(few / "images", tmp_path / "whole", captions=captions, recipe="mini")
    assert data_bytes(tmp_path / "whole") == data_bytes(tmp_path / "out")
    some_captions(few, captions, 3)
    run_build(few / "images", tmp_path / "out", captions=captions, replace=True, recipe="mini")
    assert len(looked_at) == 16  # those of the second dataset alone


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_stopped_while_they_are_filled_up(few, tmp_path, stop_after):
    captions = some_captions(few, tmp_path / "captions.jsonl", 3)
    run_build(few / "images", tmp_path / "out", captions=captions)
    some_captions(few, captions, 8)
    with pytest.raises(KeyboardInterrupt):
        run_build(few / "images", tmp_path / "out", captions=captions, replace=True,
                  executor=Counting(stop_after))  # fmt: skip
    run_build(few / "images", tmp_path / "out", captions=captions, replace=True)
    run_build(few / "images", tmp_path / "whole", captions=captions)
    assert data_bytes(tmp_path / "whole") == data_bytes(tmp_path / "out")


def test_tables_of_all_images_from_before_are_taken(few, looked_at, tmp_path):
    """As an earlier glit wrote them."""
    out = tmp_path / "out"
    captions = some_captions(few, tmp_path / "captions.jsonl", 8)
    run_build(few / "images", out, captions=captions)
    [folder] = (out / "work").glob("propose-*")
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.partition("_")[0] + ".parquet"))
    some_captions(few, captions, 3)
    looked_at.clear()
    manifest = run_build(few / "images", out, captions=captions, replace=True)
    assert counts(manifest) == (8, 3, 5, 0) and not looked_at
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
