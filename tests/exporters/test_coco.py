"""COCO's JSON, read back by pycocotools."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from building import run_build
from PIL import Image
from pycocotools.coco import COCO

from glit.dataset.reader import Dataset
from glit.images import decode


@pytest.fixture(scope="module")
def exported(built, tmp_path_factory):
    from glit.exporters import export

    folder = tmp_path_factory.mktemp("export") / "coco"
    export(Dataset(built), to="coco", output=folder)
    return folder


def test_only_what_is_promised(exported):
    assert sorted(path.name for path in exported.iterdir()) == [
        "captions.json",
        "images",
        "instances.json",
    ]


def test_boxes_captions_and_spans_come_back(built, exported):
    instances, captions = COCO(exported / "instances.json"), COCO(exported / "captions.json")
    rows = list(Dataset(built))
    assert len(instances.imgs) == len(captions.imgs) == len(rows)
    for image_id, row in enumerate(rows, start=1):
        image = instances.imgs[image_id]
        assert (image["width"], image["height"]) == (row.width, row.height)
        assert image["source_path"] == row.source_path
        data = (exported / "images" / image["file_name"]).read_bytes()
        assert data == row.image
        (caption,) = captions.imgToAnns[image_id]
        assert caption["caption"] == row.caption.text
        found = instances.imgToAnns[image_id]
        assert len(found) == len(row.regions)
        spans = {}
        for number, (region, annotation) in enumerate(zip(row.regions, found, strict=True)):
            x, y, width, height = annotation["bbox"]
            np.testing.assert_allclose(
                (x, y, x + width, y + height), region.box.xyxy, rtol=0, atol=1e-3
            )
            assert annotation["area"] == pytest.approx(region.box.area_px, abs=1e-3)
            is_cell = region.source in ("quadrant", "centre")
            name = "region" if is_cell else region.label or "region"
            assert instances.cats[annotation["category_id"]]["name"] == name
            assert (annotation["score"], annotation["source"]) == (region.score, region.source)
            spans |= {(s["char_start"], s["char_end"]): number for s in annotation["sentences"]}
        assert spans == {
            (row.sentences[pair.sentence].char_start, row.sentences[pair.sentence].char_end): (
                pair.region
            )
            for pair in row.pairs
        }


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_results_and_masks_of_boxes_as_readers_ask_for_them(exported):
    """pycocotools wants ``info`` of a file and ``segmentation`` of an annotation."""
    instances, captions = COCO(exported / "instances.json"), COCO(exported / "captions.json")
    assert instances.dataset["licenses"] == captions.dataset["licenses"] == []
    first = instances.anns[1]
    _, _, width, height = first["bbox"]
    result = {"image_id": first["image_id"], "category_id": first["category_id"], "score": 0.5}
    assert len(instances.loadRes([{**result, "bbox": first["bbox"]}]).anns) == 1
    said = captions.anns[1]
    assert len(captions.loadRes([{"image_id": said["image_id"], "caption": "A thing."}]).anns) == 1
    assert first["area"] == pytest.approx(width * height, rel=0.01)
    assert all(each["segmentation"] == [] for each in instances.anns.values()), (
        "no rectangle is a mask"
    )
    matplotlib.use("Agg")
    instances.showAnns([first])


def test_a_pair_that_the_whole_image_wins_is_no_regions_sentence(scenes, tmp_path, run_glit):
    run_build(
        scenes / "images", tmp_path / "dataset", captions=scenes / "captions.jsonl",
        overrides=["pair.rule=lism"], limit=12,
    )  # fmt: skip
    done = run_glit("export", tmp_path / "dataset", "--to", "coco", "-o", tmp_path / "coco")
    assert done.output == f"12 images: {tmp_path / 'coco'}\nread by: pycocotools, FiftyOne\n"
    pairs = [pair for row in Dataset(tmp_path / "dataset") for pair in row.pairs]
    local = sum(not pair.global_wins for pair in pairs)
    instances = COCO(tmp_path / "coco" / "instances.json")
    assert sum(len(each["sentences"]) for each in instances.anns.values()) == local < len(pairs)


@pytest.mark.parametrize("store", ["bytes", "path"])
def test_photographs_on_their_side_come_out_upright(tmp_path, run_glit, store):
    """Readers of COCO that ignore EXIF would cut the boxes out of a turned image."""
    pixels = np.zeros((40, 64, 3), np.uint8)
    pixels[:20, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "photos").mkdir()
    for name, options in {"a.jpg": {"quality": 95}, "b.png": {}}.items():
        Image.fromarray(pixels).save(tmp_path / "photos" / name, exif=exif, **options)
        (tmp_path / "photos" / f"{name[0]}.txt").write_text("A white corner on black.")
    run_build(
        tmp_path / "photos", tmp_path / "dataset",
        overrides=["caption.backend=sidecar", f"pack.image_store={store}"],
    )  # fmt: skip
    done = run_glit(
        "export", tmp_path / "dataset", "--to", "coco", "-o", tmp_path / "coco",
        "--image-root", tmp_path / "photos",
    )  # fmt: skip
    assert done.code == 0
    instances = COCO(tmp_path / "coco" / "instances.json")
    assert len(instances.imgs) == 2
    for image in instances.imgs.values():
        data = (tmp_path / "coco" / "images" / image["file_name"]).read_bytes()
        plain = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert plain.shape == (image["height"], image["width"], 3) == (64, 40, 3)
        assert plain[8, 32].min() > 240 and plain[8, 8].max() < 15
        np.testing.assert_array_equal(decode(data), plain)
