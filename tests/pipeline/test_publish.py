"""What a finished dataset holds, and packing that was interrupted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from building import counts, data_bytes, noise, png, quiet, run_build, tiny

from glit.dataset.manifest import read_manifest
from glit.dataset.verify import verify
from glit.errors import RunError
from glit.pipeline import publish
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.retry import retry
from glit.storage.store import Store


def test_scenes_become_a_dataset_that_keeps_every_promise(built):
    manifest = read_manifest(Store(built))
    assert counts(manifest) == (24, 24, 0, 0)
    assert list(verify(str(built))) == []
    assert manifest.files.keys() >= {"drops.parquet", "duplicates.parquet"}
    assert len(data_bytes(built)) == 8


def test_the_datasets_library_decodes_images_without_glit(built, scenes):
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(
        "parquet",
        data_files=str(built / "data" / "*.parquet"),
        split="train",
        cache_dir=str(built.parent / "cache"),
    )
    row = loaded[0]
    assert row["image"].size == (row["width"], row["height"])
    assert row["caption"][row["sentences"][0]["char_start"] :].startswith(
        row["sentences"][0]["text"]
    )


def test_rows_come_in_the_order_of_their_paths(built):
    paths = [
        path
        for file in sorted((built / "data").iterdir())
        for path in pq.read_table(file, columns=["source_path"])["source_path"].to_pylist()
    ]
    assert paths == sorted(paths)
    assert len(paths) == 24


def test_nothing_left_to_ship_says_why(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no")
    with pytest.raises(RunError, match="no sample was left to ship .1 ingest/not_an_image."):
        run_build(tmp_path / "in", tmp_path / "out", overrides=["caption.backend=sidecar"])


def test_captions_of_other_paths_are_named_beside_the_images(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png())
    (tmp_path / "c.jsonl").write_text('{"path": "photos/a.png", "caption": "A red ball."}\n')
    with pytest.raises(RunError, match="c.jsonl names 'photos/a.png', the folder has 'a.png', and"):
        run_build(tmp_path / "in", tmp_path / "out", captions=tmp_path / "c.jsonl")


def test_pack_goes_on_with_the_files_it_has(scenes, built, tmp_path):
    class StopsInPack(LocalExecutor):
        def run_job(self, job):
            if job.task.name != "pack":
                return super().run_job(job)
            super().run_job(dataclasses.replace(job, units=job.units[:3]))
            raise KeyboardInterrupt

    arguments = {"captions": scenes / "captions.jsonl"}
    with pytest.raises(KeyboardInterrupt):
        run_build(scenes / "images", tmp_path / "out", executor=StopsInPack(), **arguments)
    first, second, third = sorted((tmp_path / "out/work").glob("pack-*/*.parquet"))
    inodes = [path.stat().st_ino for path in (first, second, third)]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)
    Path(f"{third}.json").write_text("{")
    run_build(scenes / "images", tmp_path / "out", **arguments)
    assert data_bytes(tmp_path / "out") == data_bytes(built)
    now = [(tmp_path / "out/data" / path.name).stat().st_ino for path in (first, second, third)]
    assert [a == b for a, b in zip(inodes, now, strict=True)] == [True, False, False]


def test_the_manifest_holds_the_whole_recipe(scenes, tmp_path):
    """Every key of every table, as the recipe has it and as the build was asked for it."""
    out = tmp_path / "out"
    overrides = [*tiny(), "caption.backend=provided", "pair.rule=lism", "ingest.min_side=17"]
    run_build(scenes / "images", out, captions=scenes / "captions.jsonl", limit=2, recipe="mini",
              overrides=overrides)  # fmt: skip
    found = json.loads((out / "manifest.json").read_text())["recipe"]
    wanted = load_recipe("mini", overrides=overrides)
    assert found == json.loads(json.dumps(wanted.as_dict()))
    assert found["name"] == "mini" and found["about"] == wanted.about != ""
    assert found["pair"]["rule"] == "lism" and found["ingest"]["min_side"] == 17
    assert list(found) == sorted([
        "name", "about", "ingest", "caption", "split", "propose", "score", "pair", "pack"
    ])  # fmt: skip


def test_what_a_finished_dataset_has_stays_until_the_manifest_is_ready(tmp_path, monkeypatch):
    """Rows are counted last, for minutes where there are millions; a kill then leaves it whole."""
    images, out = noise(tmp_path / "images", 3), tmp_path / "out"
    (images / "0.png").write_bytes(b"no picture")
    for number in range(3):
        (images / f"{number}.txt").write_text("A red circle. A blue square.")
    run_build(images, out, overrides=["caption.backend=sidecar"])
    before = (out / "drops.parquet").read_bytes()

    def killed(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publish, "dataset_statistics", killed)
        with pytest.raises(KeyboardInterrupt):
            retry(str(out), LocalExecutor(), quiet())
    assert (out / "drops.parquet").read_bytes() == before and list(verify(str(out))) == []
    retry(str(out), LocalExecutor(), quiet())
    assert pq.read_table(out / "drops.parquet")["attempt"].to_pylist() == [1]
