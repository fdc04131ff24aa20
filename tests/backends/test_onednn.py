"""Linear layers through oneDNN give what torch's own give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from glit.backends.onednn import OneDnnLinear, can_use_onednn, linear, use_onednn


@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24), (0, 3, 24), (2, 3, 4, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_an_onednn_layer_answers_as_a_plain_one(shape, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 40, bias=bias), torch.randn(shape)
    fast = OneDnnLinear(layer.weight, layer.bias)
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


def test_other_precisions_stay_as_they_are():
    weight, bias = torch.randn(4, 8).bfloat16(), torch.randn(4).bfloat16()
    assert not can_use_onednn(weight)
    layer = linear(weight, bias)
    assert isinstance(layer, nn.Linear) and layer.weight.dtype == torch.bfloat16
    model = nn.Sequential(layer)
    use_onednn(model)
    assert model[0] is layer
