"""Products of halves are as exact as products of float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pretend_cuda import pretend_cuda
from torch import nn
from torch.nn import functional

from glit.backends.sam.automatic import AutomaticMasks
from glit.backends.sam.model import load_sam
from glit.gpu import probe
from glit.gpu.halves import (
    FAST_PATH,
    SplitLinear,
    can_split,
    split_NK,
    use_split_products,
)
from glit.images import decode
from glit.models.weights import resolve
from glit.runtime.verified_paths import leave_out

pytestmark = pytest.mark.usefixtures("fresh_verdicts")


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


def test_two_halves_hold_22_bits():
    x = drawn(1, 1000) * 2.0 ** torch.arange(-4, 6, 0.01)
    high, low = split_NK(x).double().chunk(2, dim=1)
    assert ((high + low / 2**11 - x.double()).abs() <= x.abs() * 2.0**-22).all()


@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0])
@pytest.mark.parametrize("inputs", [7, 160, 1280])
def test_the_error_is_float32s(inputs, size):
    x, weight = drawn(50, inputs) * size, drawn(96, inputs, seed=1) / 9
    exact = functional.linear(x.double(), weight.double())
    plain = error(functional.linear(x, weight), exact)
    assert error(SplitLinear(weight, None)(x), exact) <= max(1.3 * plain, 1.5e-7)
    assert error(functional.linear(x.half().float(), weight), exact) > 100 * plain


@pytest.mark.parametrize("bias", [None, drawn(6, seed=2)])
def test_any_number_of_dimensions(bias):
    weight, x = drawn(6, 5), drawn(2, 3, 4, 5)
    found = SplitLinear(weight, bias)(x)
    torch.testing.assert_close(found, functional.linear(x, weight, bias))


def test_numbers_beyond_halves_are_seen():
    assert not SplitLinear(drawn(3, 4), None)(torch.full((1, 4), 1e5)).isfinite().all()


def test_only_a_gpu_on_which_they_are_faster_multiplies_in_halves(monkeypatch):
    assert not can_split(drawn(8, 8))
    with pretend_cuda():
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)).to("cuda")
        wanted = model(drawn(2, 8).to("cuda")).cpu()
        assert can_split(model[0].weight)
        assert not can_split(model[0].weight.half())
        with leave_out(FAST_PATH):
            assert not can_split(model[0].weight)
        use_split_products(model)
        assert [type(layer) for layer in model] == [SplitLinear, nn.ReLU, SplitLinear]
        torch.testing.assert_close(model(drawn(2, 8).to("cuda")).cpu(), wanted)
        monkeypatch.setattr(probe, "_verdicts", {})
        monkeypatch.setattr(probe, "times_faster", lambda *_: 0.8)
        weight = drawn(8, 8).to("cuda")
        assert not can_split(weight)
        said = probe.verdict(FAST_PATH, weight.device, is_chosen=False)
        assert said == "products of halves: plain way used (0.80 times as fast)"


def test_a_gpu_that_gives_other_numbers_is_not_believed(monkeypatch):
    real = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda a, b, out_dtype: real(a.bfloat16(), b.bfloat16()).to(out_dtype)
    )
    with pretend_cuda(), pytest.warns(RuntimeWarning, match="products of halves gives other"):
        assert not can_split(drawn(8, 8).to("cuda"))


def test_sam_finds_the_boxes_it_finds_in_float32(scenes):
    pictures = [decode(path.read_bytes()) for path in sorted((scenes / "images").iterdir())[:3]]
    model, _, thresholds = load_sam(resolve("mini-segmenter").path)
    wanted = AutomaticMasks(model, thresholds)(pictures)
    use_split_products(model.image_encoder, always=True)
    assert any(type(layer) is SplitLinear for layer in model.image_encoder.modules())
    for a, b in zip(AutomaticMasks(model, thresholds)(pictures), wanted, strict=True):
        assert np.array_equal(a.boxes, b.boxes)
        np.testing.assert_allclose(a.predicted_iou, b.predicted_iou, atol=1e-5)
