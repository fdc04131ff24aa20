"""Texts in rows have the features that they have alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import CLIPModel

from glit.models.clip.text_rows import lay_out
from glit.models.clip.text_tokens import tokens_in_rows

TEXTS = [list(range(i, i + length)) for i, length in enumerate([3, 9, 5, 12, 2])]


def tokens_alone(tower) -> Tensor:
    """The public forward on each text in a row of its own."""
    inputs: list[Tensor] = []
    hook = tower.final_layer_norm.register_forward_pre_hook(lambda _, x: inputs.append(x[0][0]))
    for ids in TEXTS:
        tower(input_ids=torch.tensor([ids]))
    hook.remove()
    return torch.cat(inputs)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_tokens_and_gradients_are_those_of_each_text_alone(tiny_clip, attention):
    model = CLIPModel.from_pretrained(tiny_clip)
    model.set_attn_implementation(attention)
    rows = lay_out(TEXTS, context=77, pad_id=0)
    slots = torch.cat(
        [torch.arange(n) + at for at, n in zip(rows.offset_T, rows.length_T, strict=True)]
    )
    assert len(rows.input_ids_RW) < len(TEXTS) and len(slots) == 31
    features, gradients = [], []
    for one in (tokens_in_rows(model.text_model, rows)[slots], tokens_alone(model.text_model)):
        model.zero_grad()
        one.square().sum().backward()
        features.append(one)
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(features[0], features[1])
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 20
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-4)
