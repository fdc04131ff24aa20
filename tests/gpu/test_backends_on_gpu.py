"""The model backends on a GPU answer as on a CPU; skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glit.data.geometry import iou
from glit.images import decode
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.proposers import PROPOSERS
from glit.models.weights import resolve
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(scope="module")
def pictures(scenes):
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:8]]


def boxes_of(pictures, backend, model, **changes):
    detector = PROPOSERS[backend].make(ProposeConfig(**changes), resolve(model))
    return [np.array([r.box.xyxy for r in regions]) for regions in detector.detect(pictures)]


@pytest.mark.parametrize(
    "backend, model, changes",
    [
        ("sam", "mini-segmenter", {}),
        ("sam", "mini-segmenter", {"exact_masks": True}),
        ("sam", "mini-segmenter", {"compile": True}),
        ("yolos", "mini-proposer", {"precision": "float32"}),
    ],
    ids=["sam", "sam exact", "sam compiled", "yolos"],
)
def test_boxes(pictures, backend, model, changes):
    here = boxes_of(pictures, backend, model, device="cuda", **changes)
    there = boxes_of(pictures, backend, model, device="cpu", precision="float32")
    overlaps = [iou(a, b).max(axis=1) for a, b in zip(there, here, strict=True)]
    assert (np.concatenate(overlaps) >= 0.97).mean() >= 0.95


@pytest.mark.parametrize("backend, model", [("sam", "mini-segmenter"), ("yolos", "mini-proposer")])
def test_half_precision_finds_the_same_things(pictures, backend, model):
    here = boxes_of(pictures, backend, model, device="cuda", precision="bfloat16")
    there = boxes_of(pictures, backend, model, device="cpu", precision="float32")
    overlaps = [iou(a, b).max(axis=1) for a, b in zip(there, here, strict=True)]
    assert (np.concatenate(overlaps) >= 0.8).mean() >= 0.9


@pytest.mark.parametrize("precision, cosine", [("float32", 0.9999), ("bfloat16", 0.99)])
def test_embeddings(pictures, precision, cosine):
    boxes = [np.array([[0.0, 0.0, 128.0, 128.0], [10.0, 20.0, 70.0, 100.0]])] * len(pictures)
    embedded = [
        np.concatenate(ClipMatcher(config, resolve("mini-matcher")).embed_regions(pictures, boxes))
        for config in (
            ScoreConfig(device="cuda", precision=precision),
            ScoreConfig(device="cpu", precision="float32"),
        )
    ]
    assert (embedded[0] * embedded[1]).sum(axis=1).min() >= cosine
