"""A dataset is published without its pictures, and gets them back from changed files."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from PIL import Image, ImageOps

import glit
from glit.curate.attaching.align import align
from glit.curate.attaching.annotations import PICTURES
from glit.curate.attaching.attach import Attached
from glit.curate.attaching.lookup import TABLES, Index
from glit.curate.attaching.picture import picture_of
from glit.curate.attaching.user_pictures import UserPictures
from glit.errors import DatasetError, InputError, RunError

pytest.importorskip("cv2")
from tools.measure.attached import CHANGES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(built, tmp_path_factory) -> Path:
    """Seven samples of it: every picture is compared with all others."""
    output = tmp_path_factory.mktemp("some") / "dataset"
    glit.select(built, output, sample=7)
    return output


@pytest.fixture(scope="module")
def published(built, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("published") / "annotations"
    glit.export(built, to="annotations", output=output)
    return output


def images_of(dataset: Path) -> dict[str, Image.Image]:
    rows = glit.open_dataset(dataset)
    return {row.source_path: Image.fromarray(row.pixels()) for row in rows}


def columns_but(dataset: Path, *left_out: str) -> list[dict]:
    table = glit.open_dataset(dataset).table()
    return table.drop_columns([n for n in left_out if n in table.column_names]).to_pylist()


def test_what_is_published_holds_no_picture_and_is_whole(built, published):
    assert glit.verify(published) == []
    assert not (published / "data" / "..").resolve().joinpath("images").exists()
    assert all(r["image"]["bytes"] is None for r in columns_but(published))
    assert columns_but(built, "image") == columns_but(published, "image")
    told = pq.read_table(published / PICTURES).to_pylist()
    assert [r["sample_id"] for r in told] == [r["sample_id"] for r in columns_but(built)]
    assert all(Image.open(io.BytesIO(r["thumbnail"])).format == "WEBP" for r in told)
    named = json.loads((published / "manifest.json").read_text())["files"]
    assert named[PICTURES]["rows"] == len(told)


class Made(NamedTuple):
    """A dataset of seven samples, each found in another way; do not write into it."""

    result: Attached
    path: Path
    shown: dict[str, tuple[float, float, float, float]]
    """By source path, the part of the published picture that its file shows, x0 to y1, in pixels."""
    missing: str


@pytest.fixture(scope="module")
def made(built, published, tmp_path_factory) -> Made:
    """The same file, the same pixels, cut below and twice the size, cut at two sides and 1.5 times
    the size, cut above, and padded; the last is missing. Beside them noise, and a file that is no
    picture."""
    folder = tmp_path_factory.mktemp("made")
    mine, shown = folder / "mine", {}
    mine.mkdir()
    *rows, missing = sorted(glit.open_dataset(built), key=lambda row: row.source_path)
    for number, row in enumerate(rows):
        image = Image.fromarray(row.pixels())
        width, height = image.size
        x, y = round(0.08 * width), round(0.06 * height)
        box = {2: (0, 0, width, round(0.62 * height)), 3: (x, y, width, height),
               4: (0, round(0.4 * height), width, height), 5: (-20, -30, width + 20, height + 30)}.get(number, (0, 0, width, height))  # fmt: skip
        shown[row.source_path] = box
        scale = {2: 2, 3: 1.5}.get(number, 1)
        changed = image.crop(box)
        size = (round(changed.width * scale), round(changed.height * scale))
        changed = changed.resize(size, Image.Resampling.BICUBIC)
        if number == 0:
            (mine / "a.dat.png").write_bytes(row.image)
        elif number == 1:
            changed.save(mine / "b.webp", lossless=True)
        else:
            changed.save(mine / f"c{number}.jpg", quality=88)
    Image.effect_noise((90, 70), 80).convert("RGB").save(mine / "noise.png")
    (mine / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    result = glit.attach(published, [mine], folder / "out")
    assert not list(folder.glob(".out*"))
    return Made(result, folder / "out", shown, missing.source_path)


def test_pictures_are_found_by_bytes_by_pixels_and_by_looks(built, made):
    """What is not found is a row of the drops; what is found by bytes has the row it had."""
    assert glit.verify(made.path) == []
    assert made.result.samples == 7 and made.result.files == 8 and made.result.unreadable == 1
    assert made.result.found == {"bytes": 1, "pixels": 1, "looks": 4}
    assert made.result.drops == {"no_picture": 1}
    drops = glit.open_dataset(made.path).drops().to_pylist()
    assert [d["source_path"] for d in drops if d["reason"] == "no_picture"] == [made.missing]
    added = ("attached", "by_hand", "review")
    before = {row["source_path"]: row for row in columns_but(built)}
    for row in columns_but(made.path, *added):
        was = before[row["source_path"]]
        how = [*made.shown].index(row["source_path"])
        if how < 2:
            assert row == ({**was, "image": row["image"]} if how else was)


def test_boxes_move_with_the_pictures(built, made):
    """And a sentence whose region is cut off has none, whatever the rule says; the others keep
    theirs."""
    before = {row.source_path: row for row in glit.open_dataset(built)}
    overlaps, lost = [], 0
    for row in glit.open_dataset(made.path):
        old, (x0, y0, x1, y1) = before[row.source_path], made.shown[row.source_path]
        scale = np.array([row.width / (x1 - x0), row.height / (y1 - y0)] * 2)
        pairs = {p.sentence: p for p in row.pairs}
        assert [s.text for s in row.sentences] == [s.text for s in old.sentences]
        for pair in old.pairs:
            want = (np.array(old.regions[pair.region].box.xyxy) - [x0, y0, x0, y0]) * scale
            inside = want.clip(0, [row.width, row.height] * 2)
            shown = area_of(inside) / area_of(want)
            new = pairs[pair.sentence]
            if pair.global_wins or shown < 0.45:
                assert new.global_wins
                lost += not pair.global_wins
            elif shown > 0.55:
                assert not new.global_wins
                overlaps.append(iou_of(inside, row.regions[new.region].box.xyxy))
    assert lost and len(overlaps) > 10
    assert np.median(overlaps) > 0.995 and min(overlaps) > 0.97


def area_of(box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def iou_of(a, b) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    both = max(wide, 0) * max(tall, 0)
    areas = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    return both / (areas - both)


def test_captions_that_name_a_side_leave_mirrored_pictures_out(tmp_path, scenes):
    (tmp_path / "captions.jsonl").write_text(
        "\n".join(
            json.dumps({"path": f"{n:06d}.png", "caption": text})
            for n, text in enumerate(["A cup is left of a jug.", "A cup is near a jug."])
        )
    )
    (tmp_path / "images").mkdir()
    (tmp_path / "mine").mkdir()
    for number in range(2):
        file = scenes / "images" / f"{number:06d}.png"
        shutil.copy(file, tmp_path / "images")
        ImageOps.mirror(Image.open(file).convert("RGB")).save(tmp_path / "mine" / f"{number}.png")
    run_build(tmp_path / "images", tmp_path / "ds", captions=tmp_path / "captions.jsonl")
    glit.export(tmp_path / "ds", to="annotations", output=tmp_path / "annotations")
    made = glit.attach(tmp_path / "annotations", [tmp_path / "mine"], tmp_path / "out")
    assert made.drops == {"wrong_side": 1}
    (row,) = glit.open_dataset(tmp_path / "out")
    assert row.caption.text == "A cup is near a jug." and row.extra["attached"]["mirrored"]
    old = next(r for r in glit.open_dataset(tmp_path / "ds") if r.source_path == row.source_path)
    mirrored = {(old.width - b[2], b[1], old.width - b[0], b[3]) for b in boxes(old)}
    assert boxes(row) == mirrored
    assert not any(r.label for r in row.regions if r.is_grid), "a cell's label names its place"


def test_a_part_that_two_samples_share_is_given_to_neither(tmp_path, scenes):
    """Also where one of them was found by another file."""
    parts = [Image.open(scenes / "images" / f"{n:06d}.png").convert("RGB") for n in range(3)]
    lines = []
    for folder in ("images", "mine"):
        (tmp_path / folder).mkdir()
    for name, right in (("a", 1), ("b", 2)):
        whole = np.concatenate([np.asarray(parts[0]), np.asarray(parts[right])], axis=1)
        Image.fromarray(whole).save(tmp_path / "images" / f"{name}.png")
        lines.append(json.dumps({"path": f"{name}.png", "caption": "A thing. Another thing."}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    run_build(tmp_path / "images", tmp_path / "ds", captions=tmp_path / "captions.jsonl")
    glit.export(tmp_path / "ds", to="annotations", output=tmp_path / "annotations")
    shutil.copy(tmp_path / "images" / "a.png", tmp_path / "mine" / "whole.png")
    parts[0].save(tmp_path / "mine" / "part.jpg", quality=92)
    made = glit.attach(tmp_path / "annotations", [tmp_path / "mine"], tmp_path / "out")
    assert (made.found, made.drops) == ({"bytes": 1}, {"ambiguous_picture": 1})
    assert glit.verify(tmp_path / "out") == []


def boxes(row) -> set[tuple[float, ...]]:
    return {region.box.xyxy for region in row.regions}


@pytest.fixture(scope="module")
def twenty(photographs) -> list[Image.Image]:
    paths = sorted(photographs.glob("*.jpg"))[:40:2]
    return [Image.open(path).convert("RGB") for path in paths]


def test_sixty_of_sixty_photographs_are_found_and_taken_for_no_other(twenty):
    """Encoded again, made larger, and cut at two sides by 8 % and 6 %."""
    pictures, overlaps = [picture_of(np.asarray(each)) for each in twenty], []
    for number, image in enumerate(twenty):
        width, height = image.size
        x, y = round(0.08 * width), round(0.06 * height)
        larger = (round(1.5 * width), round(1.5 * height))
        for changed, box in (
            (image, (0, 0, width, height)),
            (image.resize(larger, Image.Resampling.BICUBIC), (0, 0, width, height)),
            (image.crop((x, y, width, height)), (x, y, width, height)),
        ):
            found = picture_of(np.asarray(as_file(changed)))
            assert align(pictures[number - 1], found) is None
            aligned = align(pictures[number], found)
            assert aligned is not None, box
            place = aligned.placement
            assert not place.mirrored and not place.turned
            overlaps.append(iou_of(box, (place.left, place.top, place.right, place.bottom)))
    assert len(overlaps) == 60 and min(overlaps) > 0.99


@pytest.mark.parametrize("name", [name for name in CHANGES if "contrast" not in name])
def test_changed_photographs_lie_where_they_were_taken_from(twenty, name):
    draw = random.Random(11)
    for image in twenty[:20:7]:
        changed, moved = CHANGES[name](image, draw)
        aligned = align(picture_of(np.asarray(image)), picture_of(np.asarray(changed)))
        assert aligned is not None
        assert aligned.colours == {"30 % darker": "changed", "grey": "grey"}.get(name, "same")
        boxes = np.array([[90.0, 60.0, 210.0, 190.0]])
        assert iou_of(aligned.placement.moved(boxes, *changed.size)[0], moved(boxes)[0]) > 0.97


@pytest.mark.parametrize("quarters", [1, 3])
def test_a_part_that_is_mirrored_and_turned_is_looked_up_and_lies_there(twenty, quarters):
    image = twenty[0].crop((0, 0, 400, 300))
    other = Image.fromarray(np.rot90(ImageOps.mirror(image), -quarters))
    pictures = [picture_of(np.asarray(each)) for each in twenty[:4]]
    connection = duckdb.connect().execute(TABLES)
    index = Index(connection, 1_000_000)
    index.add(range(4), pictures)
    found = picture_of(np.asarray(as_file(other)))
    assert index.propose([7], [found])[0] == (7, 0)
    votes = "SELECT count(*) FROM file_keys JOIN sample_keys USING (key) WHERE sample = 0"
    assert connection.execute(votes).fetchall()[0][0] > 20
    aligned = align(pictures[0], found)
    assert aligned is not None
    place = aligned.placement
    assert (place.mirrored, place.turned) == (True, 90 * quarters)
    assert iou_of((place.left, place.top, place.right, place.bottom), (0, 0, 400, 300)) > 0.99


def as_file(image: Image.Image, quality: int = 85) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def test_near_twins_are_not_taken(twenty):
    """A part in other colours or another part in its place; and a picture with another beside it,
    or cut at one side and padded at the other."""
    tried = 0
    for image in twenty[::4]:
        width, height = image.size
        box = (width // 3, height // 3, width // 2, height // 2)
        part = image.crop(box)
        whole = picture_of(np.asarray(image))
        assert align(whole, picture_of(np.asarray(image))) is not None
        beside = Image.new("RGB", (width * 2, height))
        beside.paste(image)
        beside.paste(twenty[1].resize((width, height)), (width, 0))
        assert align(whole, picture_of(np.asarray(beside))) is None
        shifted = image.crop((width // 8, 0, width + width // 8, height))
        assert align(whole, picture_of(np.asarray(shifted))) is None
        for patch in (ImageOps.invert(part), image.crop((0, 0, *part.size)).rotate(180)):
            twin = image.copy()
            twin.paste(patch.resize(part.size), box[:2])
            apart = np.abs(np.asarray(twin, np.int16) - np.asarray(image)).mean(2)
            if (apart > 15).mean() > 0.01:
                tried += 1
                assert align(whole, picture_of(np.asarray(twin))) is None
    assert tried >= 8


def test_scenes_of_which_one_object_is_another_are_not_taken():
    """Also if they were encoded again. Dots once hid that an object was lighter, and the grain of
    sand that it was another place of it."""
    from glit.scenes.layout import draw_scene
    from glit.scenes.render import render
    from tools.measure.near_twins import GRAIN, scene_twins

    draw = random.Random(3)
    tried = set()
    for index in (9, 13):
        scene = draw_scene(9, index, level="hard")
        image = Image.fromarray(render(scene, size_px=256).pixels)
        whole = picture_of(np.asarray(image))
        for kind, twin in scene_twins(scene, draw, size_px=256):
            if kind == GRAIN:  # a part may show no ground
                ground = replace(scene, texture_seed=scene.texture_seed + 777_777)
                twin = Image.fromarray(render(ground, size_px=256).pixels)
            assert align(whole, picture_of(np.asarray(as_file(twin, 60)))) is None, kind
            tried.add(kind)
        assert align(whole, picture_of(np.asarray(as_file(image, 40)))) is not None
    assert len(tried) == 9


def test_without_thumbnails_only_unchanged_pictures_are_found(built, tmp_path):
    glit.export(built, to="annotations", output=tmp_path / "hashes", thumbnails=False)
    assert set(pq.read_table(tmp_path / "hashes" / PICTURES)["thumbnail"].to_pylist()) == {None}
    (tmp_path / "mine").mkdir()
    images = images_of(built)
    first, second, *_ = images
    images[first].save(tmp_path / "mine" / "a.png")
    images[second].save(tmp_path / "mine" / "b.jpg", quality=90)
    made = glit.attach(tmp_path / "hashes", [tmp_path / "mine"], tmp_path / "out")
    assert sum(made.found.values()) == 1 and made.drops["no_picture"] == len(images) - 1


class Few(NamedTuple):
    """Four of the samples, their pictures as other files, and what they give back."""

    published: Path
    mine: Path
    whole: Path
    reads: int


@pytest.fixture(scope="module")
def few(built, tmp_path_factory) -> Few:
    """A run that nobody stopped, of two parts with two files each; do not write into its folders."""
    folder = tmp_path_factory.mktemp("few")
    published, mine, whole = folder / "published", folder / "mine", folder / "whole" / "data"
    glit.select(built, folder / "some", sample=4)
    glit.export(folder / "some", to="annotations", output=published)
    mine.mkdir()
    for number, image in enumerate(images_of(folder / "some").values()):
        image.save(mine / f"{number}.jpg", quality=85)
    with pytest.MonkeyPatch.context() as patch:
        reads = noted_reads(patch)
        glit.attach(published, [mine], whole)
    return Few(published, mine, whole, len(reads))


class Stopped(Exception):
    pass


def noted_reads(patch: pytest.MonkeyPatch, stop: int = -1) -> list[tuple]:
    """The files that are read from now on, two a part; one of them stops the run."""
    reads, read = [], UserPictures.read

    def noted(self, *file):
        reads.append(file)
        if len(reads) == stop:
            raise Stopped
        return read(self, *file)

    patch.setattr(UserPictures, "read", noted)
    patch.setattr("glit.curate.attaching.search._AT_ONCE", 2)
    return reads


@pytest.mark.parametrize(("stop", "kept"), [(4, 2), (8, 6)])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(few, tmp_path, stop, kept):
    """Each file is read to be hashed, to be compared, and to be written."""
    out = tmp_path / "out" / "data"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        noted_reads(patch, stop)
        glit.attach(few.published, [few.mine], out)
    assert not out.exists() and few.reads == 12
    with pytest.MonkeyPatch.context() as patch:
        reads = noted_reads(patch)
        glit.attach(few.published, [few.mine], out)
    assert len(reads) == few.reads - kept
    assert files_of(out.parent) == files_of(few.whole.parent)


def test_a_file_of_another_folder_is_another_file(few, tmp_path):
    """Of the same name, size and time: what was found in the first folder says nothing of it."""
    other, out = tmp_path / "other", tmp_path / "out" / "data"
    shutil.copytree(few.mine, other)  # with the times of the files
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        noted_reads(patch, 8)
        glit.attach(few.published, [few.mine], out)
    with pytest.MonkeyPatch.context() as patch:
        reads = noted_reads(patch)
        glit.attach(few.published, [other], out)
    assert len(reads) == few.reads


def test_files_that_came_or_changed_meanwhile_are_looked_at(few, tmp_path, monkeypatch):
    """And those that are gone are not; without any, what was done is kept."""
    mine, out = tmp_path / "mine", tmp_path / "out" / "data"
    shutil.copytree(few.mine, mine)
    (last,) = mine.glob("3.jpg")
    data = last.read_bytes()
    for path in (last, mine / "9.png"):
        Image.new("RGB", (64, 64), "red").save(path)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        noted_reads(patch, 11)
        glit.attach(few.published, [mine], out)
    mine.rename(tmp_path / "unmounted")
    mine.mkdir()
    with pytest.raises(InputError, match="no picture files"):
        glit.attach(few.published, [mine], out)
    mine.rmdir()
    (tmp_path / "unmounted").rename(mine)
    (mine / "9.png").unlink()
    last.write_bytes(data)
    reads = noted_reads(monkeypatch)
    glit.attach(few.published, [mine], out)
    assert sorted(path for _, path in reads) == [f"{n}.jpg" for n in (0, 1, 2, 3, 3, 3)]
    assert files_of(out) == files_of(few.whole)


def test_another_dataset_of_the_same_name_is_searched_anew(few, published, tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        noted_reads(patch, 1)
        glit.attach(published, [few.mine], tmp_path / "data")
    glit.attach(few.published, [few.mine], tmp_path / "data")
    assert files_of(tmp_path / "data") == files_of(few.whole)


def test_a_damaged_work_file_is_one_line(few, tmp_path):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        noted_reads(patch, 6)
        glit.attach(few.published, [few.mine], tmp_path / "out")
    (work,) = (tmp_path / ".out.attach").glob("*.duckdb")
    work.write_bytes(b"no database" * 999)
    with pytest.raises(RunError, match="remove the file if it is damaged"):
        glit.attach(few.published, [few.mine], tmp_path / "out")


KILLED = """
import os, signal, sys
from pathlib import Path
import glit.curate.attaching.attach, glit.cli.main
from glit.curate.attaching import search
from glit.curate.attaching.user_pictures import UserPictures
from tools.forked import start

