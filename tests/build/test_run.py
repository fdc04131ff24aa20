"""The whole flow, as a user meets it: bytes, balance, resumption, change."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from building import data_bytes, json_lines, png, run_build

from glit.build.retry import retry
from glit.build.status import status
from glit.build.work import Work
from glit.dataset.verify import verify
from glit.errors import InputError, RecipeError, RunError, UserError
from glit.executors.local import LocalExecutor
from glit.progress import StageProgress
from glit.scenes import write_scenes


def counts(manifest) -> tuple[int, int, int, int]:
    c = manifest["counts"]
    return c["ingested"], c["shipped"], c["dropped"], c["duplicates"]


def quiet() -> StageProgress:
    from rich.console import Console

    return StageProgress(Console(quiet=True), quiet=True)


def test_scenes_become_a_dataset_that_keeps_every_promise(built):
    manifest = json.loads((built / "manifest.json").read_text())
    assert counts(manifest) == (24, 24, 0, 0)
    assert list(verify(str(built))) == []
    assert manifest["files"].keys() >= {"drops.parquet", "duplicates.parquet"}
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


def test_captions_of_every_kind(scenes, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    names = ["a.png", "b.png", "c.png", "d.png", "e.png", "f.png", "g.png"]
    for number, name in enumerate(names):
        (images / name).write_bytes(png(seed=number))
    rows = [
        {"path": "a.png", "caption": "一只猫坐在垫子上。旁边有一只狗。"},
        {"path": "b.png", "caption": ""},
        {"path": "c.png", "caption": "One thing. <|endoftext|> Another thing."},
        {"path": "d.png", "caption": "First text."},
        {"path": "d.png", "caption": "Second text."},
        {"path": "e.png", "caption": "Same text."},
        {"path": "e.png", "caption": "Same text."},
        {"path": "nobody.png", "caption": "Extra."},
        {"path": "g.png", "caption": "Many words here. " * 1700},
    ]
    file = tmp_path / "captions.jsonl"
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    manifest = run_build(images, tmp_path / "out", captions=file)
    assert manifest["counts"]["drops"] == {
        "caption/ambiguous_caption": 1,
        "caption/empty_caption": 1,
        "caption/no_caption": 1,
    }
    assert counts(manifest) == (7, 4, 3, 0)
    assert list(verify(str(tmp_path / "out"))) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_caption_files_of_other_kinds_give_the_same(scenes, built, tmp_path, suffix):
    import duckdb

    target = tmp_path / f"captions{suffix}"
    with duckdb.connect() as connection:
        relation = connection.read_json(str(scenes / "captions.jsonl"))
        (relation.write_csv if suffix == ".csv" else relation.write_parquet)(str(target))
    run_build(scenes / "images", tmp_path / "out", captions=target)
    a, b = (
        pq.read_table(folder / "data", columns=["caption", "pairs"]).to_pylist()
        for folder in (tmp_path / "out", built)
    )
    assert a == b


def test_sidecar_captions(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.png").write_bytes(png(seed=ord(name)))
    (tmp_path / "in" / "a.txt").write_text("A red square.\n")
    manifest = run_build(tmp_path / "in", tmp_path / "out", overrides=["caption.backend=sidecar"])
    assert manifest["counts"]["drops"] == {"caption/no_caption": 1}
    row = pq.read_table(tmp_path / "out" / "data").to_pylist()[0]
    assert row["caption"] == "A red square."
    assert row["caption_source"]["kind"] == "provided"


@pytest.fixture
def with_sidecars(tmp_path):
    """Four scenes in chunks of two, masks and captions beside them."""
    write_scenes(tmp_path / "scenes", num=4, seed=2_000_000, masks=True)
    images = tmp_path / "scenes" / "images"
    for path in images.glob("*.png"):
        path.with_suffix(".txt").write_text("A red circle. A blue square.")
    return images


SIDECARS = {
    "recipe": "lism-mini",
    "overrides": ["propose.backend=sa1b", "caption.backend=sidecar", "ingest.chunk_size=2"],
}


@pytest.mark.parametrize(
    ("suffix", "redone"),
    [(".json", {"propose", "score", "pair"}), (".txt", {"caption", "split", "score", "pair"})],
)
def test_a_file_beside_an_image_redoes_what_reads_it(with_sidecars, tmp_path, suffix, redone):
    run_build(with_sidecars, tmp_path / "out", **SIDECARS)
    changed = with_sidecars / f"000001{suffix}"
    changed.write_text(changed.read_text() + " ")
    again = Counting()
    run_build(with_sidecars, tmp_path / "out", executor=again, replace=True, **SIDECARS)
    assert again.stages == dict.fromkeys(redone, 1)
    assert list(verify(str(tmp_path / "out"))) == []


def test_reading_masks_from_now_on_keeps_the_captions(with_sidecars, tmp_path):
    sam = SIDECARS | {"overrides": ["propose.backend=grid", *SIDECARS["overrides"][1:]]}
    run_build(with_sidecars, tmp_path / "out", **sam)
    again = Counting()
    run_build(with_sidecars, tmp_path / "out", executor=again, replace=True, **SIDECARS)
    assert again.stages == {"propose": 2, "score": 2, "pair": 2}


def test_a_file_half_packed_is_not_taken_when_a_caption_changed_since(with_sidecars, tmp_path):
    class StopsInPack(LocalExecutor):
        def run(self, task, units, on_done):
            super().run(task, units, on_done)
            if task.name == "pack":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_build(with_sidecars, tmp_path / "out", executor=StopsInPack(), **SIDECARS)
    (with_sidecars / "000001.txt").write_text("A green star.")
    run_build(with_sidecars, tmp_path / "out", **SIDECARS)
    rows = pq.read_table(tmp_path / "out" / "data", columns=["caption"]).to_pylist()
    assert [row["caption"] for row in rows].count("A green star.") == 1


def test_duplicates_are_kept_once_and_named(tmp_path):
    images = tmp_path / "in"
    images.mkdir()
    for name, seed in (("a.png", 1), ("b.png", 1), ("c.png", 2), ("z.png", 1)):
        (images / name).write_bytes(png(seed=seed))
        (images / name).with_suffix(".txt").write_text("A thing.")
    overrides = ["caption.backend=sidecar", "ingest.chunk_size=2"]
    manifest = run_build(images, tmp_path / "out", overrides=overrides)
    assert counts(manifest) == (4, 2, 0, 2)
    rows = pq.read_table(tmp_path / "out" / "duplicates.parquet").to_pylist()
    assert [(r["source_path"], r["kept_path"]) for r in rows] == [
        ("b.png", "a.png"),
        ("z.png", "a.png"),
    ]


def test_near_duplicates_when_asked_for(scenes, tmp_path):
    from PIL import Image

    images = tmp_path / "in"
    images.mkdir()
    for number in (0, 1):
        picture = Image.open(scenes / "images" / f"{number:06d}.png").convert("RGB")
        picture.save(images / f"{number}.png")
        picture.save(images / f"{number}-again.jpg", quality=90)
    for path in list(images.iterdir()):
        path.with_suffix(".txt").write_text("A thing.")
    base = ["caption.backend=sidecar"]
    assert counts(run_build(images, tmp_path / "a", overrides=base)) == (4, 4, 0, 0)
    near = run_build(images, tmp_path / "b", overrides=[*base, "ingest.near_duplicates=4"])
    assert counts(near) == (4, 2, 0, 2)


def test_a_second_run_does_nothing(built_copy, scenes):
    class Refuses(LocalExecutor):
        def run(self, task, units, on_done):
            raise AssertionError("nothing was to be done")

    manifest = run_build(
        scenes / "images", built_copy, captions=scenes / "captions.jsonl", executor=Refuses()
    )
    assert manifest == json.loads((built_copy / "manifest.json").read_text())


class Counting(LocalExecutor):
    """Remembers how many units each stage did, and can stop after some."""

    def __init__(self, stop_after: int | None = None):
        self.done: dict[str, int] = {}
        self.left = stop_after

    @property
    def stages(self) -> dict[str, int]:
        """The same without what publishing does."""
        return {n: number for n, number in self.done.items() if n not in ("ledger", "pack")}

    def run(self, task, units, on_done):
        def counted(unit, tally):
            self.done[task.name] = self.done.get(task.name, 0) + 1
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
            on_done(unit, tally)

        super().run(task, units, counted)


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5, 7, 9, 11, 13, 15])
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


def test_limit(scenes, tmp_path):
    manifest = run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl", limit=5
    )
    assert counts(manifest) == (5, 5, 0, 0)


def test_retry_brings_back_what_failed_and_leaves_the_rest(scenes, built, tmp_path):
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
    assert first["counts"]["drops"] == {"ingest/unreadable": 1}

    again = retry(str(out), LocalExecutor(), quiet(), stage="caption")
    assert counts(again) == (24, 23, 1, 0)
    (tmp_path / "later.png").write_bytes(good)
    executor = Counting()
    after = retry(str(out), executor, quiet())
    assert counts(after) == (24, 24, 0, 0)
    assert executor.done["score"] == 1  # only the chunk that changed
    assert list(verify(str(out))) == []
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


@pytest.mark.parametrize(("option", "value"), [("stage", "propse"), ("reason", "bad")])
def test_retry_names_what_it_knows(built, option, value):
    with pytest.raises(UserError, match="want one of"):
        retry(str(built), LocalExecutor(), quiet(), **{option: value})


def test_one_build_at_a_time(scenes, tmp_path):
    from glit.build.run import only_one_build
    from glit.storage import Store

    with (
        only_one_build(Store(tmp_path / "out" / "work")),
        pytest.raises(UserError, match="another glit"),
    ):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")


def test_an_image_that_changes_under_the_build_becomes_a_drop(scenes, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(scenes / "images", images)
    changed = images / "000001.png"

    class Vandal(LocalExecutor):
        def run(self, task, units, on_done):
            if task.name == "propose":
                changed.write_bytes(png(seed=9))
            super().run(task, units, on_done)

    manifest = run_build(
        images, tmp_path / "out", captions=scenes / "captions.jsonl", executor=Vandal()
    )
    assert manifest["counts"]["drops"] == {"propose/image_changed": 1}


def test_image_store_path_keeps_images_out(scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
        overrides=["pack.image_store=path", "pack.min_files=2"],
    )  # fmt: skip
    assert len(data_bytes(tmp_path / "out")) == 2
    row = pq.read_table(tmp_path / "out" / "data").to_pylist()[0]
    assert row["image"] == {"bytes": None, "path": "000000.png"}
    assert list(verify(str(tmp_path / "out"))) == []


def test_max_side_moves_boxes_with_the_pixels(scenes, built, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
        overrides=["pack.max_side=64"],
    )  # fmt: skip
    small, whole = (
        pq.read_table(folder / "data").to_pylist()[0] for folder in (tmp_path / "out", built)
    )
    assert (small["width"], whole["width"]) == (64, 128)
    for a, b in zip(small["regions"], whole["regions"], strict=True):
        assert [a[k] for k in ("x0", "y0", "x1", "y1")] == pytest.approx(
            [b[k] / 2 for k in ("x0", "y0", "x1", "y1")]
        )
    assert list(verify(str(tmp_path / "out"))) == []


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


def test_nothing_left_to_ship_says_why(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"no")
    with pytest.raises(RunError, match="no sample was left to ship .1 ingest/not_an_image."):
        run_build(tmp_path / "in", tmp_path / "out", overrides=["caption.backend=sidecar"])


def test_an_output_folder_that_cannot_be_written(scenes, tmp_path):
    (tmp_path / "out").write_text("a file is in the way")
    with pytest.raises(UserError, match="cannot write there"):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")


def test_a_full_disk_is_one_line_and_resumable(scenes, built, tmp_path, monkeypatch):
    import errno

    written = []

    def full(self, stage, chunk, rows, _write=Work.write):
        written.append(stage)
        if len(written) == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        _write(self, stage, chunk, rows)

    monkeypatch.setattr(Work, "write", full)
    with pytest.raises(RunError, match="the disk is full"):
        run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")
    run_build(scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl")
    assert data_bytes(tmp_path / "out") == data_bytes(built)


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "glit", *map(str, arguments)]


def test_kill_dash_nine_of_the_process_loses_nothing(scenes, built, tmp_path):
    out = tmp_path / "out"
    arguments = command(
        "build", scenes / "images", "-o", out, "-r", "mini", "--executor", "local",
        "--captions", scenes / "captions.jsonl",
    )  # fmt: skip
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("work/split-*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "manifest.json").exists()
    finished = subprocess.run(arguments, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert data_bytes(out) == data_bytes(built)
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
    assert first["fingerprints"] != second["fingerprints"]
    assert executor.done.keys() == {"pack"}


def test_after_clean_the_refusal_says_why(scenes, built_copy):
    shutil.rmtree(built_copy / "work")
    with pytest.raises(UserError, match="work folder was cleaned"):
        run_build(scenes / "images", built_copy, captions=scenes / "captions.jsonl")


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


def test_captions_named_relative_to_their_own_file(scenes, tmp_path):
    shutil.copytree(scenes / "images", tmp_path / "d" / "images")
    rows = json_lines(scenes / "captions.jsonl")
    file = tmp_path / "d" / "captions.jsonl"
    lines = [json.dumps({**row, "path": f"images/{row['path']}"}) for row in rows]
    lines.append(json.dumps({"path": "x" * 300, "caption": "\ud83d half an emoji"}))
    file.write_text("\n".join(lines))
    manifest = run_build(tmp_path / "d" / "images", tmp_path / "caption=1" / "out", captions=file)
    assert counts(manifest) == (24, 24, 0, 0)
    assert list(verify(str(tmp_path / "caption=1" / "out"))) == []


def test_pack_goes_on_with_the_files_it_has(scenes, built, tmp_path):
    class StopsInPack(LocalExecutor):
        def run(self, task, units, on_done):
            super().run(task, units[:3] if task.name == "pack" else units, on_done)
            if task.name == "pack":
                raise KeyboardInterrupt

    arguments = {"captions": scenes / "captions.jsonl"}
    with pytest.raises(KeyboardInterrupt):
        run_build(scenes / "images", tmp_path / "out", executor=StopsInPack(), **arguments)
    executor = Counting()
    run_build(scenes / "images", tmp_path / "out", executor=executor, **arguments)
    assert executor.done == {"pack": 5}
    assert data_bytes(tmp_path / "out") == data_bytes(built)


def test_control_c_says_that_the_same_command_goes_on(scenes, tmp_path):
    out = tmp_path / "out"
    arguments = command(
        "build", scenes / "images", "-o", out, "-r", "mini", "--executor", "local",
        "--captions", scenes / "captions.jsonl",
    )  # fmt: skip
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # a suite started in the background may have SIGINT ignored, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("work/ingest-*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.decode().strip().splitlines()[-1] == (
        "glit: stopped; what is done is kept, the same command goes on from here"
    )
