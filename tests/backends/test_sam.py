"""LISM's regions: segment-anything's masks, measured as masks, given as boxes."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from building import run_build

from glit.backends.proposers import PROPOSERS
from glit.backends.proposers.sam import shrink_large
from glit.backends.sam.model import PRESETS, build_sam
from glit.data.geometry import iou
from glit.dataset.verify import verify
from glit.errors import WeightsError
from glit.images import decode
from glit.models.weights import resolve
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


@pytest.mark.slow
def test_a_published_checkpoint_is_told_by_its_weights_and_wants_permission(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "sam_vit_b.pth"
    torch.save(build_sam(PRESETS["vit_b"]).state_dict(), path)
    with pytest.raises(WeightsError, match="allow_pickle = true"):
        PROPOSERS["sam"].make(ProposeConfig(), resolve(str(path)))
    allowed = ProposeConfig(allow_pickle=True, device="cpu")
    made = PROPOSERS["sam"].make(allowed, resolve(str(path)))
    encoder = made.masks.model.image_encoder
    assert (len(encoder.blocks), encoder.patch_embed.proj.out_channels) == (12, 768)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(WeightsError, match="not a published segment-anything checkpoint"):
        PROPOSERS["sam"].make(allowed, resolve(str(path)))


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
