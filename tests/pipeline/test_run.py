"""Builds as a user meets them: the same bytes, whatever was interrupted or changed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adding import Notes
from building import Counting, counts, data_bytes, quiet, run_build, with_captions_beside
from PIL import Image

from glit.dataset.manifest import read_manifest
from glit.dataset.verify import verify
from glit.errors import DamagedTableError, InputError, RecipeError, RunError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import status
from glit.storage.store import Store


def test_a_second_run_does_nothing(built_copy, scenes):
    class Refuses(LocalExecutor):
        def run(self, jobs):
            raise AssertionError("nothing was to be done")

    manifest = run_build(
        scenes / "images", built_copy, captions=scenes / "captions.jsonl", executor=Refuses()
    )
    assert manifest == read_manifest(Store(built_copy))


@pytest.mark.parametrize("stop_after", [1, 5, 9, 13, 15])
def test_stopped_anywhere_the_same_command_finishes_with_the_same_bytes(
    scenes, built, tmp_path, stop_after
):
    arguments = {"captions": scenes / "captions.jsonl"}
    with pytest.raises(KeyboardInterrupt):
        run_build(scenes / "images", tmp_path / "out", executor=Counting(stop_after), **arguments)
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert status(str(tmp_path / "out"))["complete"] is False
    second = Counting()
    run_build(scenes / "images", tmp_path / "out", executor=second, **arguments)
    assert data_bytes(tmp_path / "out") == data_bytes(built)
    assert sum(second.stages.values()) == max(0, 12 - stop_after)


def test_a_change_of_recipe_redoes_only_what_depends_on_it(scenes, built_copy):
    captions = scenes / "captions.jsonl"
    with pytest.raises(UserError, match="--replace"):
        run_build(
            scenes / "images",
            built_copy,
            captions=captions,
            overrides=["score.model=mini-matcher", "propose.max_regions=8"],
        )
    executor = Counting()
    run_build(
        scenes / "images", built_copy, captions=captions, executor=executor, replace=True,
        overrides=["propose.max_regions=8"],
    )  # fmt: skip
    assert executor.stages.keys() == {"propose", "score", "pair"}
    assert list(verify(str(built_copy))) == []
    speed = Counting()
    run_build(
        scenes / "images", built_copy, captions=captions, executor=speed, replace=True,
        overrides=["propose.max_regions=8", "score.batch_size=16"],
    )  # fmt: skip
    assert speed.done == {}


def test_new_images_in_the_folder_are_taken_in(scenes, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(scenes / "images", images)
    arguments = {"captions": scenes / "captions.jsonl"}
    (images / "000023.png").unlink()
    assert counts(run_build(images, tmp_path / "out", **arguments)) == (23, 23, 0, 0)
    shutil.copy(scenes / "images" / "000023.png", images)
    with pytest.raises(UserError, match="other images"):
        run_build(images, tmp_path / "out", **arguments)
    executor = Counting()
    after = run_build(images, tmp_path / "out", replace=True, executor=executor, **arguments)
    assert counts(after) == (24, 24, 0, 0)
    assert executor.done["score"] == 1  # of two chunks


def test_a_build_that_goes_on_in_a_folder_that_has_changed_says_so(scenes, tmp_path):
    images, out = tmp_path / "images", tmp_path / "out"
    shutil.copytree(scenes / "images", images)
    (images / "000023.png").unlink()
    arguments = {"captions": scenes / "captions.jsonl"}
    with pytest.raises(KeyboardInterrupt):
        run_build(images, out, executor=Counting(stop_after=4), **arguments)
    notes = Notes()
    with pytest.raises(KeyboardInterrupt):
        run_build(images, out, executor=Counting(stop_after=1), progress=notes, **arguments)
    assert notes.told == []
    shutil.copy(scenes / "images" / "000023.png", images)
    executor = Counting()
    run_build(images, out, executor=executor, progress=notes, **arguments)
    (told,) = notes.told
    assert "images that are new: 1," in told and "1 of 2 chunks hold other images" in told
    assert executor.done["ingest"] == 1


def test_limit(scenes, tmp_path):
    manifest = run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=5
    )
    assert counts(manifest) == (5, 5, 0, 0)


def test_one_build_at_a_time(scenes, tmp_path):
    from glit.pipeline.work.build_lock import only_one_build
    from glit.storage.store import Store

    with (
        only_one_build(Store(tmp_path / "out" / "work")),
        pytest.raises(
            UserError, match=f"another glit is building here .pid {os.getpid()} on .*, since 20"
        ),
    ):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["score.model=no/such"], UserError, "not a folder, not in the Hugging Face cache"),
        (["caption.prompt=nowhere.txt"], RecipeError, "nowhere.txt cannot be read"),
        (["caption.backend=provided"], RecipeError, "add --captions FILE"),
    ],
)
def test_a_recipe_that_cannot_run(scenes, tmp_path, overrides, error, message):
    with pytest.raises(error, match=message):
        run_build(scenes / "images", tmp_path / "out", overrides=overrides)


def test_an_empty_folder(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="no images found"):
        run_build(tmp_path / "in", tmp_path / "out", overrides=["caption.backend=sidecar"])


def test_pictures_of_other_formats_are_drops_and_the_balance_holds(scenes, tmp_path):
    """JPEG 2000 by suffix, a JPEG under odd names, text that is no picture."""
    folder = with_captions_beside(scenes, tmp_path / "in", 2)
    other = b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(40)
    for name in ("a.jp2", "b.JP2", "noext"):
        (folder / name).write_bytes(other)
    (folder / "c.tga").write_bytes(b"x")
    for number, name in enumerate(("d", "e.jpg~", "f.jpg?w=100", "g.jpg.1", ".png", "h.pjpeg")):
        Image.new("RGB", (40, 40), (number, 0, 90)).save(buffer := io.BytesIO(), "JPEG")
        (folder / name).write_bytes(buffer.getvalue())
        (folder / f"{name.rpartition('.')[0] or name}.txt").write_text("One. Two.")
    for name in ("notes.md", "LICENSE", "x.bin"):
        (folder / name).write_bytes(b"II, a king")
    found = run_build(folder, tmp_path / "out", overrides=["caption.backend=sidecar"]).counts
    assert found.ingested == 2 + 4 + 6
    assert found.drops["ingest/unsupported_format"] == 4
    assert found.ingested == found.shipped + sum(found.drops.values()) + found.duplicates
    assert [key for key in found.drops if key.startswith("ingest/")] == [
        "ingest/unsupported_format"
    ]
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.jxl").write_bytes(other)
    with pytest.raises(RunError, match="1 ingest/unsupported_format"):
        run_build(tmp_path / "others", tmp_path / "o", overrides=["caption.backend=sidecar"])


def test_a_file_named_like_jfif_or_avif_is_an_image(scenes, tmp_path):
    folder = with_captions_beside(scenes, tmp_path / "in", 2)
    for suffix, kind in ((".jfif", "JPEG"), (".avif", "AVIF")):
        Image.open(folder / "000000.png").save(folder / f"x{suffix}", kind)
        (folder / f"x{suffix}").rename(folder / f"y{suffix}")
        (folder / "y.txt").write_text("A red circle. A blue square.")
    manifest = run_build(
        folder, tmp_path / "out", overrides=["caption.backend=sidecar", "pair.rule=argmax"]
    )
    assert manifest.counts.ingested == 4


def test_an_output_folder_that_cannot_be_written(scenes, tmp_path):
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(UserError, match="cannot write there"):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")


KILLED_IN_SPLIT = """
import os, signal
from glit.pipeline.stage_task import StageWorker
from glit.cli.main import main

