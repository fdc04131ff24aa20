"""Linear layers with 8 bits."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from glit.errors import RecipeError, UserError
from glit.models import int8
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.matchers import MATCHERS
from glit.models.backends.proposers import PROPOSERS
from glit.models.int8 import Int8Linear, is_exact, use_int8
from glit.models.weights import resolve
from glit.scenes import draw_scene, render
from glit.stages.caption import CaptionConfig
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig

needs_exact = pytest.mark.skipif(
    not is_exact(), reason="this machine adds products of 8 bits wrongly, so glit refuses them"
)


@needs_exact
@pytest.mark.parametrize("bias", [True, False])
def test_a_row_is_close_and_depends_on_no_other_row(bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(96, 40, bias=bias), torch.randn(3, 700, 96)
    x[1] *= 1000
    small = Int8Linear(layer)
    with torch.inference_mode():
        found, wanted = small(x), layer(x)
        assert torch.equal(small(x[2, 5:6]), found[2, 5:6])
        assert torch.equal(small(x[:, :9].contiguous()), found[:, :9])
    error = (found - wanted).abs().amax(-1) / wanted.abs().amax(-1)
    assert error.max() < 0.03
    np.testing.assert_allclose(small.weight, layer.weight.detach(), atol=0.001)


@needs_exact
def test_zeros_stay_zero_and_what_is_not_finite_shows():
    layer = nn.Linear(8, 4, bias=False)
    small = Int8Linear(layer)
    with torch.inference_mode():
        assert torch.equal(small(torch.zeros(2, 8)), torch.zeros(2, 4))
        assert small(torch.full((1, 8), torch.nan)).isnan().all()
        assert not small(torch.full((1, 8), torch.inf)).isfinite().any()
    assert small(torch.zeros(0, 8)).shape == (0, 4)


@needs_exact
def test_captions_of_the_mini_captioner_are_those_of_float32():
    images = [render(draw_scene(0, number)).pixels for number in range(3)]
    captions = {}
    for precision in ("float32", "int8"):
        config = CaptionConfig(device="cpu", precision=precision)
        made = CAPTIONERS["transformers"].make(config, resolve("mini-captioner"), "Describe it.")
        found = made.caption(images, seeds=[0] * 3, temperature=0)
        captions[precision] = [each.text for each in found]
    assert type(made._model.lm_head) is Int8Linear
    assert captions["int8"] == captions["float32"]


@needs_exact
def test_a_matcher_is_close_to_float32_and_regions_do_not_know_their_batch():
    images = [render(draw_scene(0, number)).pixels for number in range(3)]
    side = len(images[0])
    boxes = [np.array([[0, 0, side, side], [5, 9, side - 20, side // 2]], np.float64)] * 3
    found = {}
    for precision in ("float32", "int8"):
        config = ScoreConfig(device="cpu", precision=precision)
        matcher = MATCHERS["clip"].make(config, resolve("mini-matcher"))
        alone = matcher.embed_regions(images[2:], boxes[2:])[0]
        regions = matcher.embed_regions(images, boxes)
        np.testing.assert_array_equal(regions[2], alone)
        dense = matcher.embed_dense(images, boxes, scale=1.0)
        texts = matcher.embed_sentences(["A red circle.", "A blue square is beside it."])
        found[precision] = np.concatenate([*regions, *dense, texts])
    cosines = (found["float32"] * found["int8"]).sum(axis=1)
    assert cosines.min() > 0.999 and cosines.max() < 1  # 8 bits are others
    assert type(matcher.encoder.clip.visual_projection) is Int8Linear


@needs_exact
def test_regions_of_the_mini_proposer_are_nearly_those_of_float32():
    images = [render(draw_scene(0, number)).pixels for number in range(3)]
    found = {}
    for precision in ("float32", "int8"):
        config = ProposeConfig(device="cpu", precision=precision)
        detector = PROPOSERS["yolos"].make(config, resolve("mini-proposer"))
        found[precision] = [region for each in detector.detect(images) for region in each]
    assert type(detector.model.vit.encoder.layer[0].intermediate.dense) is Int8Linear
    wide, small = found["float32"], found["int8"]
    assert [each.label for each in small] == [each.label for each in wide] and len(wide) > 3
    boxes = [np.array([each.box.xyxy for each in regions]) for regions in (wide, small)]
    np.testing.assert_allclose(*boxes, atol=2)  # pixels
    assert (boxes[0] != boxes[1]).any()  # 8 bits are others


def test_only_some_backends_have_it_on_a_cpu():
    cases = [
        (CAPTIONERS["transformers"], CaptionConfig, "cuda"),
        (CAPTIONERS["vllm"], CaptionConfig, "cpu"),
        (MATCHERS["clip"], ScoreConfig, "cuda"),
        (PROPOSERS["yolos"], ProposeConfig, "cuda"),
        (PROPOSERS["sam"], ProposeConfig, "cpu"),
    ]
    for backend, config, device in cases:
        with pytest.raises(RecipeError, match="precision = 'int8': only captions by"):
            backend.settled(config(precision="int8"), device)
    for backend, config in (
        (CAPTIONERS["transformers"], CaptionConfig),
        (PROPOSERS["yolos"], ProposeConfig),
        (MATCHERS["clip"], ScoreConfig),
    ):
        assert backend.settled(config(precision="int8"), "cpu").precision == "int8"


@pytest.mark.parametrize("shifted", ["inputs", "weights"])
def test_sums_in_16_bits_are_exact_or_refused(monkeypatch, shifted):
    """AVX2 adds pairs of products in 16 bits, one factor without signs; oneDNN shifts the inputs,
    whose products with weights of 63 cannot overflow."""

    def saturated(a, b):
        first, second = (
            (a.int(), b.int() + 128) if shifted == "weights" else (a.int() + 128, b.int())
        )
        pairs = (first[:, :, None] * second[None]).unflatten(1, (-1, 2)).sum(2)
        sums = pairs.clamp(-(2**15), 2**15 - 1).sum(1)
        return sums - 128 * (a.int().sum(1)[:, None] if shifted == "weights" else b.int().sum(0))

    is_exact.cache_clear()
    monkeypatch.setattr(int8.torch, "_int_mm", saturated)
    if shifted == "inputs":
        use_int8(nn.Sequential(nn.Linear(4, 4)))
    else:
        with pytest.raises(UserError, match="does not add products of 8 bits exactly"):
            use_int8(nn.Sequential(nn.Linear(4, 4)))
    is_exact.cache_clear()


@needs_exact
@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE"])
def test_the_largest_sums_are_exact_without_vnni(instructions):
    code = (
        "import torch; from glit.models.int8 import is_exact\n"
        "x, w = (torch.full((99, 3072), size, dtype=torch.int8) for size in (127, 63))\n"
        "x[:, ::7], w[::3] = -127, -63\n"
        "wanted = x.double() @ w.double().t()\n"
        "sums = [torch._int_mm(x[:n], w[:m].t()).double() for n in (1, 99) for m in (2, 99)]\n"
        "print(is_exact(), [bool((a == wanted[:len(a), :a.shape[1]]).all()) for a in sums])"
    )
    held = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}
    done = subprocess.run([sys.executable, "-c", code], env=held, capture_output=True, text=True)
    assert done.stdout == "True [True, True, True, True]\n", done.stderr


@needs_exact
def test_a_layer_of_one_output_stays_as_it_is():
    use_int8(model := nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1)))
    assert [type(each) for each in model] == [Int8Linear, nn.Linear]
