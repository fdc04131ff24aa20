"""LISM's regions: SAM's masks, measured as masks, given as boxes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from building import run_build
from safetensors.torch import load_file, save_file

from glit.data.geometry import iou
from glit.dataset.verify import verify
from glit.errors import WeightsError
from glit.images import decode
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.proposers.sam import shrink_large
from glit.models.backends.sam.model import (
    THRESHOLDS_NAME,
    MaskThresholds,
    load_sam,
    write_thresholds,
)
from glit.models.weights import resolve
from glit.recipes.resources import mini_model
from glit.stages.propose import ProposeConfig


@pytest.fixture(scope="module")
def detector():
    return PROPOSERS["sam"].make(ProposeConfig(device="cpu"), resolve("mini-segmenter"))


@pytest.fixture(scope="module")
def pictures(scenes):
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:3]]


def test_regions_are_masks_whose_own_area_keeps_to_the_limits(pictures):
    config = ProposeConfig(device="cpu", min_area=0.05, max_area=0.3)
    detector = PROPOSERS["sam"].make(config, resolve("mini-segmenter"))
    for image, regions in zip(pictures, detector.detect(pictures), strict=True):
        (masks,) = detector.masks([image])
        good = (masks.area_px >= 0.05 * 128**2) & (masks.area_px <= 0.3 * 128**2)
        assert 0 < good.sum() < len(good)
        assert {region.box.xyxy for region in regions} == set(map(tuple, masks.boxes[good]))
        scores = [region.score for region in regions]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_large_images_are_shrunk_and_their_boxes_come_back_in_original_pixels(detector, pictures):
    assert shrink_large(np.zeros((3000, 4000, 3), np.uint8)).shape == (3000, 4000, 3)
    assert shrink_large(np.zeros((3001, 100, 3), np.uint8)).shape[0] == 1536
    large = np.ascontiguousarray(pictures[0].repeat(32, axis=0).repeat(32, axis=1))
    assert large.shape[:2] == (4096, 4096)
    (found,), (small,) = detector.detect([large]), detector.detect(pictures[:1])
    assert max(r.box.x1 for r in found) > 2048
    scaled = np.array([r.box.xyxy for r in small]) * 32
    overlap = iou(scaled, np.array([r.box.xyxy for r in found]))
    assert overlap.max() > 0.8


def test_thresholds_lie_beside_the_weights(tmp_path):
    folder = shutil.copytree(mini_model("segmenter"), tmp_path / "model")
    found = load_sam(resolve("mini-segmenter")).thresholds
    assert (found.points_per_side, found.stability_score_thresh) == (10, 0.3)
    write_thresholds(replace(found, points_per_side=7), folder)
    config = ProposeConfig(device="cpu")
    detector = PROPOSERS["sam"].make(config, resolve(str(folder)))
    assert len(detector.masks._point_grid_P2) == 49
    for text, said in (
        ('{"points": 7}', "unknown key 'points'"),
        ('{"points_per_side": "7"}', "want int"),
        ("{", "Expecting"),
    ):
        (folder / THRESHOLDS_NAME).write_text(text)
        with pytest.raises(WeightsError, match=f"{THRESHOLDS_NAME}: .*{said}"):
            PROPOSERS["sam"].make(config, resolve(str(folder)))
    (folder / THRESHOLDS_NAME).unlink()
    assert load_sam(resolve(str(folder))).thresholds == MaskThresholds()


@pytest.mark.parametrize("change", ["a weight less", "another shape", "no preprocessor"])
def test_a_folder_with_a_part_of_a_model_is_refused(tmp_path, change):
    folder = shutil.copytree(mini_model("segmenter"), tmp_path / "model")
    path = folder / "model.safetensors"
    weights = load_file(path)
    if change == "a weight less":
        del weights["mask_decoder.iou_token.weight"]
        save_file(weights, path, metadata={"format": "pt"})
    elif change == "another shape":
        config = json.loads((folder / "config.json").read_text())
        config["vision_config"]["num_hidden_layers"] = 5
        (folder / "config.json").write_text(json.dumps(config))
    else:
        (folder / "preprocessor_config.json").unlink()
    with pytest.raises(WeightsError, match=str(folder)):
        PROPOSERS["sam"].make(ProposeConfig(device="cpu"), resolve(str(folder)))


@pytest.mark.slow
def test_the_whole_of_lism_on_scenes(scenes, tmp_path):
    run_build(
        scenes / "images", tmp_path / "out", recipe="lism-mini", limit=8,
        captions=scenes / "captions.jsonl",
    )  # fmt: skip
    assert list(verify(str(tmp_path / "out"))) == []
    rows = pq.read_table(tmp_path / "out" / "data").to_pylist()
    wins = [pair["global_wins"] for row in rows for pair in row["pairs"]]
    assert any(wins) and not all(wins)
    assert {r["source"] for row in rows for r in row["regions"]} == {"sam"}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["recipe"]["pair"]["rule"] == "lism"
