"""``propose.keep_masks``: from the proposer through the dataset to COCO; a stranger's are refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import rewrite
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

import glit
from glit.data.rle import checked_mask, compress_rle, encode_rle, mask_text, read_rle
from glit.data.schema import MASK
from glit.dataset.row import masks_of
from glit.dataset.row_checks import row_faults
from glit.errors import RecipeError
from glit.models.backends.proposers.sa1b import read_masks
from glit.scenes import write_scenes
from glit.view.samples import MASK_CELLS, sample

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # pycocotools


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, num=3, seed=2_000_300, masks=True)
    return folder


def build(scenes, output, *settings, recipe="lism-mini"):
    return glit.build(
        scenes / "images", output, recipe=recipe, captions=scenes / "captions.jsonl",
        settings=["propose.keep_masks=true", *settings], executor="local", quiet=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def kept(scenes, tmp_path_factory):
    return build(scenes, tmp_path_factory.mktemp("kept") / "d", "propose.backend=sa1b+grid")


def truth(scenes, row):
    text = (scenes / "images" / row.source_path).with_suffix(".json").read_text()
    return {mask.box: mask for mask in read_masks(text)}


def decoded(row, counts):
    return coco_masks.decode({"size": [row.height, row.width], "counts": counts}).astype(bool)


def test_masks_of_sa1b_come_back_as_they_were(scenes, kept) -> None:
    assert not list(glit.verify(kept.path))
    number = 0
    for row in kept.rows(images=False):
        known, masks = truth(scenes, row), masks_of(row)
        assert set(masks) == {i for i, each in enumerate(row.regions) if not each.is_grid}
        for region, counts in masks.items():
            number += 1
            mask = known[tuple(map(int, row.regions[region].box.xyxy))]
            assert counts == compress_rle(mask.runs.tolist())
            assert decoded(row, counts).sum() == mask.share * row.width * row.height
    assert number > 3


def test_those_of_sam_are_the_masks_behind_its_boxes(scenes, tmp_path) -> None:
    made = build(scenes, tmp_path / "sam")
    assert not list(glit.verify(made.path))
    best = []
    for row in made.rows(images=False):
        wanted = [
            decoded(row, compress_rle(mask.runs.tolist())) for mask in truth(scenes, row).values()
        ]
        masks = masks_of(row)
        assert len(masks) == len(row.regions)
        for region, counts in masks.items():
            ys, xs = np.nonzero(mask := decoded(row, counts))
            tight = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            np.testing.assert_allclose(row.regions[region].box.xyxy, tight, atol=0.01)
            best.append(max((mask & own).sum() / (mask | own).sum() for own in wanted))
    assert np.sort(best)[-3:].min() > 0.8


def test_coco_has_them_as_segmentation(kept, tmp_path) -> None:
    glit.export(kept.path, to="coco", output=tmp_path / "coco")
    found = COCO(tmp_path / "coco" / "instances.json")
    for image_id, row in enumerate(kept.rows(images=False), start=1):
        masks = masks_of(row)
        for number, annotation in enumerate(found.imgToAnns[image_id]):
            if number not in masks:
                assert annotation["segmentation"] == []
            else:
                mask = found.annToMask(annotation)
                assert mask.shape == (row.height, row.width)
                assert annotation["area"] == mask.sum() > 0


def test_a_file_of_regions_brings_its_own(scenes, tmp_path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for path in (scenes / "images").glob("*.png"):
        (images / path.name).write_bytes(path.read_bytes())
        text = path.with_suffix(".json").read_text()
        regions = [
            {"box": mask.box, "mask": {"size": [mask.height, mask.width], "counts": counts}}
            for mask in read_masks(text)
            for counts in [mask.runs.tolist()]
        ]
        (images / f"{path.stem}.json").write_text(json.dumps({"regions": regions}))
    wrong = json.loads((images / "000001.json").read_text())
    wrong["regions"][0]["mask"]["size"][0] += 1
    (images / "000001.json").write_text(json.dumps(wrong))
    (tmp_path / "captions.jsonl").write_bytes((scenes / "captions.jsonl").read_bytes())
    made = build(tmp_path, tmp_path / "d", "propose.backend=file")
    assert [row.source_path for row in made.rows(images=False)] == ["000000.png", "000002.png"]
    assert all(len(masks_of(row)) == len(row.regions) for row in made.rows(images=False))
    (dropped,) = pq.read_table(tmp_path / "d" / "drops.parquet").to_pylist()
    assert dropped["reason"] == "bad_masks" and "want 129 x 128" in dropped["message"]


def test_without_the_key_nothing_moves(scenes, tmp_path) -> None:
    plain = build(scenes, tmp_path / "d", "propose.backend=sa1b+grid", "propose.keep_masks=false")
    assert "masks" not in plain.schema.names and not plain.manifest.columns
    with pytest.raises(RecipeError, match="backend = 'yolos' has no masks"):
        build(scenes, tmp_path / "e", "propose.backend=yolos")


def strange(counts):
    def change(rows):
        rows[0]["masks"][0]["counts"] = counts(rows[0])

    return change


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        (lambda row: compress_rle([row["width"] * row["height"] + 1]), "run lengths"),
        (lambda row: compress_rle([0, 1 << 31, 5]), "run lengths"),
        (lambda row: "~", "run lengths in a string that is cut off"),
        (lambda row: compress_rle([row["width"] * row["height"]]), "a mask without a pixel"),
        (
            lambda row: compress_rle([0, 1, row["width"] * row["height"] - 1]),
            "a mask that marks another place",
        ),
        (lambda row: "0" * (1 << 23), "a mask of 8388608 characters"),
    ],
)
def test_a_strangers_mask_is_named_and_refused(kept, tmp_path, counts, fault) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(str(kept.path), copy)
    rewrite(copy, strange(counts))
    assert any(f"region 0 has {fault}" in line for line in glit.verify(copy))
    with pytest.raises(glit.errors.GlitError, match=fault):
        glit.export(copy, to="coco", output=tmp_path / "coco")


def test_a_mask_at_another_size() -> None:
    mask = np.zeros((4, 6), dtype=bool)
    mask[1:3, 2:5] = True
    runs = read_rle(mask_text(mask, height=8, width=12), height=8, width=12)
    assert runs.tolist() == encode_rle(np.kron(mask, np.ones((2, 2), bool)))
    counts = [2, 3, 19]
    assert checked_mask(counts, (0, 2, 2, 4), height=4, width=6) == compress_rle(counts)
    table = pa.table({"masks": pa.array([[{"region": 0, "counts": "x"}]], type=pa.list_(MASK))})
    assert not list(row_faults(table))  # nothing to check it against


def test_the_page_tints_them(kept) -> None:
    row = next(iter(kept.rows(images=False)))
    shown = sample(row, number=0, image="")["regions"]
    for number, counts in masks_of(row).items():
        path, box = shown[number]["mask"], row.regions[number].box
        cells = sum(int(each.split("h")[1].split("v")[0]) for each in path.split("M")[1:])
        share = decoded(row, counts).sum() / box.area_px
        assert cells / MASK_CELLS**2 == pytest.approx(share, abs=0.08)
    assert sum("mask" in each for each in shown) == len(masks_of(row)) > 0
