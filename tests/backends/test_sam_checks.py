"""SAM's fast decoder is used with the transformers it was written for, and no other."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.models.sam import modeling_sam

from glit.images import decode
from glit.models.backends.sam.automatic import AutomaticMasks
from glit.models.backends.sam.model import load_sam
from glit.models.weights import resolve
from glit.runtime.verified_paths import FastPathWarning

pytestmark = pytest.mark.usefixtures("fresh_verdicts")


@pytest.fixture(scope="module")
def segmenter():
    return load_sam(resolve("mini-segmenter"))


@pytest.fixture(scope="module")
def pictures(scenes):
    return [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:2]]


def assert_equal(found, wanted):
    assert sum(len(each.boxes) for each in wanted) > 2
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a.boxes, b.boxes) and np.array_equal(a.area_px, b.area_px)
        assert np.array_equal(a.predicted_iou, b.predicted_iou)
        assert np.array_equal(a.stability_score, b.stability_score)


def test_with_this_transformers_it_is_used(segmenter):
    before = torch.random.get_rng_state()
    assert AutomaticMasks(segmenter)._decoder is not None
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("change", ["raises", "gives other numbers"])
def test_another_decoder_is_run_as_it_is(segmenter, pictures, monkeypatch, change):
    model = copy.deepcopy(segmenter.model)
    if change == "raises":
        norm = model.mask_decoder.upscale_layer_norm
        model.mask_decoder.upscale_layer_norm = torch.nn.Sequential(norm)
    else:
        real = modeling_sam.SamAttention.forward
        monkeypatch.setattr(
            modeling_sam.SamAttention,
            "forward",
            lambda self, *args, **named: (1.1 * real(self, *args, **named)[0], None),
        )
    changed = replace(segmenter, model=model)
    wanted = AutomaticMasks(changed, exact=True)(pictures)
    with pytest.warns(FastPathWarning, match="SAM's mask decoder .* with transformers ") as seen:
        masks = AutomaticMasks(changed)
        AutomaticMasks(changed, dtype=torch.bfloat16)
    assert len(seen) == 1 and masks._decoder is None
    assert_equal(masks(pictures), wanted)
