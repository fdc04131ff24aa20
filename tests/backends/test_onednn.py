"""Linear layers through oneDNN give what torch's own give."""

from __future__ import annotations

import re
import types
from importlib.metadata import version

import numpy as np
import pytest
import torch
from torch import nn

from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.proposers import PROPOSERS
from glit.models.onednn import OneDnnLinear, can_use_onednn, linear, use_onednn
from glit.models.weights import resolve
from glit.runtime.verified_paths import FastPathWarning
from glit.stages.caption import CaptionConfig
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig


@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24), (0, 3, 24), (2, 3, 4, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_an_onednn_layer_answers_as_a_plain_one(shape, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 40, bias=bias), torch.randn(shape)
    fast = OneDnnLinear(layer.weight, layer.bias)
    assert torch.equal(fast.weight, layer.weight)
    with torch.inference_mode():
        np.testing.assert_allclose(fast(x), layer(x), atol=1e-5)
        turned = x.transpose(0, -2)
        np.testing.assert_allclose(fast(turned), layer(turned), atol=1e-5)


def test_a_models_layers_are_changed_where_they_stand():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    model, x = (
        nn.Sequential(nn.LayerNorm(8), inner, nn.Linear(4, 2).half().float()),
        torch.randn(3, 8),
    )
    with torch.inference_mode():
        wanted = model(x)
        use_onednn(model)
        np.testing.assert_allclose(model(x), wanted, atol=1e-5)
    kinds = [type(layer) for layer in model.modules()]
    assert kinds.count(OneDnnLinear) == 3 and nn.Linear not in kinds


def test_the_backends_use_it():
    matcher = ClipMatcher(ScoreConfig(device="cpu"), resolve("mini-matcher"))
    assert type(matcher.encoder.clip.visual_projection) is OneDnnLinear
    yolos = PROPOSERS["yolos"].make(ProposeConfig(device="cpu"), resolve("mini-proposer"))
    assert type(yolos.model.bbox_predictor.layers[0]) is OneDnnLinear
    config = CaptionConfig(device="cpu")
    captioner = CAPTIONERS["transformers"].make(config, resolve("mini-captioner"), "Describe it.")
    assert type(captioner._model.lm_head) is OneDnnLinear


def test_other_precisions_stay_as_they_are():
    weight, bias = torch.randn(4, 8).bfloat16(), torch.randn(4).bfloat16()
    assert not can_use_onednn(weight)
    layer = linear(weight, bias)
    assert isinstance(layer, nn.Linear) and layer.weight.dtype == torch.bfloat16
    model = nn.Sequential(layer)
    use_onednn(model)
    assert model[0] is layer


def a_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4, bias=False))


def raising(*_):
    raise TypeError("another signature")


@pytest.mark.parametrize("name", ["_linear_pointwise", "_reorder_linear_weight"])
@pytest.mark.parametrize("change", ["raises", "gives other numbers", "is gone"])
def test_with_another_torch_the_layers_stay(monkeypatch, fresh_verdicts, name, change):
    real = getattr(torch.ops.mkldnn, name)
    if name == "_linear_pointwise":

        def others(*arguments):
            return real(*arguments) * 1.001

    else:

        def others(weight):
            return real(weight * 1.001)

    if change == "is gone":
        namespace = types.SimpleNamespace(_linear_pointwise=real, _reorder_linear_weight=real)
        delattr(namespace, name)
        monkeypatch.setattr(torch.ops, "mkldnn", namespace)
    else:
        monkeypatch.setattr(torch.ops.mkldnn, name, raising if change == "raises" else others)
    model, x = a_model(), torch.randn(3, 8)
    wanted = model(x)
    with pytest.warns(FastPathWarning, match=f"with torch {re.escape(version('torch'))}") as seen:
        use_onednn(model)
        use_onednn(a_model())
        layer = linear(torch.ones(2, 8), torch.zeros(2))
    assert len(seen) == 1
    assert {type(module) for module in model} == {nn.Linear, nn.GELU} and type(layer) is nn.Linear
    assert torch.equal(model(x), wanted)


def test_a_layer_with_nan_stays_and_says_nothing_of_others(fresh_verdicts):
    model = a_model()
    with torch.no_grad():
        model[0].weight[0] = float("nan")
    with pytest.warns(FastPathWarning, match="cannot be checked"):
        use_onednn(model)
    assert [type(layer) for layer in model] == [nn.Linear, nn.GELU, OneDnnLinear]