search._AT_ONCE, read, reads = 2, UserPictures.read, []

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def killed(self, *file):
    reads.append(file)
    return die() if len(reads) == moment else read(self, *file)

def hook(event, values):
    if event == "os.rename" and str(values[1]) == sys.argv[-1]:
        die()

UserPictures.read = killed
words = ["attach", sys.argv[1], "--images", sys.argv[2], "-o", sys.argv[3]]
for moment in (4, 6, 99):
    child = start(words, Path(), Path("output"), before=lambda: sys.addaudithook(hook))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Processes of glit that die at the fourth and sixth read, and before the dataset is renamed."""


def test_a_process_that_is_killed_ends_repeated_in_the_same_bytes(few, tmp_path):
    out = tmp_path / "out" / "data"
    words = [sys.executable, "-c", KILLED, few.published, few.mine, out]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert killed.stdout.split() == ["-9"] * 3, killed.stderr
    assert not out.exists()
    with pytest.MonkeyPatch.context() as patch:
        reads = noted_reads(patch)
        glit.attach(few.published, [few.mine], out)
    assert len(reads) == 4, "only written"
    assert files_of(out.parent) == files_of(few.whole.parent)


def files_of(folder: Path) -> dict[str, bytes]:
    files = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (lambda folder: (folder / PICTURES).write_bytes(b"PAR1"), DatasetError, PICTURES),
        (lambda folder: (folder / PICTURES).unlink(), (DatasetError, InputError), PICTURES),
    ],
)
def test_a_damaged_file_of_pictures_is_one_line(published, built, tmp_path, spoil, error, said):
    shutil.copytree(published, tmp_path / "copy")
    spoil(tmp_path / "copy")
    (tmp_path / "mine").mkdir()
    next(iter(images_of(built).values())).save(tmp_path / "mine" / "a.png")
    with pytest.raises(error, match=said):
        glit.attach(tmp_path / "copy", [tmp_path / "mine"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_attached_is_refused(built, published, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="no picture files"):
        glit.attach(published, [tmp_path / "mine"], tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    Image.new("RGB", (64, 64), "red").save(tmp_path / "mine" / "red.png")
    with pytest.raises(InputError, match="none of 1 files"):
        glit.attach(published, [tmp_path / "mine"], tmp_path / "out")
    with pytest.raises(InputError, match=f"has no {PICTURES}"):
        glit.attach(built, [tmp_path / "mine"], tmp_path / "out")
    with pytest.raises(InputError, match="--where"):
        glit.export(
            built,
            to="annotations",
            output=tmp_path / "some",
            where="width > 99999 OR 1=1 AND sample_id < '8'",
        )
    for to, options, message in (
        ("coco", {"images": False}, "--without-images: .* want --to hf or annotations"),
        ("coco", {"thumbnails": False}, "--no-thumbnails: .* want --to hf or annotations"),
        ("hf", {"thumbnails": False}, "add --without-images"),
    ):
        with pytest.raises(InputError, match=message):
            glit.export(built, to=to, output=tmp_path / to, **options)
        assert not (tmp_path / to).exists()


def test_hf_without_images_is_read_by_datasets(built, tmp_path):
    from datasets import load_dataset

    glit.export(built, to="hf", output=tmp_path / "hf", images=False)
    assert not (tmp_path / "hf" / "preview").exists()
    rows = load_dataset(str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache"))
    assert "image" not in rows.column_names and len(rows) == len(glit.open_dataset(built))
    own = next(r for r in glit.open_dataset(built) if r.sample_id == rows[0]["image_id"])
    small = np.asarray(rows[0]["thumbnail"].convert("RGB"), np.int16)
    assert np.abs(small - own.pixels()).mean() < 12
