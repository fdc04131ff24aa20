"""A dataset is published without its pictures, and gets them back from changed files."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from PIL import Image, ImageOps

import glit
from glit.curate.attaching.align import align, looks_of
from glit.curate.attaching.annotations import PICTURES
from glit.curate.attaching.user_pictures import UserPictures
from glit.errors import DatasetError, InputError

pytest.importorskip("cv2")
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


def test_the_same_files_under_other_names_give_the_dataset_back(built, published, tmp_path):
    rows = glit.open_dataset(built)
    for number, row in enumerate(rows):
        folder = tmp_path / "mine" / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"p{number}.dat.png").write_bytes(row.image)
    made = glit.attach(published, [tmp_path / "mine"], tmp_path / "out")
    assert (made.samples, made.found, made.drops) == (len(rows), {"bytes": len(rows)}, {})
    assert glit.verify(tmp_path / "out") == []
    assert columns_but(built) == columns_but(tmp_path / "out", "attached")
    assert not list(tmp_path.glob(".out*"))


def test_pixels_are_found_in_another_format(built, published, tmp_path):
    (tmp_path / "mine").mkdir()
    for name, image in images_of(built).items():
        image.save(tmp_path / "mine" / f"{Path(name).stem}.webp", lossless=True)
    made = glit.attach(published, [tmp_path / "mine"], tmp_path / "out")
    assert set(made.found) == {"pixels"} and glit.verify(tmp_path / "out") == []
    assert columns_but(built, "image") == columns_but(tmp_path / "out", "attached", "image")


def test_changed_pictures_are_found_and_boxes_move_with_them(built, published, tmp_path):
    """Twice the size, cut, and what is no picture of the dataset; a picture that is missing is a
    row of the drops."""
    draw = random.Random(5)
    mine = tmp_path / "mine"
    mine.mkdir()
    cuts: dict[str, tuple[float, ...]] = {}
    images = images_of(built)
    missing, *rest = sorted(images)
    for number, name in enumerate(rest):
        image = images[name]
        width, height = image.size
        x, y = (draw.randint(0, 10), draw.randint(0, 10)) if number % 2 else (0, 0)
        cut = image.crop((x, y, width - x, height - y)) if number % 2 else image
        large = cut.resize((2 * cut.width, 2 * cut.height), Image.Resampling.BICUBIC)
        large.save(mine / f"q{number}.jpg", quality=88)
        cuts[name] = (x, y, cut.width, cut.height)
    Image.effect_noise((90, 70), 80).convert("RGB").save(mine / "noise.png")
    (mine / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    made = glit.attach(published, [mine], tmp_path / "out")
    assert made.unreadable == 1 and made.drops["no_picture"] == 1
    assert glit.verify(tmp_path / "out") == []
    drops = glit.open_dataset(tmp_path / "out").drops().to_pylist()
    assert [d["source_path"] for d in drops if d["reason"] == "no_picture"] == [missing]
    before = {row.source_path: row for row in glit.open_dataset(built)}
    overlaps = []
    for row in glit.open_dataset(tmp_path / "out"):
        x, y, wide, tall = cuts[row.source_path]
        old = before[row.source_path]
        assert (row.width, row.height) == (2 * wide, 2 * tall)
        own = {r.box.xyxy: r for r in row.regions}
        for region in old.regions:
            x0, y0, x1, y1 = region.box.xyxy
            want = [2 * (x0 - x), 2 * (y0 - y), 2 * (x1 - x), 2 * (y1 - y)]
            inside = [
                min(max(v, 0), m) for v, m in zip(want, [2 * wide, 2 * tall] * 2, strict=True)
            ]
            area = (inside[2] - inside[0]) * (inside[3] - inside[1])
            if area < 0.55 * (want[2] - want[0]) * (want[3] - want[1]):
                continue
            overlaps.append(max(iou_of(inside, box) for box in own))
        texts = {s.text for s in old.sentences}
        assert {s.text for s in row.sentences} == texts
    assert np.median(overlaps) > 0.99 and min(overlaps) > 0.9


def iou_of(a, b) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    both = max(wide, 0) * max(tall, 0)
    areas = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    return both / (areas - both)


def test_a_sentence_whose_region_is_cut_off_has_none(built, published, tmp_path):
    """And keeps none whatever the rule says; the other sentences keep theirs."""
    (tmp_path / "mine").mkdir()
    images = images_of(built)
    for name, image in images.items():
        image.crop((0, 0, image.width, round(image.height * 0.62))).save(
            tmp_path / "mine" / Path(name).name
        )
    glit.attach(published, [tmp_path / "mine"], tmp_path / "out")
    assert glit.verify(tmp_path / "out") == []
    before = {row.source_path: row for row in glit.open_dataset(built)}
    lost = 0
    for row in glit.open_dataset(tmp_path / "out"):
        old = before[row.source_path]
        pairs = {p.sentence: p for p in row.pairs}
        for pair in old.pairs:
            box = old.regions[pair.region].box.xyxy
            new = pairs[pair.sentence]
            shown = (min(box[3], row.height) - box[1]) / (box[3] - box[1])
            if pair.global_wins or shown < 0.45:
                assert new.global_wins
                lost += not pair.global_wins
            elif shown > 0.55:
                x0, y0, x1, y1 = row.regions[new.region].box.xyxy
                assert not new.global_wins
                assert iou_of((x0, y0, x1, y1), (*box[:3], min(box[3], row.height))) > 0.9
    assert lost > 3


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


def test_near_twins_are_not_taken(photographs):
    """A part in other colours, or another part in its place."""
    paths = sorted(photographs.glob("*.jpg"))[:24:4]
    for path in paths:
        image = Image.open(path).convert("RGB")
        width, height = image.size
        box = (width // 3, height // 3, width // 2, height // 2)
        part = image.crop(box)
        twins = []
        for patch in (ImageOps.invert(part), image.crop((0, 0, *part.size)).rotate(180)):
            twin = image.copy()
            twin.paste(patch.resize(part.size), box[:2])
            apart = np.abs(np.asarray(twin, np.int16) - np.asarray(image)).mean(2)
            if (apart > 15).mean() > 0.01:
                twins.append(twin)
        whole = looks_of(np.asarray(image))
        assert align(whole, looks_of(np.asarray(image))) is not None
        assert twins
        for twin in twins:
            assert align(whole, looks_of(np.asarray(twin))) is None, path


def test_scenes_of_which_one_object_is_another_are_not_taken():
    """Also if they were encoded again. Dots once hid that an object was lighter, and the grain of
    sand that it was another place of it."""
    from glit.scenes.layout import draw_scene
    from glit.scenes.render import render
    from tools.measure.near_twins import GRAIN, scene_twins

    draw = random.Random(3)
    tried = set()
    for index in (9, 13, 16):
        scene = draw_scene(9, index, level="hard")
        image = Image.fromarray(render(scene, size_px=256).pixels)
        whole = looks_of(np.asarray(image))
        for kind, twin in scene_twins(scene, draw, size_px=256):
            if kind == GRAIN:  # a part may show no ground
                ground = replace(scene, texture_seed=scene.texture_seed + 777_777)
                twin = Image.fromarray(render(ground, size_px=256).pixels)
            file = io.BytesIO()
            twin.save(file, "JPEG", quality=60)
            assert align(whole, looks_of(np.asarray(Image.open(file)))) is None, kind
            tried.add(kind)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=40)
        assert align(whole, looks_of(np.asarray(Image.open(file)))) is not None
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


FILES_A_PART = ("glit.curate.attaching.user_pictures._FILES_A_PART", 2)


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
        patch.setattr(*FILES_A_PART)
        reads = noted_reads(patch)
        glit.attach(published, [mine], whole)
    return Few(published, mine, whole, len(reads))


def noted_reads(patch: pytest.MonkeyPatch) -> list[tuple]:
    """The files that are read from now on."""
    reads, read = [], UserPictures.read
    patch.setattr(UserPictures, "read", lambda self, *file: reads.append(file) or read(self, *file))
    return reads


class Stopped(Exception):
    pass


@pytest.mark.parametrize("moment", [1, 2, 4])
def test_a_run_that_was_stopped_ends_in_the_same_bytes(few, tmp_path, monkeypatch, moment):
    from glit.curate.attaching import search as module

    monkeypatch.setattr(*FILES_A_PART)
    calls, write, out = 0, module.write_whole, tmp_path / "out" / "data"

    def stops(table, path):
        nonlocal calls
        calls += 1
        if calls == moment:
            raise Stopped
        write(table, path)

    with monkeypatch.context() as patch:
        patch.setattr("glit.curate.attaching.user_pictures.write_whole", stops)
        patch.setattr(module, "write_whole", stops)
        with pytest.raises(Stopped):
            glit.attach(few.published, [few.mine], out)
    assert not out.exists()
    reads = noted_reads(monkeypatch)
    glit.attach(few.published, [few.mine], out)
    assert len(reads) == few.reads - 2 * (moment - 1)  # files of the parts that were kept
    assert files_of(out.parent) == files_of(few.whole.parent)


KILLED = """
import os, signal, sys
from pathlib import Path
import glit.curate.attaching.attach, glit.curate.attaching.search, glit.cli.main, glit.dataset.statistics
from glit.curate.attaching.features import require_opencv
from tools.forked import start