run = StageWorker.run

def killed_in_the_second_chunk_of_split(self, unit, excluded):
    if self._name == "split" and unit.index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, unit, excluded)

StageWorker.run = killed_in_the_second_chunk_of_split
main()
"""


@pytest.mark.slow
def test_kill_dash_nine_of_the_process_loses_nothing(scenes, built_by_mini, tmp_path, run_glit):
    out = tmp_path / "out"
    arguments = [
        "build", scenes / "images", "-o", out, "-r", "mini", "--executor", "local",
        "--captions", scenes / "captions.jsonl",
    ]  # fmt: skip
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_SPLIT, *map(str, arguments)])
    assert killed.returncode == -signal.SIGKILL
    assert len(list(out.glob("work/split-*/*.parquet"))) == 1
    assert not (out / "manifest.json").exists()
    finished = run_glit(*arguments)
    assert finished.code == 0, finished.errors
    assert data_bytes(out) == data_bytes(built_by_mini)
    assert not list(Path(out).rglob("*.tmp-*"))


def test_fewer_images_than_before_are_not_the_finished_dataset(scenes, built_copy):
    captions = scenes / "captions.jsonl"
    before = (built_copy / "work" / "listing.parquet").read_bytes()
    with pytest.raises(UserError, match="other images"):
        run_build(scenes / "images", built_copy, captions=captions, limit=16)
    assert (built_copy / "work" / "listing.parquet").read_bytes() == before
    assert list(verify(str(built_copy))) == []
    assert counts(retry(str(built_copy), LocalExecutor(), quiet())) == (24, 24, 0, 0)


def test_back_to_the_first_recipe_is_not_the_second_ones_dataset(scenes, built_copy):
    captions = scenes / "captions.jsonl"
    other = {"overrides": ["propose.max_regions=8"], "replace": True}
    second = run_build(scenes / "images", built_copy, captions=captions, **other)
    executor = Counting()
    first = run_build(
        scenes / "images", built_copy, captions=captions, executor=executor, replace=True
    )
    assert first.fingerprints != second.fingerprints
    assert executor.done.keys() == {"pack"}


def test_after_clean_the_refusal_says_why(scenes, built_copy):
    shutil.rmtree(built_copy / "work")
    with pytest.raises(UserError, match="work folder was cleaned"):
        run_build(scenes / "images", built_copy, captions=scenes / "captions.jsonl")


def test_a_finished_dataset_that_lost_a_file_is_made_whole(built, built_copy, scenes):
    lost, cut = sorted((built_copy / "data").iterdir())[:2]
    lost.unlink()
    run_build(scenes / "images", built_copy, captions=scenes / "captions.jsonl")
    assert data_bytes(built_copy) == data_bytes(built)
    cut.write_bytes(cut.read_bytes()[:-9])
    executor = Counting()
    arguments = {"captions": scenes / "captions.jsonl", "executor": executor}
    run_build(scenes / "images", built_copy, **arguments)
    assert data_bytes(built_copy) == data_bytes(built)
    assert executor.stages == {}
    assert list(verify(str(built_copy))) == []


@pytest.mark.parametrize("table", ["ingest", "caption", "pair", "ledger"])
def test_a_damaged_table_is_made_anew(built, built_copy, scenes, table):
    (built_copy / "manifest.json").unlink()
    for kept in (built_copy / "work").glob("duplicates-*"):
        kept.unlink()  # or nothing reads the tables of ingest
    for packed in (built_copy / "work").glob("pack-*"):
        shutil.rmtree(packed)
    damaged = sorted((built_copy / "work").glob(f"{table}-*/*.parquet"))[0]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:99] + bytes([whole[99] ^ 4]) + whole[100:])
    executor = Counting()
    arguments = {"captions": scenes / "captions.jsonl", "executor": executor}
    run_build(scenes / "images", built_copy, **arguments)
    assert damaged.read_bytes() == whole
    assert executor.stages.get(table, 1) == 1, "one chunk alone"
    assert data_bytes(built_copy) == data_bytes(built)
    assert list(verify(str(built_copy))) == []


def test_a_lost_table_takes_along_what_was_made_of_it(built, built_copy, scenes):
    """It may hold other samples when it is made anew, as where a captioner had failed."""
    work = built_copy / "work"
    (built_copy / "manifest.json").unlink()
    sorted(work.glob("caption-*/*.parquet"))[0].unlink()
    (built_copy / "drops.parquet.tmp-12345678").write_bytes(b"left by a killed build")
    executor = Counting()
    arguments = {"captions": scenes / "captions.jsonl"}
    run_build(scenes / "images", built_copy, executor=executor, **arguments)
    assert executor.stages == {"caption": 1, "split": 1, "score": 1, "pair": 1}
    assert executor.done["ledger"] == 1
    assert data_bytes(built_copy) == data_bytes(built)
    assert not list(built_copy.glob("*.tmp-*"))
    (work / "state.json").write_text("{")
    run_build(scenes / "images", built_copy, **arguments)
    assert json.loads((work / "state.json").read_text())["num_chunks"] == 2


def test_a_disk_that_damages_everything_is_given_up(built_copy, scenes, monkeypatch):
    (built_copy / "manifest.json").unlink()

    def damaged(*_, **__):
        raise DamagedTableError("out", "x", "always")

    monkeypatch.setattr(sys.modules["glit.pipeline.run"], "publish", damaged)
    with pytest.raises(DamagedTableError, match="out/x: damaged .always.; glit build rebuilds"):
        run_build(scenes / "images", built_copy, captions=scenes / "captions.jsonl")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing_is_refused(scenes, tmp_path, limit):
    with pytest.raises(UserError, match=f"limit {limit}: want 1 or more"):
        run_build(scenes / "images", tmp_path / "out", limit=limit)


@pytest.mark.parametrize("name", ["data/photo.png", "work/notes.txt", "README.md"])
def test_files_that_are_not_glits_are_left_alone(scenes, tmp_path, name):
    (tmp_path / "data").mkdir()
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match=rf"holds {name.partition('/')[0]}.* neither a dataset"):
        run_build(scenes / "images", tmp_path, captions=scenes / "captions.jsonl", limit=2)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("how", [".", "slash", "link", "glob"])
def test_the_folder_of_the_images_is_no_output(scenes, tmp_path, monkeypatch, how):
    images = Path(shutil.copytree(scenes / "images", tmp_path / "images"))
    (tmp_path / "link").symlink_to(images)
    monkeypatch.chdir(images)
    output = {".": ".", "slash": f"{images}/", "link": tmp_path / "link", "glob": images}[how]
    before = sorted(images.iterdir())
    with pytest.raises(InputError, match="-o .*: is the folder of the images"):
        run_build(f"{images}/*.png" if how == "glob" else images, output, recipe="mini")
    assert sorted(images.iterdir()) == before


def test_an_output_within_the_images_is_none_of_them(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for path in sorted((scenes / "images").iterdir())[:2]:
        shutil.copy(path, images)
    for _ in range(2):
        manifest = run_build(images, images / "out", captions=scenes / "captions.jsonl")
        assert counts(manifest) == (2, 2, 0, 0)


def test_empty_folders_stand_in_no_builds_way(scenes, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "work").mkdir()
    manifest = run_build(scenes / "images", tmp_path, captions=scenes / "captions.jsonl", limit=2)
    assert counts(manifest) == (2, 2, 0, 0)
