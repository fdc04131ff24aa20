"""Drops once more: what comes back, and what is left as it was."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from adding import moved
from building import Counting, counts, data_bytes, png, quiet, run_build, with_captions_beside
from PIL import Image

from glit.dataset.manifest import read_manifest
from glit.dataset.verify import verify
from glit.errors import RunError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.stage_task import StageWorker
from glit.pipeline.status import status
from glit.pipeline.work.state import Retry, read_state
from glit.storage.store import Store

IN_PARTS = ["caption.backend=sidecar", "ingest.chunk_size=2"]
LARGE_ONES = ["caption.backend=sidecar", "ingest.min_side=32"]


@pytest.fixture(scope="module")
def lacking(scenes, tmp_path_factory) -> Path:
    """A dataset of two images that lacks one of 20 pixels a side; not to be written into."""
    folder = tmp_path_factory.mktemp("lacking") / "world"
    folder.mkdir()
    images = with_captions_beside(scenes, folder / "in", 2)
    (images / "small.png").write_bytes(png(size=(20, 20)))
    (images / "small.txt").write_text("A red circle.")
    run_build(images, folder / "out", overrides=LARGE_ONES)
    return folder


@pytest.fixture(scope="module")
def failing(scenes, tmp_path_factory) -> Path:
    """A dataset with three drops, and in `whole` the same after a retry that fails of all three;
    not to be written into."""
    folder = tmp_path_factory.mktemp("failing") / "world"
    folder.mkdir()
    images = with_captions_beside(scenes, folder / "in", 4)
    for number in range(2):
        (images / f"{number:06d}.txt").unlink()
    (images / "x.png").write_bytes(b"no image")
    run_build(images, folder / "out", overrides=IN_PARTS)
    whole = moved(folder, folder.parent / "whole")
    retry(str(whole / "out"), LocalExecutor(), quiet())
    return folder


@pytest.fixture
def processed(monkeypatch) -> Counter[str]:
    """How many items every stage was given."""
    found: Counter[str] = Counter()
    rows = StageWorker.rows

    def counted(worker, items):
        found[worker._name] += len(items)
        return rows(worker, items)

    monkeypatch.setattr(StageWorker, "rows", counted)
    return found


def test_retry_brings_back_what_failed_and_leaves_the_rest(scenes, built, tmp_path, processed):
    images = tmp_path / "images"
    shutil.copytree(scenes / "images", images)
    hidden = images / "000003.png"
    good = hidden.read_bytes()
    hidden.unlink()
    hidden.symlink_to(tmp_path / "later.png")
    lines = (scenes / "captions.jsonl").read_text().splitlines(keepends=True)
    captions = tmp_path / "captions.jsonl"
    captions.write_text("".join(lines))
    out = tmp_path / "out"
    first = run_build(images, out, captions=captions)
    assert first.counts.drops == {"ingest/unreadable": 1}

    again = retry(str(out), LocalExecutor(), quiet(), stage="caption")
    assert counts(again) == (24, 23, 1, 0)
    (tmp_path / "later.png").write_bytes(good)
    executor = Counting()
    processed.clear()
    after = retry(str(out), executor, quiet())
    tables = ("ingest", "caption", "split", "propose", "score", "pair")
    assert processed == dict.fromkeys(tables, 1)  # the others keep their rows
    assert counts(after) == (24, 24, 0, 0)
    assert executor.done["score"] == 1  # only the chunk that changed
    assert list(verify(str(out))) == []
    lost = sorted((out / "work").glob("propose-*/*.parquet"))[0]
    lost.unlink()  # and nothing is left to retry
    assert retry(str(out), LocalExecutor(), quiet()) == after and lost.is_file()
    with_it, whole = (
        pq.read_table(folder / "data", columns=["sample_id", "caption", "pairs"]).to_pylist()
        for folder in (out, built)
    )
    assert with_it == whole


def test_a_retried_image_may_turn_out_to_be_a_duplicate(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number in range(4):
        shutil.copy(scenes / "images" / f"{number:06d}.png", images)
        (images / f"{number:06d}.txt").write_text("A red circle. A blue square.")
    (images / "000000.png").unlink()
    (images / "000000.png").symlink_to(tmp_path / "later.png")
    out = tmp_path / "out"
    overrides = ["caption.backend=sidecar", "ingest.chunk_size=2"]
    assert counts(run_build(images, out, overrides=overrides)) == (4, 3, 1, 0)
    shutil.copy(images / "000002.png", tmp_path / "later.png")
    after = retry(str(out), LocalExecutor(), quiet())
    assert counts(after) == (4, 3, 0, 1)
    assert list(verify(str(out))) == []


@pytest.mark.parametrize("stop", ["at the first table", "at the last table", "in publish"])
def test_a_retry_that_is_killed_late_counts_one_attempt(failing, tmp_path, monkeypatch, stop):
    out, whole = moved(failing, tmp_path / "world") / "out", failing.parent / "whole" / "out"
    move, tables = Store.move, []

    def stopped(*words, **named):
        raise KeyboardInterrupt

    def move_some(store, source, target):
        move(store, source, target)
        tables.append(target)
        if stop == "at the first table" or target.startswith("ingest"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if stop == "in publish":
            patched.setattr(sys.modules["glit.pipeline.run"], "publish", stopped)
        else:
            patched.setattr(Store, "move", move_some)
        with pytest.raises(KeyboardInterrupt):
            retry(str(out), LocalExecutor(), quiet())
    retry(str(out), LocalExecutor(), quiet())
    drops = [pq.read_table(dataset / "drops.parquet") for dataset in (out, whole)]
    assert drops[0]["attempt"].to_pylist() == [1, 1, 1]
    assert drops[0].equals(drops[1])
    retry(str(out), LocalExecutor(), quiet())
    again = pq.read_table(out / "drops.parquet")
    assert again["attempt"].to_pylist() == [2, 2, 2]


def test_a_build_that_finishes_a_stopped_retry_does_not_take_its_settings(
    scenes, tmp_path, monkeypatch
):
    images, out = with_captions_beside(scenes, tmp_path / "in", 3), tmp_path / "out"
    Image.open(images / "000000.png").resize((12, 12)).save(images / "000000.png")
    overrides = ["caption.backend=sidecar", "propose.min_area=0.0"]
    assert counts(run_build(images, out, overrides=overrides)) == (3, 2, 1, 0)

    def stopped(*words, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["glit.pipeline.run"], "publish", stopped)
        with pytest.raises(KeyboardInterrupt):
            retry(str(out), LocalExecutor(), quiet(), settings=["ingest.min_side=8"])
    (out / "manifest.json").unlink()  # as where it is stopped while the dataset is replaced
    manifest = run_build(images, out, overrides=overrides)
    assert counts(manifest) == (3, 3, 0, 0)
    assert manifest.recipe.tables["ingest"]["min_side"] == 16
    assert manifest.retries[0].settings == {"ingest": {"min_side": 8}}
    assert list(verify(str(out))) == []


def test_retry_after_everything_was_dropped(tmp_path, scenes):
    images = tmp_path / "in"
    images.mkdir()
    (images / "a.txt").write_text("A red circle.")
    (images / "a.png").symlink_to(tmp_path / "later.png")
    out = tmp_path / "out"
    with pytest.raises(RunError, match="no sample was left"):
        run_build(images, out, overrides=["caption.backend=sidecar"])
    shutil.copy(scenes / "images" / "000000.png", tmp_path / "later.png")
    assert counts(retry(str(out), LocalExecutor(), quiet())) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ingest.near_duplicates=-1", "decides of all images"),
        ("propose.backend=sa1b", "reads other files beside the images"),
    ],
)
def test_a_setting_that_concerns_more_than_the_dropped_is_refused(built, setting, message):
    with pytest.raises(UserError, match=message):
        retry(str(built), LocalExecutor(), quiet(), settings=[setting])


def test_a_retry_does_not_finish_a_build_that_was_to_replace_the_dataset(scenes, built_copy):
    before = (built_copy / "manifest.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run_build(
            scenes / "images", built_copy, captions=scenes / "captions.jsonl",
            overrides=["pair.rule=lism"], replace=True, executor=Counting(stop_after=1),
        )  # fmt: skip
    with pytest.raises(UserError, match="not finished; run glit build again first, then retry"):
        retry(str(built_copy), LocalExecutor(), quiet())
    assert (built_copy / "manifest.json").read_bytes() == before


def test_another_retry_keeps_what_a_stopped_one_did_and_tells_its_settings(lacking, tmp_path):
    out = moved(lacking, tmp_path / "world") / "out"
    with pytest.raises(KeyboardInterrupt):
        retry(str(out), Counting(stop_after=1), quiet(), settings=["ingest.min_side=16"])
    assert status(str(out))["retrying"] and (out / "manifest.json").is_file()
    told = retry(str(out), LocalExecutor(), quiet(), stage="pair")
    assert [each.settings for each in told.retries] == [{"ingest": {"min_side": 16}}]
    assert counts(told) == (3, 3, 0, 0)
    assert not status(str(out))["retrying"]
    assert not list((out / "work").rglob("*so-far*"))


def test_the_manifest_keeps_the_settings_of_the_build(lacking, tmp_path):
    """Two of the three samples were made with them, and the retry's stand beside."""
    out = moved(lacking, tmp_path / "world") / "out"
    built = read_manifest(Store(out))
    told = retry(str(out), LocalExecutor(), quiet(), settings=["ingest.min_side=16"])
    assert built.recipe.tables["ingest"]["min_side"] == 32
    for key in ("recipe", "models", "precision", "packages", "fingerprints"):
        assert getattr(told, key) == getattr(built, key), key
    assert [each.settings for each in told.retries] == [{"ingest": {"min_side": 16}}]
    assert list(verify(str(out))) == []