require_opencv()

def dies_at(moment):
    def hook(event, values):
        opened = event == "open" and values[1] == "w" and str(values[0]).endswith(moment)
        if opened or (event == "os.rename" and moment in str(values[1])):
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

for moment in map(str.rstrip, sys.stdin):
    child = start(sys.argv[1:], Path(), Path("output"), before=lambda: dies_at(moment))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""For each name that it reads, a process of glit that dies before it renames or opens a file of it."""


def test_a_process_that_is_killed_ends_repeated_in_the_same_bytes(few, tmp_path):
    """Killed as hashes, what looks alike, the first list, and the folder are to be published."""
    out = tmp_path / "out" / "data"
    words = [sys.executable, "-c", KILLED, "attach", few.published, "-o", out, "--images", few.mine]
    left = {}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as killed:  # fmt: skip
        for moment in ("files-", "found-", "duplicates.parquet", str(out)):
            print(moment, file=killed.stdin, flush=True)
            assert int(killed.stdout.readline()) == -signal.SIGKILL and not out.exists(), moment
            whole = (p for kind in ("parquet", "json") for p in out.parent.rglob(f"*.{kind}"))
            left[moment] = {each.name.partition("-")[0] for each in whole}
        killed.stdin.close()
    assert "found" not in left["found-"] and "found" in left["duplicates.parquet"]
    assert "manifest.json" in left[str(out)]
    glit.attach(few.published, [few.mine], out)
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


@pytest.mark.slow
def test_fifty_photographs_come_back_from_files_that_were_changed(photographs, tmp_path):
    """Published without pictures; each file encoded again, resized, cut, turned or the like, under
    a new name; one command gives the dataset back, boxes in their places."""
    from tools.measure.attached import CHANGES

    draw = random.Random(11)
    (tmp_path / "images").mkdir()
    (tmp_path / "mine").mkdir()
    moves, lines, places = {}, [], {}
    for number, path in enumerate(sorted(photographs.glob("*.jpg"))):
        image = Image.open(path).convert("RGB")
        image.save(tmp_path / "images" / path.name, quality=92)
        image = Image.open(tmp_path / "images" / path.name).convert("RGB")
        how = [*CHANGES][number % (len(CHANGES) - 1)]  # not the one of more contrast
        changed, moves[path.name] = CHANGES[how](image, draw)
        changed.save(tmp_path / "mine" / f"{draw.randrange(10**9)}.jpg", quality=90)
        places[path.name] = (how, changed.size)
        caption = f"The photograph {number} shows something. A part of it is bright."
        lines.append(json.dumps({"path": path.name, "caption": caption}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    run_build(tmp_path / "images", tmp_path / "ds", captions=tmp_path / "captions.jsonl")
    glit.export(tmp_path / "ds", to="annotations", output=tmp_path / "annotations")
    made = glit.attach(tmp_path / "annotations", [tmp_path / "mine"], tmp_path / "out")
    assert made.found["looks"] >= 49 and glit.verify(tmp_path / "out") == []
    before = {row.source_path: row for row in glit.open_dataset(tmp_path / "ds")}
    overlaps = []
    for row in glit.open_dataset(tmp_path / "out"):
        how, size = places[row.source_path]
        assert (row.width, row.height) == size, how
        old = np.array([r.box.xyxy for r in before[row.source_path].regions])
        for box in moves[row.source_path](old):
            inside = [min(max(float(v), 0.0), m) for v, m in zip(box, (*size, *size), strict=True)]
            area = max(inside[2] - inside[0], 0) * max(inside[3] - inside[1], 0)
            if area > 0.55 * (box[2] - box[0]) * (box[3] - box[1]):
                overlaps.append(max(iou_of(inside, r.box.xyxy) for r in row.regions))
    low, middle = np.percentile(overlaps, [5, 50])
    assert middle > 0.97 and low > 0.9
