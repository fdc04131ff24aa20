"""LISM's regions out of the files SA-1B ships: golden masks, other sizes, damage, whole builds."""

from __future__ import annotations

import copy
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from pycocotools import mask as coco

from glit.data.rle import encode_rle
from glit.dataset.verify import verify
from glit.models.backends.proposers.sa1b import Sa1bReader
from glit.scenes import write_scenes
from glit.stages.propose import ProposeConfig


def annotation(mask, *, number=0, score=0.95, packed=True):
    """One entry as SA-1B writes it; box and area are wrong on purpose, nobody is to use them."""
    height, width = mask.shape
    counts = (
        coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
        if packed
        else encode_rle(mask)
    )
    return {
        "id": 532481100 + number, "segmentation": {"size": [height, width], "counts": counts},
        "bbox": [0.0, 0.0, 1.0, 1.0], "area": 1, "predicted_iou": score,
        "stability_score": 0.97, "crop_box": [0, 0, width, height], "point_coords": [[1.0, 1.0]],
    }  # fmt: skip


def file_of(*annotations, width=100, height=80):
    image = {"image_id": 7, "width": width, "height": height, "file_name": "sa_7.jpg"}
    return json.dumps({"image": image, "annotations": list(annotations)})


def patch(x0, y0, x1, y1, *, width=100, height=80):
    mask = np.zeros((height, width), dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


def read(text, *, width=100, height=80, **config):
    return Sa1bReader(ProposeConfig(backend="sa1b", **config)).read(
        text, width=width, height=height
    )


def boxes(regions):
    return [region.box.xyxy for region in regions]


@pytest.mark.parametrize("packed", [True, False])
def test_a_golden_mask(packed):
    corner = patch(10, 20, 40, 70)
    corner[20:60, 20:40] = False  # an L: its box is not its area
    (region,) = read(file_of(annotation(corner, packed=packed)))
    assert region.box.xyxy == (10, 20, 40, 70)
    assert (region.score, region.label, region.source) == (0.95, "", "sam")
    share = (30 * 50 - 20 * 40) / 8000
    assert read(file_of(annotation(corner, packed=packed)), min_area=share, max_area=share + 1e-9)
    assert not read(file_of(annotation(corner, packed=packed)), min_area=share + 1e-9)
    assert not read(file_of(annotation(corner, packed=packed)), max_area=share - 1e-9)


def test_area_limits_are_the_masks_and_the_best_come_first():
    grey = [
        annotation(patch(0, 0, 10, 7), score=0.99),  # 0.9 % of the image
        annotation(patch(0, 0, 10, 8), score=0.91),  # 1 %
        annotation(patch(0, 0, 100, 64), score=1.02),  # 80 %
        annotation(patch(0, 0, 100, 65), score=0.99),
        annotation(patch(0, 0, 0, 0), score=0.99),
    ]
    found = read(file_of(*grey))
    assert boxes(found) == [(0, 0, 100, 64), (0, 0, 10, 8)]
    assert [region.score for region in found] == [1.0, 0.91]
    assert read(file_of()) == []


def test_boxes_go_along_when_the_image_was_made_smaller_or_larger():
    text = file_of(annotation(patch(10, 20, 40, 70)))
    assert boxes(read(text, width=50, height=40)) == [(5, 10, 20, 35)]
    assert boxes(read(text, width=200, height=160)) == [(20, 40, 80, 140)]
    odd = file_of(annotation(patch(750, 0, 2250, 1499, width=2250, height=1499)))
    ((x0, y0, x1, y1),) = boxes(read(odd, width=512, height=341))  # 341.1 rows in truth
    assert (x0, y0, x1, y1) == (170.67, 0, 512, 341)


@pytest.mark.parametrize("width, height", [(80, 100), (100, 83), (50, 43), (104, 80)])
def test_masks_of_another_shape_are_refused(width, height):
    text = file_of(annotation(patch(10, 20, 40, 70)))
    with pytest.raises(ValueError, match=f"100x80 pixels, the image has {width}x{height}"):
        read(text, width=width, height=height)


def damaged(path, value):
    described = json.loads(file_of(*[annotation(patch(1, 1, 50, 50)) for _ in range(2)]))
    at = described
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(described)


SECOND = ("annotations", 1)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", "no list of 'annotations'"),
        (damaged(("annotations",), {"a": 1}), "no list of 'annotations'"),
        (damaged(SECOND, "mask"), "annotation 1"),
        (damaged((*SECOND, "segmentation"), None), "annotation 1 has no 'segmentation'"),
        (damaged((*SECOND, "segmentation", "counts"), "1121"), "annotation 1: run lengths"),
        (damaged((*SECOND, "segmentation", "size"), [100, 80]), None),
        (damaged((*SECOND, "segmentation", "size"), [80]), "annotation 1"),
        (damaged((*SECOND, "segmentation", "size"), [80.0, 100.0]), "annotation 1: size"),
        (damaged((*SECOND, "segmentation", "size"), [-80, -100]), "annotation 1: size"),
        (damaged((*SECOND, "predicted_iou"), None), "annotation 1 has no 'predicted_iou'"),
        (damaged((*SECOND, "predicted_iou"), float("nan")), "annotation 1: predicted_iou nan"),
        (damaged((*SECOND, "predicted_iou"), 10**400), "annotation 1: int too large"),
        (damaged((*SECOND, "segmentation", "counts"), [10**400, 1]), "annotation 1: run length"),
        (damaged((*SECOND, "predicted_iou"), "0.9"), "annotation 1: predicted_iou '0.9'"),
    ],
)
def test_damaged_files_are_refused_with_the_place(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_build_from_shipped_masks(tmp_path):
    write_scenes(tmp_path / "in", num=8, seed=2_000_000, masks=True)
    images = tmp_path / "in" / "images"
    files = sorted(images.glob("*.json"))
    files[1].unlink()
    files[2].write_text(files[2].read_text()[:-20])
    files[3].write_bytes(b"\xff\xfe\x00")
    wide = copy.deepcopy(json.loads(files[4].read_text()))
    wide["annotations"] = [annotation(patch(0, 0, 50, 50))]
    files[4].write_text(json.dumps(wide))
    files[5].write_text(json.dumps({**wide, "annotations": []}))
    build = {
        "recipe": "lism-mini", "captions": tmp_path / "in" / "captions.jsonl",
        "overrides": ["propose.backend=sa1b"],
    }  # fmt: skip
    manifest = run_build(images, tmp_path / "out", **build)
    assert manifest.counts.drops == {
        "propose/bad_masks": 2, "propose/no_annotation": 2, "propose/no_region": 1,
    }  # fmt: skip
    assert set(manifest.models) == {"matcher", "tokenizer"}
    assert list(verify(str(tmp_path / "out"))) == []
    messages = pq.read_table(tmp_path / "out" / "drops.parquet")["message"].to_pylist()
    assert messages[0] == "there is no 000001.json"
    assert messages[1].startswith("000002.json: not valid JSON")
    assert messages[2].startswith("000003.json cannot be read")
    assert "100x80 pixels, the image has 128x128" in messages[3]
    assert_boxes_are_the_objects(tmp_path)
    files[1].write_text(json.dumps({**wide, "annotations": [
        annotation(patch(30, 30, 60, 60, width=256, height=256))
    ]}))  # fmt: skip
    again = run_build(images, tmp_path / "out", replace=True, **build)
    assert again.counts.drops["propose/no_annotation"] == 1  # a file that came is noticed
    rows = pq.read_table(tmp_path / "out" / "data", columns=["source_path", "regions"]).to_pylist()
    (region,) = next(row["regions"] for row in rows if row["source_path"] == "000001.png")
    assert [region[key] for key in ("x0", "y0", "x1", "y1")] == [15, 15, 30, 30]


def assert_boxes_are_the_objects(folder):
    truth = {
        row["path"]: row["objects"]
        for row in pq.read_table(folder / "in" / "ground_truth.parquet").to_pylist()
    }
    rows = pq.read_table(folder / "out" / "data").to_pylist()
    assert len(rows) == 3
    for row in rows:
        expected = {
            tuple(item["box"])
            for item in truth[row["source_path"]]
            if sum(item["mask"][1::2]) >= 0.01 * 128**2
        }
        assert {(r["x0"], r["y0"], r["x1"], r["y1"]) for r in row["regions"]} == expected
