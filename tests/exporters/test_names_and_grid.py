"""Pictures keep the names they came under; regions of the grid can stay behind."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from building import png, run_build, tiny_clip

from glit.dataset.reader import Dataset
from glit.dataset.row import masks_of
from glit.exporters import export
from glit.exporters.parts import local_of, write_picture
from glit.exporters.without_grid import without_grid


@pytest.fixture(scope="module")
def mixed(scenes, tmp_path_factory) -> Dataset:
    """Images in folders, with regions of a detector and of the grid; four alike in name."""
    folder = tmp_path_factory.mktemp("mixed")
    for number, name in enumerate(("a/x.png", "b/x.png", "b/y.v2.PNG", "z.jpeg")):
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(scenes / "images" / f"{number:06d}.png", folder / "in" / name)
        (folder / "in" / name).with_suffix(".txt").write_text("A red circle. A blue square.")
    run_build(
        folder / "in", folder / "out", recipe="mini",
        overrides=["caption.backend=sidecar", "propose.keep_masks=true",
                   "propose.backend=sam+grid",
                   "propose.model=mini-segmenter", f"score.model={tiny_clip()}"],
    )  # fmt: skip
    return Dataset(folder / "out")


def test_pictures_have_the_names_they_were_ingested_under(mixed, tmp_path):
    export(mixed, to="coco", output=tmp_path / "coco")
    images = json.loads((tmp_path / "coco" / "instances.json").read_text())["images"]
    assert {image["source_path"]: image["file_name"] for image in images} == {
        "a/x.png": "a/x.png", "b/x.png": "b/x.png", "b/y.v2.PNG": "b/y.v2.PNG",
        "z.jpeg": "z.png",  # what it is
    }  # fmt: skip
    rows = {row.source_path: row for row in mixed}
    for image in images:
        picture = tmp_path / "coco" / "images" / image["file_name"]
        assert picture.read_bytes() == rows[image["source_path"]].encoded()
        assert image["sample_id"] == rows[image["source_path"]].sample_id


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("../../etc/passwd", "etc/passwd.png"),
        ("/x.png", "x.png"),
        ("a//./b.png", "a/b.png"),
        ("C:\\x\n?.png", "C__x__.png"),
        ("photo.2024", "photo.2024.png"),
        ("caption.txt", "caption.txt.png"),
        ("..", "ID.png"),
        ("", "ID.png"),
        ("x" * 300 + ".png", "ID.png"),
        ("\ud800.png", "_.png"),
        ("shard.tar/7.jpg", "shard.tar/7.png"),
    ],
)
def test_no_name_leaves_the_folder_or_fails(mixed, tmp_path, source, name):
    row = replace(next(iter(mixed)), source_path=source, sample_id="ID", image=png())
    (tmp_path / "images").mkdir()
    assert write_picture(row, tmp_path / "images") == name
    assert (tmp_path / "images" / name).read_bytes() == row.image
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


@pytest.mark.parametrize(
    ("first", "second"), [("a.png", "a.png"), ("a.png", "a.png/b.png"), ("a.png/b.png", "a.png")]
)
def test_a_name_that_is_taken_is_not_written_over(mixed, tmp_path, first, second):
    """By another image, by a file where a folder should be, or by a folder."""
    row = next(iter(mixed))
    one, two = png(seed=1), png(seed=2)
    assert write_picture(replace(row, source_path=first, image=one), tmp_path) == first
    other = replace(row, source_path=second, sample_id="ID", image=two)
    assert write_picture(other, tmp_path) == "ID.png"
    assert (tmp_path / first).read_bytes() == one and (tmp_path / "ID.png").read_bytes() == two


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory) -> Dataset:
    """Images whose names are altered, before and after those that have these names."""
    folder = tmp_path_factory.mktemp("unsafe")
    names = ("q?x.png", "q_x.png", "a?.png", "a_.png/b.png", "k?.png/b.png", "k_.png", "z:.png",
             "w.jpeg", "w.png", "d?/e.png", "d_/f.png")  # fmt: skip
    for number, name in enumerate(names):
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_bytes(png(seed=number))
        (folder / "in" / name).with_suffix(".txt").write_text("A red circle.")
    run_build(folder / "in", folder / "out", overrides=["caption.backend=sidecar"])
    return Dataset(folder / "out")


@pytest.mark.parametrize("to", ["coco", "goal", "grit", "mdetr", "odvg"])
def test_an_altered_name_is_never_that_of_another_image(unsafe, tmp_path, to):
    export(unsafe, to=to, output=tmp_path / to)
    folder = tmp_path / to / "images"
    ids = {row.source_path: row.sample_id for row in unsafe}
    wanted = {
        "q?x.png": f"{ids['q?x.png']}.png", "q_x.png": "q_x.png",
        "a?.png": f"{ids['a?.png']}.png", "a_.png/b.png": "a_.png/b.png",
        "k?.png/b.png": f"{ids['k?.png/b.png']}.png", "k_.png": "k_.png",
        "z:.png": "z_.png",
        "w.jpeg": f"{ids['w.jpeg']}.png", "w.png": "w.png",
        "d?/e.png": "d_/e.png", "d_/f.png": "d_/f.png",
    }  # fmt: skip
    assert {row.source_path for row in unsafe} == set(wanted)
    for row in unsafe:
        if to != "goal" or local_of(row):  # it takes no others
            assert (folder / wanted[row.source_path]).read_bytes() == row.encoded()
    if to == "coco":
        images = json.loads((tmp_path / "coco" / "instances.json").read_text())["images"]
        assert {image["source_path"]: image["file_name"] for image in images} == wanted


def test_regions_of_the_grid_stay_behind(mixed, tmp_path):
    for row in mixed:
        found = without_grid(row)
        kept = [at for at, region in enumerate(row.regions) if region.source == "sam"]
        assert 0 < len(kept) < len(row.regions)
        assert list(found.regions) == [row.regions[at] for at in kept]
        np.testing.assert_array_equal(found.similarity, row.similarity[:, kept])
        assert masks_of(found) == {
            new: masks_of(row)[old] for new, old in enumerate(kept) if old in masks_of(row)
        }
        wanted = [
            (pair.sentence, row.regions[pair.region]) for pair in row.pairs if pair.region in kept
        ]
        assert [(pair.sentence, found.regions[pair.region]) for pair in found.pairs] == wanted
    export(mixed, to="coco", output=tmp_path / "coco", grid=False)
    annotations = json.loads((tmp_path / "coco" / "instances.json").read_text())["annotations"]
    assert {each["source"] for each in annotations} == {"sam"}
    assert all("segmentation" in each for each in annotations)


@pytest.mark.parametrize("to", ["hf", "goal", "webdataset", "odvg", "grit", "mdetr"])
def test_every_format_of_rows_goes_without_them(mixed, tmp_path, to):
    export(mixed, to=to, output=tmp_path / "all")
    export(mixed, to=to, output=tmp_path / "some", grid=False)
    assert {p.name for p in (tmp_path / "some").iterdir()} == {
        p.name for p in (tmp_path / "all").iterdir()
    }


def test_lance_has_all_columns(mixed, tmp_path, run_glit):
    done = run_glit("export", mixed.path, "--to", "lance", "-o", tmp_path / "out", "--no-grid")
    assert done.code == 2 and "--no-grid: --to lance has all columns" in done.errors
    assert not (tmp_path / "out").exists()


def test_names_that_other_systems_take_for_one_are_counted(tmp_path, scenes):
    images = tmp_path / "images"
    images.mkdir()
    for number, name in enumerate(
        ("IMG.png", "img.png", "caf\u00e9.png", "cafe\u0301.png", "x.png")
    ):
        data = (scenes / "images" / f"{number:06d}.png").read_bytes()
        (images / name).write_bytes(data)
        (images / name).with_suffix(".txt").write_text("A red circle.")
    run_build(images, tmp_path / "d", recipe="captions-only", overrides=["caption.backend=sidecar"])
    with pytest.warns(UserWarning, match="^2 pictures: the name is another's but for case"):
        export(Dataset(tmp_path / "d"), to="coco", output=tmp_path / "coco")