def test_a_build_in_between_leaves_a_stopped_retry_its_settings(lacking, tmp_path):
    """They are those of the retry, and no part of the recipe that the build notes."""
    world = moved(lacking, tmp_path / "world")
    out = world / "out"
    noted = read_state(Store(str(out / "work")))
    with pytest.raises(KeyboardInterrupt):
        retry(str(out), Counting(stop_after=1), quiet(), settings=["ingest.min_side=16"])
    run_build(world / "in", out, overrides=LARGE_ONES)
    stopped = read_state(Store(str(out / "work")))
    assert (stopped.recipe, stopped.retry) == (
        noted.recipe,
        Retry(settings=("ingest.min_side=16",)),
    )
    told = retry(str(out), LocalExecutor(), quiet(), settings=["ingest.min_side=16"])
    assert counts(told) == (3, 3, 0, 0)


@pytest.fixture(scope="module")
def mended(scenes, tmp_path_factory) -> Path:
    """A dataset that lacks an image and two captions, of which all but one caption are there now,
    and in `whole` the same after a retry; not to be written into."""
    folder = tmp_path_factory.mktemp("mended") / "world"
    folder.mkdir()
    images, out = with_captions_beside(scenes, folder / "in", 6), folder / "out"
    for name in ("000001.txt", "000004.txt"):
        (images / name).rename(folder / name)
    (images / "000003.png").rename(folder / "later.png")
    (images / "000003.png").symlink_to("../hidden.png")
    run_build(images, out, overrides=IN_PARTS)
    (folder / "later.png").rename(folder / "hidden.png")
    (folder / "000001.txt").rename(images / "000001.txt")
    whole = moved(folder, folder.parent / "whole", symlinks=True)
    assert counts(retry(str(whole / "out"), LocalExecutor(), quiet())) == (6, 5, 1, 0)
    return folder


@pytest.mark.parametrize("stop_after", range(1, 12))
@pytest.mark.parametrize("command", ["retry", "build"])
def test_a_retry_that_is_stopped_anywhere_goes_on(mended, tmp_path, stop_after, command):
    """Whoever goes on, the dataset is that of a retry that was not stopped."""
    world, whole = moved(mended, tmp_path / "world", symlinks=True), mended.parent / "whole"
    out = world / "out"
    with pytest.raises(KeyboardInterrupt):
        retry(str(out), Counting(stop_after=stop_after), quiet())
    if command == "build":
        (out / "manifest.json").unlink(missing_ok=True)  # as where it was stopped in publish
        run_build(world / "in", out, overrides=IN_PARTS)
    else:
        retry(str(out), LocalExecutor(), quiet())
    assert data_bytes(out) == data_bytes(whole / "out")
    drops = [pq.read_table(o / "drops.parquet") for o in (out, whole / "out")]
    assert drops[0].equals(drops[1])
    assert not status(str(out))["retrying"]
